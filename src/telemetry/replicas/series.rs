//! How families read their values from the state of an object, and labels of objects as labels of a series.

use std::collections::BTreeSet;

use plimsoll_core::scaling::MetricDecision;

use super::exported_state::{EmitSample, ReplicaRow};
use crate::telemetry::definition::Definition;

/// How a family reads its values from the row of an object.
#[derive(Clone, Copy)]
pub(in crate::telemetry) enum ReplicaSeries {
    Object(fn(&ReplicaRow<'_>) -> Option<f64>),
    Metric(fn(&MetricDecision) -> Option<f64>),
    /// A value for each value of a label.
    Labelled(fn(&ReplicaRow<'_>, &mut EmitSample<'_>)),
    /// 1 or 0 for each restriction.
    Restrictions,
    /// Always 1, with labels of the object.
    Tags,
}

/// A family under an upstream's name.
pub(in crate::telemetry) struct UpstreamFamily {
    pub definition: Definition,
    pub values: ReplicaSeries,
}

/// All families under an upstream's names.
#[derive(Default)]
pub struct UpstreamSeries {
    pub(in crate::telemetry) families: Vec<UpstreamFamily>,
    /// The labels of the family that has labels of objects.
    pub(super) tags: Vec<LabelTag>,
}

impl UpstreamSeries {
    pub(in crate::telemetry) fn new(
        families: Vec<UpstreamFamily>,
        labels_as_tags: &[String],
    ) -> Self {
        let with_tags = families.iter().find(|family| matches!(family.values, ReplicaSeries::Tags));
        let own = with_tags.map_or(&[][..], |family| family.definition.labels);
        let tags = label_tags(own, labels_as_tags);
        Self { families, tags }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct LabelTag {
    pub name: String,
    /// The key of the label of the object; `None` for one of our own labels.
    pub key: Option<String>,
}

/// The labels of a series in alphabetical order: our own, and one for each key. A key that is a valid name is kept; in
/// others each invalid character becomes an underscore. If two keys map to the same name, or to one of our own, the later
/// one in the order of keys is numbered from 2. The names do not depend on the order in which keys are given.
pub(super) fn label_tags(own: &[&str], keys: &[String]) -> Vec<LabelTag> {
    let mut taken: BTreeSet<String> = own.iter().map(|name| (*name).to_owned()).collect();
    let mut tags: Vec<LabelTag> =
        own.iter().map(|name| LabelTag { name: (*name).to_owned(), key: None }).collect();
    let keys: BTreeSet<&String> = keys.iter().filter(|key| !key.is_empty()).collect();
    let (valid, changed): (Vec<_>, Vec<_>) =
        keys.into_iter().map(|key| (key, label_name(key))).partition(|(key, name)| *key == name);
    for (key, wanted) in valid.into_iter().chain(changed) {
        let numbered = (2..).map(|number| format!("{wanted}_{number}"));
        let candidates = std::iter::once(wanted.clone()).chain(numbered);
        if let Some(name) = candidates.into_iter().find(|name| !taken.contains(name)) {
            taken.insert(name.clone());
            tags.push(LabelTag { name, key: Some(key.clone()) });
        }
    }
    tags.sort_unstable_by(|left, right| left.name.cmp(&right.name));
    tags
}

fn label_name(key: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() { character } else { '_' }
    };
    let name: String = key.chars().map(plain).collect();
    if name.starts_with("__") {
        // These names are reserved by Prometheus.
        format!("label{name}")
    } else if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &[&str]) -> Vec<(String, String)> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let tags = label_tags(&["wpa_name"], &keys);
        tags.into_iter().filter_map(|tag| Some((tag.key?, tag.name))).collect()
    }

    #[test]
    fn every_label_key_becomes_a_valid_and_unique_name() {
        let found =
            names(&["team/name", "a.b", "a-b", "a_b", "1st", "wpa_name", "__name__", "", "é"]);
        let wanted = [
            ("1st", "_1st"),
            ("a_b", "a_b"),
            ("a-b", "a_b_2"),
            ("a.b", "a_b_3"),
            ("__name__", "label__name__"),
            ("team/name", "team_name"),
            ("wpa_name", "wpa_name_2"),
        ];
        let mut wanted: Vec<_> =
            wanted.iter().map(|(key, name)| ((*key).to_owned(), (*name).to_owned())).collect();
        wanted.insert(0, ("é".to_owned(), "_".to_owned()));
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_order_of_label_keys_does_not_matter() {
        assert_eq!(names(&["a.b", "a-b", "a.b"]), names(&["a-b", "a.b"]));
        let taken = names(&["a.b", "a-b", "a_b_2"]);
        assert_eq!(taken.len(), 3);
        assert!(taken.iter().any(|(key, name)| key == "a_b_2" && name == "a_b_2"), "{taken:?}");
    }
}
