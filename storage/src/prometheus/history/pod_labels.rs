//! Matches pods to VPAs by their labels, from a configured query (`--metric-for-pod-labels`).
//!
//! The query may return a vector, with one point per series, or a matrix. A plain selector is evaluated with the last
//! sample of each series within the history, so that deleted pods are included, and then for the current series. If a
//! pod has several series, the latest counts.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    time::Duration,
};

use super::workload_batch::WorkloadBatch;
use crate::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
    schema::{MAX_NAMESPACES, Schema},
    selector::{LabelMatcher, LabelMatchers, MatchOperator, Pattern},
};
use plimsoll_core::types::{ObjectKey, Time};

const PREFIXES: [&str; 2] = ["label_", "pod_label_"];
/// Default labels with the namespace. A scrape with its own namespace label renames the pod's to `exported_namespace`.
const NAMESPACES: [&str; 3] = ["exported_namespace", "kubernetes_namespace", "namespace"];
/// Default labels with the pod's name.
const PODS: [&str; 4] = ["exported_pod", "kubernetes_pod_name", "pod", "pod_name"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLabelQuery {
    pub query: String,
    /// The prefix of pod labels (`--pod-label-prefix`). `None` is detected.
    pub prefix: Option<String>,
    /// The label with the namespace (`--pod-namespace-label`). `None` is detected.
    pub namespace: Option<String>,
    /// The label with the pod's name (`--pod-name-label`). `None` is detected.
    pub pod: Option<String>,
}

pub trait VpaMatcher: fmt::Debug + Send + Sync {
    /// Returns the VPAs that select a pod of this namespace with these labels. In label names of series, underscores replace
    /// dots and slashes.
    fn matching_vpas(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectKey>;
}

/// Which VPAs select which pods.
#[derive(Clone, Debug)]
pub struct PodOwnership {
    /// The VPAs that select each pod whose labels are known, by namespace and name.
    pods: HashMap<Box<str>, HashMap<Box<str>, LatestMatch>>,
    /// The detected names: namespace label, pod label, and prefix of pod labels.
    pub(super) names: [String; 3],
}

impl PodLabelQuery {
    /// Queries which VPAs select which pods, within a time until now. `None` if the result has no pod labels.
    pub(super) async fn query_ownership(
        &self,
        client: &PrometheusClient,
        schema: &Schema,
        namespaces: &[&str],
        (within, now): (Duration, Time),
        selects: &dyn VpaMatcher,
    ) -> Result<Option<PodOwnership>, QueryError> {
        let namespace_matcher = self.namespace_matcher(schema, namespaces);
        let matchers: LabelMatchers =
            schema.matchers.iter().cloned().chain(namespace_matcher).collect();
        let query = Query::from_user(&self.query, &matchers)
            .map_err(|invalid| QueryError::BadQuery(invalid.to_string()))?;
        let full_query = query.last_within(within);
        let namespaces = namespaces.iter().copied().collect();
        let mut collector = PodLabelCollector {
            labels: self,
            namespaces,
            selects,
            current: None,
            pods: HashMap::new(),
            names: None,
        };
        client.instant(&full_query, now, &mut collector).await?;
        let mut pods = std::mem::take(&mut collector.pods);
        let names = collector.names.take();
        if full_query != query {
            // The samples of the full query all have the current time, so query the current series again to prefer them.
            client.instant(&query, now, &mut collector).await?;
            for (namespace, present) in collector.pods {
                pods.entry(namespace).or_default().extend(present);
            }
        }
        let count: usize = pods.values().map(HashMap::len).sum();
        tracing::debug!(query = %full_query, pods = count, "read labels of pods");
        Ok(names.map(|names| PodOwnership { pods, names }))
    }

    /// A matcher for these namespaces, if the query is a plain selector and the namespace label is known. A matcher for a
    /// label that does not exist would return nothing.
    fn namespace_matcher(&self, schema: &Schema, namespaces: &[&str]) -> Option<LabelMatcher> {
        if namespaces.len() > MAX_NAMESPACES {
            return None;
        }
        let text = self.query.trim();
        let selector = text.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let selector = selector.map_or(text, |(selector, _)| selector);
        Query::from_user(selector, &LabelMatchers::default()).ok().filter(Query::is_selector)?;
        let kube_state_label = || {
            let states =
                schema.kube_state_metrics.as_ref().filter(|_| text.starts_with("kube_pod_"))?;
            Some(&states.namespace)
        };
        let label = self.namespace.as_ref().or_else(kube_state_label)?;
        let one_of = Pattern::any_literal(namespaces.iter().copied());
        Some(LabelMatcher::new(label, MatchOperator::Matches, one_of.as_str()))
    }

    /// Parses the pod and its labels from a series, with the names of the labels. `None` without any pod label: some
    /// exporters must be configured to export them.
    fn parse_series(&self, labels: Labels<'_>) -> Option<(CurrentPod, [&str; 3])> {
        let (namespace_label, namespace) = find(labels, self.namespace.as_deref(), &NAMESPACES)?;
        let (pod_label, pod) = find(labels, self.pod.as_deref(), &PODS)?;
        let is_used = |prefix: &&str| labels.iter().any(|(name, _)| name.starts_with(*prefix));
        let prefix = match &self.prefix {
            Some(prefix) => prefix.as_str(),
            None => PREFIXES.into_iter().find(is_used)?,
        };
        let pod_labels = |(name, value): (&str, &str)| {
            Some((name.strip_prefix(prefix)?.to_owned(), value.to_owned()))
        };
        let pod_labels: BTreeMap<_, _> = labels.iter().filter_map(pod_labels).collect();
        let (namespace, pod) = (namespace.into(), pod.into());
        let current = CurrentPod { namespace, pod, labels: pod_labels, last: None };
        Some((current, [namespace_label, pod_label, prefix]))
            .filter(|(one, _)| !one.labels.is_empty())
    }
}

/// The first of these labels that the series has, with its value; or only the configured one.
fn find<'name, 'value>(
    labels: Labels<'value>,
    set: Option<&'name str>,
    usual: &[&'name str],
) -> Option<(&'name str, &'value str)> {
    let some = |label: &'name str| {
        let value = labels.get(label).filter(|value| !value.is_empty())?;
        Some((label, value))
    };
    match set {
        Some(label) => some(label),
        None => usual.iter().find_map(|label| some(label)),
    }
}

/// Assigns the pods of a namespace by their labels, if the namespace has any.
pub(super) fn assign_labelled_pods(batch: &mut WorkloadBatch, ownership: &PodOwnership) {
    let Some(pods) = ownership.pods.get(&*batch.namespace) else { return };
    let claimed = batch.match_pods(pods.iter().map(|(pod, last)| (&**pod, &*last.vpas)));
    batch.labelled = Some(claimed.into());
}

struct PodLabelCollector<'a> {
    labels: &'a PodLabelQuery,
    namespaces: HashSet<&'a str>,
    selects: &'a dyn VpaMatcher,
    current: Option<CurrentPod>,
    pods: HashMap<Box<str>, HashMap<Box<str>, LatestMatch>>,
    /// The label names of the first series.
    names: Option<[String; 3]>,
}

struct CurrentPod {
    namespace: Box<str>,
    pod: Box<str>,
    labels: BTreeMap<String, String>,
    last: Option<Time>,
}

#[derive(Clone, Debug)]
struct LatestMatch {
    at: Time,
    vpas: Vec<ObjectKey>,
}

impl SeriesVisitor for PodLabelCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let parsed = self.labels.parse_series(labels);
        let in_scope = parsed.filter(|(one, _)| self.namespaces.contains(&*one.namespace));
        let Some((current, names)) = in_scope else { return Interest::LabelsOnly };
        self.names.get_or_insert_with(|| names.map(str::to_owned));
        self.current = Some(current);
        Interest::Points
    }

    fn point(&mut self, at: Time, _: f64) {
        if let Some(current) = &mut self.current {
            current.last = Some(at);
        }
    }

    fn end(&mut self) {
        let Some(CurrentPod { namespace, pod, labels, last: Some(at) }) = self.current.take()
        else {
            return;
        };
        let pods = self.pods.entry(namespace.clone()).or_default();
        if pods.get(&pod).is_some_and(|last| last.at >= at) {
            return;
        }
        pods.insert(pod, LatestMatch { at, vpas: self.selects.matching_vpas(&namespace, &labels) });
    }

    fn discard(&mut self) {
        self.current = None;
        self.pods.clear();
        self.names = None;
    }
}
