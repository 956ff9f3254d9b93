//! Whose pods there were, as labels of pods tell: for whoever names a query that has them (`--metric-for-pod-labels`).
//!
//! What is asked may answer a vector, one point of each series, or a matrix of all their points. A query that is one
//! selector is asked for the last sample of each series within the history, so that deleted pods are told too, and then
//! for what is there now. Of a pod with several series the one that was there last counts.

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
    schema::Schema,
    selector::{LabelMatcher, LabelMatchers, MatchOperator, Pattern},
};
use plimsoll_core::types::{ObjectKey, Time};

/// What labels of pods begin with, where it was not said.
const PREFIXES: [&str; 2] = ["label_", "pod_label_"];
/// Labels with the namespace, where it was not said. A scrape that has one of its own moves the pod's aside.
const NAMESPACES: [&str; 3] = ["exported_namespace", "kubernetes_namespace", "namespace"];
/// Labels with the pod's name, where it was not said.
const PODS: [&str; 4] = ["exported_pod", "kubernetes_pod_name", "pod", "pod_name"];
/// Of more namespaces than these, all are asked for: servers limit the length of a query.
const MOST_NAMESPACES: usize = 50;

/// Where the labels of pods are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodLabelQuery {
    /// The query (`--metric-for-pod-labels`).
    pub query: String,
    /// What the names of their labels begin with (`--pod-label-prefix`). `None` is found out.
    pub prefix: Option<String>,
    /// The label with the namespace (`--pod-namespace-label`). `None` is found out.
    pub namespace: Option<String>,
    /// The label with the pod's name (`--pod-name-label`). `None` is found out.
    pub pod: Option<String>,
}

/// Knows which VPAs select pods.
pub trait VpaMatcher: fmt::Debug + Send + Sync {
    /// Those that select a pod of this namespace with these labels. Series cannot have all names that labels of pods may
    /// have: what stands for a dot or a slash is an underscore.
    fn matching_vpas(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<ObjectKey>;
}

/// Whose pods are whose.
#[derive(Clone, Debug)]
pub struct PodOwnership {
    /// The VPAs that select each pod whose labels are known, by namespace and name.
    pods: HashMap<Box<str>, HashMap<Box<str>, Vec<ObjectKey>>>,
    /// What told it: the label of namespaces, that of pods, and what those of their labels begin with.
    pub(super) names: [String; 3],
}

/// What is asked, and within which time before now.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnershipQuery<'a> {
    pub(super) schema: &'a Schema,
    pub(super) namespaces: &'a [&'a str],
    pub(super) within: Duration,
    pub(super) now: Time,
}

impl PodLabelQuery {
    /// Asks which of these VPAs select which pods. `None` where no pod's labels are told.
    pub(super) async fn query_ownership(
        &self,
        client: &PrometheusClient,
        question: OwnershipQuery<'_>,
        selects: &dyn VpaMatcher,
    ) -> Result<Option<PodOwnership>, QueryError> {
        let OwnershipQuery { schema, namespaces, within, now } = question;
        let own = self.namespace_matcher(schema, namespaces);
        let matchers: LabelMatchers = schema.matchers.iter().cloned().chain(own).collect();
        let query = Query::from_user(&self.query, &matchers)
            .map_err(|no_query| QueryError::BadQuery(no_query.to_string()))?;
        let all = query.last_within(within);
        let namespaces = namespaces.iter().copied().collect();
        let (current, pods, names) = (None, HashMap::new(), None);
        let mut told =
            PodLabelCollector { labels: self, namespaces, selects, current, pods, names };
        client.instant(&all, now, &mut told).await?;
        let mut pods = std::mem::take(&mut told.pods);
        let names = told.names.take();
        if all != query {
            // Then all samples come as if they were of now.
            client.instant(&query, now, &mut told).await?;
            for (namespace, present) in told.pods {
                pods.entry(namespace).or_default().extend(present);
            }
        }
        let count: usize = pods.values().map(HashMap::len).sum();
        tracing::debug!(query = %all, pods = count, "labels of pods were read");
        let of_pods = |pods: HashMap<Box<str>, LatestMatch>| {
            pods.into_iter().map(|(pod, last)| (pod, last.vpas)).collect()
        };
        let pods = pods.into_iter().map(|(namespace, pods)| (namespace, of_pods(pods)));
        Ok(names.map(|names| PodOwnership { pods: pods.collect(), names }))
    }

