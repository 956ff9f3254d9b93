//! Labels of objects as labels of a series: under names that Prometheus takes, each of them once.

use std::collections::BTreeSet;

/// A label of a series.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LabelTag {
    /// Its name there.
    pub name: String,
    /// Of which label of the object it has its value; none is a label of our own.
    pub key: Option<String>,
}

/// The labels of a series in alphabetical order: these of our own, and one for each key. A key that Prometheus takes for
/// a name keeps it; of others each character that it does not take becomes an underscore. Where that leads two of them
/// to one name, or to one that is ours, the latter in order of keys is numbered from 2 on: whatever order they were
/// given in, each has the same name after each start.
pub(super) fn label_tags(own: &[&str], keys: &[String]) -> Vec<LabelTag> {
    let mut taken: BTreeSet<String> = own.iter().map(|name| (*name).to_owned()).collect();
    let mut tags: Vec<LabelTag> =
        own.iter().map(|name| LabelTag { name: (*name).to_owned(), key: None }).collect();
    let keys: BTreeSet<&String> = keys.iter().filter(|key| !key.is_empty()).collect();
    let (kept, changed): (Vec<_>, Vec<_>) =
        keys.into_iter().map(|key| (key, label_name(key))).partition(|(key, name)| *key == name);
    for (key, wanted) in kept.into_iter().chain(changed) {
        let numbered = (2..).map(|number| format!("{wanted}_{number}"));
        let free = std::iter::once(wanted.clone()).chain(numbered);
        if let Some(name) = free.into_iter().find(|name| !taken.contains(name)) {
            taken.insert(name.clone());
            tags.push(LabelTag { name, key: Some(key.clone()) });
        }
    }
    tags.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    tags
}

fn label_name(key: &str) -> String {
    let plain = |character: char| {
        if character.is_ascii_alphanumeric() { character } else { '_' }
    };
    let name: String = key.chars().map(plain).collect();
    if name.starts_with("__") {
        // Prometheus keeps those for itself.
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
    fn every_key_has_a_name_of_its_own_that_prometheus_takes() {
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
    fn the_order_in_which_keys_are_given_does_not_matter() {
        assert_eq!(names(&["a.b", "a-b", "a.b"]), names(&["a-b", "a.b"]));
        let taken = names(&["a.b", "a-b", "a_b_2"]);
        assert_eq!(taken.len(), 3);
        assert!(taken.iter().any(|(key, name)| key == "a_b_2" && name == "a_b_2"), "{taken:?}");
    }
}
