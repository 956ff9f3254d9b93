//! Which VPAs select a pod whose labels a server remembers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use plimsoll_core::types::ObjectKey;
use plimsoll_storage::{
    Error,
    prometheus::history::{PodOwnership, VpaMatcher},
};

use super::HistorySource;
use crate::{
    cluster::cache::{selector::Selector, vpa_index::VpaIndex},
    controllers::recommender::Recommender,
};
use plimsoll_core::types::compat::Compat;

/// The selectors of some VPAs, by namespace and by a pair of labels that each insists on.
#[derive(Debug, Default)]
pub(in crate::controllers::recommender) struct SelectorIndex {
    namespaces: HashMap<Box<str>, NamespaceSelectors>,
    /// Whether names of labels are taken as they are, as upstream does: then one with a dot or a slash is in no series.
    exact_label_names: bool,
}

#[derive(Debug, Default)]
struct NamespaceSelectors {
    by_pair: HashMap<LabelPair, Vec<VpaSelector>>,
    /// Those that insist on no pair.
    without_pair: Vec<VpaSelector>,
}

/// A label as series name it, and its value.
type LabelPair = (Box<str>, Box<str>);
type VpaSelector = (ObjectKey, Selector);

impl Recommender {
    /// Whose pods there were within this time, or within all of the history, where their labels are to tell it.
    pub(in crate::controllers::recommender) async fn pod_ownership<'a>(
        &self,
        series: &HistorySource,
        wanted: impl IntoIterator<Item = &'a ObjectKey>,
        within: Option<Duration>,
    ) -> Result<Option<PodOwnership>, Error> {
        if self.config.prometheus.pod_labels.is_none() {
            return Ok(None);
        }
        let wanted: Vec<&ObjectKey> = wanted.into_iter().collect();
        let namespaces: BTreeSet<&str> = wanted.iter().map(|key| &*key.namespace).collect();
        let exact = self.config.compat == Compat::Upstream;
        let selected = SelectorIndex::from_index(&self.state.lock().index, wanted, exact);
        let whose =
            series.history.pod_ownership(&Vec::from_iter(namespaces), within, &selected).await;
        whose.map_err(|unknown| series.unavailable_error(&unknown))
    }
}

impl SelectorIndex {
    fn from_index<'a>(
        index: &VpaIndex,
        wanted: impl IntoIterator<Item = &'a ObjectKey>,
        exact: bool,
    ) -> Self {
        let mut selected = Self { exact_label_names: exact, ..Self::default() };
        for key in wanted {
            let selector = index.vpa(key).map(|vpa| vpa.selector().clone());
            if let Some(selector) = selector.filter(|selector| !selector.is_nothing()) {
                selected.add(key.clone(), selector);
            }
        }
        selected
    }

    fn add(&mut self, key: ObjectKey, selector: Selector) {
        let pair = selector
            .required_label()
            .map(|(name, value)| (self.series_label_name(name), value.into()));
        let selectors = self.namespaces.entry((&*key.namespace).into()).or_default();
        match pair {
            Some(pair) => selectors.by_pair.entry(pair).or_default().push((key, selector)),
            None => selectors.without_pair.push((key, selector)),
        }
    }

    /// The name of a label as series have it.
    fn series_label_name(&self, name: &str) -> Box<str> {
        if self.exact_label_names { name.into() } else { sanitized_label_name(name) }
    }
}

impl VpaMatcher for SelectorIndex {
    fn matching_vpas(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectKey> {
        let Some(selectors) = self.namespaces.get(namespace) else { return Vec::new() };
        // However a server spells them.
        let told: HashMap<Box<str>, &str> =
            labels.iter().map(|(name, value)| (self.series_label_name(name), &**value)).collect();
        let value = |name: &str| told.get(&self.series_label_name(name)).copied();
        let anchored = told
            .iter()
            .filter_map(|(name, value)| selectors.by_pair.get(&(name.clone(), (*value).into())));
        let fits = |(_, selector): &&(ObjectKey, Selector)| selector.matches_with(value);
        let all = anchored.flatten().chain(&selectors.without_pair).filter(fits);
        let mut vpas: Vec<ObjectKey> = all.map(|(key, _)| key.clone()).collect();
        vpas.sort();
        vpas.dedup();
        vpas
    }
}

/// A name as kube-state-metrics spells it, and the same of one that is spelled so already: what no series may have is an
/// underscore, and so is what stands before a capital letter, all of which are small.
fn sanitized_label_name(name: &str) -> Box<str> {
    let mut text = String::with_capacity(name.len());
    let mut before = '_';
    for c in name.chars() {
        let is_hump =
            c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit());
        if is_hump {
            text.push('_');
        }
        text.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
        before = c;
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(exact: bool) -> SelectorIndex {
        let mut selected = SelectorIndex { exact_label_names: exact, ..SelectorIndex::default() };
        for (namespace, name, selector) in [
            ("shop", "web", "app.kubernetes.io/name=web"),
            ("shop", "db", "app=db,tier!=test"),
            ("shop", "both", "app in (db,cache)"),
            ("bank", "db", "app=db"),
            ("bank", "till", "appName=till"),
        ] {
            let selector = Selector::parse(selector).expect("a selector");
            selected.add(ObjectKey::new(namespace, name), selector);
        }
        selected
    }

    #[test]
    fn pods_of_the_past_are_selected_as_those_of_today_are() {
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
        assert_eq!(as_upstream, [""; 0], "the name is another one");
        assert_eq!(names(true, "shop", &[("app", "db")]), ["both", "db"]);
    }
}