    /// What restricts the query to these namespaces, where it is one selector and it is known which label has them: of
    /// what is not there nothing would come.
    fn namespace_matcher(&self, schema: &Schema, namespaces: &[&str]) -> Option<LabelMatcher> {
        if namespaces.len() > MOST_NAMESPACES {
            return None;
        }
        let text = self.query.trim();
        let selector = text.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let selector = selector.map_or(text, |(selector, _)| selector);
        Query::from_user(selector, &LabelMatchers::default()).ok().filter(Query::is_selector)?;
        let of_states = || {
            let states =
                schema.kube_state_metrics.as_ref().filter(|_| text.starts_with("kube_pod_"))?;
            Some(&states.namespace)
        };
        let label = self.namespace.as_ref().or_else(of_states)?;
        let one_of = Pattern::any_literal(namespaces.iter().copied());
        Some(LabelMatcher::new(label, MatchOperator::Matches, one_of.as_str()))
    }

    /// What a series says of a pod, and the names by which it does. One without any label of its pod says nothing: some
    /// exporters have to be told which labels to show.
    fn parse_series(&self, labels: Labels<'_>) -> Option<(CurrentPod, [&str; 3])> {
        let (of_namespace, namespace) = find(labels, self.namespace.as_deref(), &NAMESPACES)?;
        let (of_pod, pod) = find(labels, self.pod.as_deref(), &PODS)?;
        let begins = |prefix: &&str| labels.iter().any(|(name, _)| name.starts_with(*prefix));
        let prefix = match &self.prefix {
            Some(prefix) => prefix.as_str(),
            None => PREFIXES.into_iter().find(begins)?,
        };
        let own = |(name, value): (&str, &str)| {
            Some((name.strip_prefix(prefix)?.to_owned(), value.to_owned()))
        };
        let own: BTreeMap<_, _> = labels.iter().filter_map(own).collect();
        let (namespace, pod) = (namespace.into(), pod.into());
        let current = CurrentPod { namespace, pod, labels: own, last: None };
        Some((current, [of_namespace, of_pod, prefix])).filter(|(one, _)| !one.labels.is_empty())
    }
}

/// The first of these labels that a series has, with its value; or the one that was set, and no other.
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

/// Says whose pods there were, where that is known. Of a namespace without any labels of pods it is not.
pub(super) fn assign_labelled_pods(batch: &mut WorkloadBatch, whose: &PodOwnership) {
    let Some(pods) = whose.pods.get(&*batch.namespace) else { return };
    let claimed = batch.match_pods(pods.iter().map(|(pod, vpas)| (&**pod, &**vpas)));
    batch.labelled = Some(claimed.into());
}

/// Takes series with labels of pods.
struct PodLabelCollector<'a> {
    labels: &'a PodLabelQuery,
    namespaces: HashSet<&'a str>,
    selects: &'a dyn VpaMatcher,
    current: Option<CurrentPod>,
    pods: HashMap<Box<str>, HashMap<Box<str>, LatestMatch>>,
    /// The names by which the first of them is told.
    names: Option<[String; 3]>,
}

/// The series at hand.
struct CurrentPod {
    namespace: Box<str>,
    pod: Box<str>,
    labels: BTreeMap<String, String>,
    last: Option<Time>,
}

/// What was said last of a pod.
struct LatestMatch {
    at: Time,
    vpas: Vec<ObjectKey>,
}

impl SeriesVisitor for PodLabelCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let read = self.labels.parse_series(labels);
        let own = read.filter(|(one, _)| self.namespaces.contains(&*one.namespace));
        let Some((current, names)) = own else { return Interest::LabelsOnly };
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
