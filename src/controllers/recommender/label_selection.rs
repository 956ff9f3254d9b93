//! Matches pods of the past to VPAs, by the pod labels that Prometheus recorded.

use std::collections::{BTreeMap, HashMap};

use plimsoll_core::types::ObjectKey;
use plimsoll_storage::prometheus::history::VpaMatcher;

use crate::cluster::cache::{selector::Selector, vpa_index::VpaIndex};

/// The selectors of some VPAs, by namespace and by one label pair that each requires.
#[derive(Debug, Default)]
pub(super) struct SelectorIndex {
    namespaces: HashMap<Box<str>, NamespaceSelectors>,
    /// Whether label names are compared unchanged, as upstream does: a name with a dot or a slash then matches no
    /// series.
    exact_label_names: bool,
}

#[derive(Debug, Default)]
struct NamespaceSelectors {
    by_pair: HashMap<LabelPair, Vec<VpaSelector>>,
    /// Selectors that require no label pair.
    without_pair: Vec<VpaSelector>,
}

/// A label name as in series, and its value.
type LabelPair = (Box<str>, Box<str>);
type VpaSelector = (ObjectKey, Selector);

impl SelectorIndex {
    pub fn from_index<'a>(
        index: &VpaIndex,
        wanted: impl IntoIterator<Item = &'a ObjectKey>,
        exact: bool,
    ) -> Self {
        let mut result = Self { exact_label_names: exact, ..Self::default() };
        for key in wanted {
            let selector = index.vpa(key).map(|vpa| vpa.selector.clone());
            if let Some(selector) = selector.filter(|selector| !selector.is_nothing()) {
                result.add(key.clone(), selector);
            }
        }
        result
    }

    fn add(&mut self, key: ObjectKey, selector: Selector) {
        let pair = selector
            .required_labels()
            .next()
            .map(|(name, value)| (self.series_label_name(name), value.into()));
        let selectors = self.namespaces.entry((&*key.namespace).into()).or_default();
        match pair {
            Some(pair) => selectors.by_pair.entry(pair).or_default().push((key, selector)),
            None => selectors.without_pair.push((key, selector)),
        }
    }

    fn series_label_name(&self, name: &str) -> Box<str> {
        if self.exact_label_names { name.into() } else { sanitized_label_name(name) }
    }
}

impl VpaMatcher for SelectorIndex {
    fn matching_vpas(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        let Some(selectors) = self.namespaces.get(namespace) else { return Vec::new() };
        // Normalize, since servers spell label names differently.
        let series_labels: HashMap<Box<str>, &str> =
            labels.iter().map(|(name, value)| (self.series_label_name(name), &**value)).collect();
        let value = |name: &str| series_labels.get(&self.series_label_name(name)).copied();
        let candidates = series_labels
            .iter()
            .filter_map(|(name, value)| selectors.by_pair.get(&(name.clone(), (*value).into())));
        let matches = |(_, selector): &&(ObjectKey, Selector)| selector.matches_with(value);
        let matching = candidates.flatten().chain(&selectors.without_pair).filter(matches);
        let mut vpas: Vec<ObjectKey> = matching.map(|(key, _)| key.clone()).collect();
        vpas.sort();
        vpas.dedup();
        vpas
    }
}

/// Converts a label name like kube-state-metrics: invalid characters become underscores, and camel case becomes snake
/// case. Names in that form stay unchanged.
fn sanitized_label_name(name: &str) -> Box<str> {
    let mut text = String::with_capacity(name.len());
    let mut previous = '_';
    for c in name.chars() {
        let is_word_start =
            c.is_ascii_uppercase() && (previous.is_ascii_lowercase() || previous.is_ascii_digit());
        if is_word_start {
            text.push('_');
        }
        text.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        previous = c;
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(exact: bool) -> SelectorIndex {
        let mut index = SelectorIndex { exact_label_names: exact, ..SelectorIndex::default() };
        for (namespace, name, selector) in [
            ("shop", "web", "app.kubernetes.io/name=web"),
            ("shop", "db", "app=db,tier!=test"),
            ("shop", "both", "app in (db,cache)"),
            ("bank", "db", "app=db"),
            ("bank", "till", "appName=till"),
        ] {
            let selector = Selector::parse(selector).expect("a selector");
            index.add(ObjectKey::new(namespace, name), selector);
        }
        index
    }

    #[test]
    fn past_pods_are_selected_by_label_as_current_ones_are() {
        let names = |exact: bool, namespace: &str, labels: &[(&str, &str)]| -> Vec<String> {
            let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            let vpas = selected(exact).matching_vpas(namespace, &labels.collect());
            vpas.iter().map(|vpa| vpa.name.to_string()).collect()
        };
        assert_eq!(names(false, "shop", &[("app", "db")]), ["both", "db"]);
        assert_eq!(names(false, "shop", &[("app", "db"), ("tier", "test")]), ["both"]);
        assert_eq!(names(false, "shop", &[("app", "cache")]), ["both"]);
        assert_eq!(names(false, "bank", &[("app", "db"), ("tier", "test")]), ["db"]);
        assert_eq!(names(false, "shop", &[]), [""; 0]);
        assert_eq!(names(false, "mill", &[("app", "db")]), [""; 0]);
        for name in ["app_name", "appName"] {
            assert_eq!(names(false, "bank", &[(name, "till")]), ["till"], "{name}");
        }
        for name in ["app_kubernetes_io_name", "app.kubernetes.io/name"] {
            assert_eq!(names(false, "shop", &[(name, "web")]), ["web"], "{name}");
        }
        let as_upstream = names(true, "shop", &[("app_kubernetes_io_name", "web")]);
        assert_eq!(as_upstream, [""; 0], "upstream does not convert names");
        assert_eq!(names(true, "shop", &[("app", "db")]), ["both", "db"]);
    }
}
