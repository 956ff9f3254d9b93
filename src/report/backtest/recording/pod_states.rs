//! Reads what pods requested over time, when they started, and in which minutes they were throttled.
//!
//! Requests seldom change, so only the changes are queried: those that are not equal to five minutes before.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use plimsoll_core::{
    backtest::recording::{CPU_STEP_SECONDS, Evaluation, MEMORY_STEP_SECONDS, RecordedStep},
    rightsizing::survey::Amounts,
    types::{
        ObjectKey, Time,
        units::{Bytes, MilliCpu},
    },
};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryRange},
    decode::{Interest, Labels, SeriesVisitor},
    history::PrometheusHistory,
    promql::{Query, format_duration},
    query_error::QueryError,
    schema::{KubeStateMetrics, Schema, THROTTLED_PERIODS_METRIC, WithOrigin, container_name},
    selector::{LabelMatchers, Pattern, Selector},
};

use super::{sink::PartialWorkload, steps_between};

const REQUESTS: &str = "kube_pod_container_resource_requests";
const LIMITS: &str = "kube_pod_container_resource_limits";
const START: &str = "kube_pod_start_time";
const PERIODS: &str = "container_cpu_cfs_periods_total";

/// A minute counts as throttled if this share of its scheduling periods was. With fewer, use is demand but for bursts
/// that are shorter than a minute and were made up for within it.
const THROTTLED_SHARE: &str = "0.1";
/// The longest pattern of pod names, and the most of them: with more, all pods of the namespace are queried.
const LONGEST_PATTERN: usize = 4096;
const MAX_PATTERNS: usize = 8;
/// The maximum of values of one kind in a namespace.
const MAX_VALUES: usize = 1 << 20;

/// A container of a pod: namespace, pod, container.
type ContainerId = (Arc<str>, Arc<str>, Arc<str>);

/// What is known about pods besides their usage.
#[derive(Debug, Default)]
pub(super) struct PodStates {
    /// Amounts of containers over time.
    amounts: HashMap<ContainerId, BTreeMap<Time, [Amounts; 2]>>,
    /// When pods started, by namespace and name.
    starts: HashMap<(Arc<str>, Arc<str>), Time>,
    /// Throttled minutes, ascending.
    throttled: HashMap<ContainerId, Vec<u32>>,
}

/// A value of a series.
#[derive(Clone, Debug, PartialEq)]
struct Value {
    pod: Arc<str>,
    container: Arc<str>,
    resource: Box<str>,
    at: Time,
    number: f64,
}

impl PodStates {
    /// Reads the states of the pods of workloads.
    pub(super) async fn read(
        history: &PrometheusHistory,
        workloads: &HashMap<ObjectKey, PartialWorkload>,
        evaluation: Evaluation,
    ) -> Result<Self, QueryError> {
        let mut pods: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        for (key, workload) in workloads.iter().filter(|(_, of)| !of.pods.is_empty()) {
            let names = pods.entry(Arc::clone(&key.namespace)).or_default();
            names.extend(workload.pods.keys().map(Arc::clone));
        }
        let namespaces: Vec<&str> = pods.keys().map(|name| &**name).collect();
        let mut states = Self::default();
        if namespaces.is_empty() {
            return Ok(states);
        }
        // It was detected when the usage was read.
        let schema = history.schema(&namespaces).await;
        let schema = schema.map_err(|error| QueryError::BadQuery(error.to_string()))?;
        let client = history.client.clone().with_dialect(schema.dialect).rejecting_partial();
        for (namespace, names) in &pods {
            let reader =
                StateReader { client: &client, schema: &schema, namespace, names, evaluation };
            for pattern in patterns(names) {
                reader.read(&pattern, &mut states).await?;
            }
        }
        Ok(states)
    }

    /// When a pod started, if known.
    pub(super) fn start(&self, namespace: &Arc<str>, pod: &Arc<str>) -> Option<Time> {
        self.starts.get(&(Arc::clone(namespace), Arc::clone(pod))).copied()
    }

    /// The throttled minutes of a container of a pod.
    pub(super) fn throttled_minutes(
        &self,
        namespace: &Arc<str>,
        pod: &Arc<str>,
        container: &Arc<str>,
    ) -> Vec<u32> {
        let id = (Arc::clone(namespace), Arc::clone(pod), Arc::clone(container));
        self.throttled.get(&id).cloned().unwrap_or_default()
    }

    /// Requests and limits of a container as steps: the amounts of the pod that changed last, which is usually the one
    /// that was born last. The first ones hold from the beginning.
    pub(super) fn steps(
        &self,
        namespace: &Arc<str>,
        pods: &[&str],
        container: &Arc<str>,
        from: Time,
    ) -> [Vec<RecordedStep>; 2] {
        let mut changes: Vec<(Time, &str, [Amounts; 2])> = Vec::new();
        for pod in pods {
            let id = (Arc::clone(namespace), Arc::from(*pod), Arc::clone(container));
            let known = self.amounts.get(&id).into_iter().flatten();
            changes.extend(known.map(|(at, amounts)| (*at, *pod, *amounts)));
        }
        changes.sort_by_key(|(at, pod, _)| (*at, *pod));
        let mut steps: [Vec<RecordedStep>; 2] = [Vec::new(), Vec::new()];
        for (index, (at, _, amounts)) in changes.into_iter().enumerate() {
            let at = if index == 0 { from } else { at };
            for (steps, amounts) in steps.iter_mut().zip(amounts) {
                match steps.last_mut() {
                    Some(last) if last.amounts == amounts => {}
                    Some(last) if last.at == at => last.amounts = amounts,
                    _ => steps.push(RecordedStep { at, amounts }),
                }
            }
        }
        steps
    }

    /// Adds the amounts of one kind: 0 for requests, 1 for limits. Between two changes of one resource the other one stays.
    fn add_amounts(&mut self, namespace: &Arc<str>, values: [Vec<Value>; 2]) {
        let mut by_container: HashMap<ContainerId, Vec<(usize, Value)>> = HashMap::new();
        for (kind, values) in values.into_iter().enumerate() {
            for value in values {
                let id =
                    (Arc::clone(namespace), Arc::clone(&value.pod), Arc::clone(&value.container));
                by_container.entry(id).or_default().push((kind, value));
            }
        }
        for (id, mut values) in by_container {
            values.sort_by_key(|(_, value)| value.at);
            let mut amounts = [Amounts::default(); 2];
            let steps = self.amounts.entry(id).or_default();
            for (kind, value) in values {
                let amounts_of = &mut amounts[kind];
                match &*value.resource {
                    "cpu" => amounts_of.cpu = Some(MilliCpu::from_cores(value.number)),
                    _ => amounts_of.memory = Some(Bytes::from_f64(value.number)),
                }
                steps.insert(value.at, amounts);
            }
        }
    }
}

/// Patterns of pod names that are short enough for a query.
fn patterns(names: &BTreeSet<Arc<str>>) -> Vec<Pattern> {
    let length: usize = names.iter().map(|name| name.len() + 1).sum();
    if length > LONGEST_PATTERN * MAX_PATTERNS {
        return vec![Pattern::regex(".+")];
    }
    let (mut chunks, mut bytes): (Vec<Vec<&str>>, usize) = (Vec::new(), 0);
    for name in names {
        match chunks.last_mut() {
            Some(chunk) if bytes + name.len() < LONGEST_PATTERN => chunk.push(name),
            _ => {
                chunks.push(vec![name]);
                bytes = 0;
            }
        }
        bytes += name.len() + 1;
    }
    chunks.into_iter().map(Pattern::any_literal).collect()
}

/// Reads the states of the pods of a namespace.
struct StateReader<'a> {
    client: &'a PrometheusClient,
    schema: &'a Schema,
    namespace: &'a Arc<str>,
    names: &'a BTreeSet<Arc<str>>,
    evaluation: Evaluation,
}

impl StateReader<'_> {
    async fn read(&self, pods: &Pattern, states: &mut PodStates) -> Result<(), QueryError> {
        if let Some(metrics) = &self.schema.kube_state_metrics {
            let requests = self.changes(metrics, REQUESTS, pods).await?;
            let limits = self.changes(metrics, LIMITS, pods).await?;
            states.add_amounts(self.namespace, [requests, limits]);
            for value in self.starts(metrics, pods).await? {
                let start = Time::from_secs(value.number as i64);
                states.starts.insert((Arc::clone(self.namespace), value.pod), start);
            }
        }
        let from = self.evaluation.warm_up_from;
        for value in self.throttled(pods).await? {
            // As the column of CPU: the minute that ends then.
            let minute = steps_between(from, value.at, CPU_STEP_SECONDS);
            let id = (Arc::clone(self.namespace), value.pod, value.container);
            let minutes = states.throttled.entry(id).or_default();
            let minute = u32::try_from(minute).unwrap_or(u32::MAX);
            if minutes.last() != Some(&minute) {
                minutes.push(minute);
            }
        }
        Ok(())
    }

    /// The amounts at the beginning, and each that differs from the one before.
    async fn changes(
        &self,
        metrics: &KubeStateMetrics,
        family: &str,
        pods: &Pattern,
    ) -> Result<Vec<Value>, QueryError> {
        let series = metrics
            .selector_in(family, &[self.namespace], &self.schema.matchers)
            .matches(&metrics.pod, pods.clone())
            .matches("resource", Pattern::regex("cpu|memory"));
        let labels = metrics.container_labels().join(",");
        let now = format!("max by ({labels},resource) ({series})");
        let step = Duration::from_secs(MEMORY_STEP_SECONDS.unsigned_abs());
        let offset = format_duration(step);
        let before = format!("max by ({labels},resource) ({series} offset {offset})");
        let changed = query(&format!("{now} unless ({now} == {before})"))?;
        let Evaluation { warm_up_from, until, .. } = self.evaluation;
        let identity = [&*metrics.pod, &*metrics.container];
        let mut collector = ValueCollector::new(self.names, identity);
        self.client.instant(&query(&now)?, warm_up_from, &mut collector).await?;
        let grid = QueryRange::new(warm_up_from.later(step), until, step)?;
        self.client.range(&changed, grid, &mut collector).await?;
        Ok(collector.into_committed())
    }

    async fn starts(
        &self,
        metrics: &KubeStateMetrics,
        pods: &Pattern,
    ) -> Result<Vec<Value>, QueryError> {
        let series = metrics
            .selector_in(START, &[self.namespace], &self.schema.matchers)
            .matches(&metrics.pod, pods.clone());
        let Evaluation { warm_up_from, until, .. } = self.evaluation;
        let nanos = until.nanos_since(warm_up_from).max(1_000_000_000).unsigned_abs();
        let window = format_duration(Duration::from_nanos(nanos));
        let pod = &metrics.pod;
        let latest = query(&format!("max by ({pod}) (max_over_time({series}[{window}]))"))?;
        let mut collector = ValueCollector::new(self.names, [pod, ""]);
        self.client.instant(&latest, until, &mut collector).await?;
        Ok(collector.into_committed())
    }

    async fn throttled(&self, pods: &Pattern) -> Result<Vec<Value>, QueryError> {
        let [_, pod, container] = self.schema.usage.container_labels();
        let series = |metric: &str| -> Selector {
            let metric = WithOrigin::assumed(metric.to_owned());
            let series = self.schema.usage_selector_in(&metric, &[self.namespace]);
            series.matches(pod, pods.clone())
        };
        // It contains two samples, as that of usage does.
        let window = self.schema.scrape_interval.value.longest_gap.saturating_mul(21) / 10;
        let window = format_duration(window);
        let labels = self.schema.usage.container_labels().join(",");
        let share = format!(
            "max by ({labels}) (increase({}[{window}]) / increase({}[{window}])) > {THROTTLED_SHARE}",
            series(THROTTLED_PERIODS_METRIC),
            series(PERIODS),
        );
        let Evaluation { warm_up_from, until, .. } = self.evaluation;
        let step = Duration::from_secs(CPU_STEP_SECONDS.unsigned_abs());
        let grid = QueryRange::new(warm_up_from.later(step), until, step)?;
        let mut collector = ValueCollector::new(self.names, [pod, container]);
        self.client.range(&query(&share)?, grid, &mut collector).await?;
        Ok(collector.into_committed())
    }
}

/// A query of ours. The matchers are in its selectors already.
fn query(text: &str) -> Result<Query, QueryError> {
    Query::from_user(text, &LabelMatchers::default())
        .map_err(|error| QueryError::BadQuery(error.to_string()))
}

/// Collects the values of known pods.
struct ValueCollector<'a> {
    names: &'a BTreeSet<Arc<str>>,
    /// The labels of pods and containers.
    identity: [&'a str; 2],
    current: Option<Value>,
    values: Vec<Value>,
    committed: usize,
}

impl<'a> ValueCollector<'a> {
    fn new(names: &'a BTreeSet<Arc<str>>, identity: [&'a str; 2]) -> Self {
        Self { names, identity, current: None, values: Vec::new(), committed: 0 }
    }

    fn into_committed(mut self) -> Vec<Value> {
        self.values.truncate(self.committed);
        self.values
    }
}

impl SeriesVisitor for ValueCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let value_of = |label: &str| labels.get(label).unwrap_or_default();
        let [pod, container] = self.identity.map(value_of);
        self.current = self.names.get(pod).map(|pod| Value {
            pod: Arc::clone(pod),
            container: container_name(container).into(),
            resource: value_of("resource").into(),
            at: Time::EPOCH,
            number: 0.0,
        });
        if self.current.is_some() { Interest::Points } else { Interest::LabelsOnly }
    }

    fn point(&mut self, at: Time, value: f64) {
        if let Some(current) = self.current.as_ref().filter(|_| value.is_finite()) {
            self.values.push(Value { at, number: value, ..current.clone() });
        }
    }

    fn finish(&mut self) {
        self.committed = self.values.len();
    }

    fn is_full(&self) -> bool {
        self.values.len() > MAX_VALUES
    }

    fn discard(&mut self) {
        self.values.truncate(self.committed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(pod: &str, resource: &str, at: i64, value: f64) -> Value {
        Value {
            pod: pod.into(),
            container: "main".into(),
            resource: resource.into(),
            at: Time::from_secs(at),
            number: value,
        }
    }

    #[test]
    fn steps_are_those_of_the_pod_that_changed_last() {
        let (namespace, container) = ("shop".into(), "main".into());
        let mut states = PodStates::default();
        let gib = f64::from(1 << 30);
        states.add_amounts(
            &namespace,
            [
                vec![
                    value("web-a", "cpu", 100, 0.5),
                    value("web-a", "memory", 100, gib),
                    value("web-b", "cpu", 400, 0.25),
                    value("web-b", "memory", 400, gib),
                    // A resize in place.
                    value("web-b", "cpu", 900, 0.3),
                ],
                vec![value("web-a", "memory", 100, gib)],
            ],
        );
        let pods = ["web-a", "web-b"];
        let [requests, limits] = states.steps(&namespace, &pods, &container, Time::from_secs(0));
        let amounts = |cpu: Option<i64>, memory: bool| Amounts {
            cpu: cpu.map(MilliCpu),
            memory: memory.then_some(Bytes(1 << 30)),
        };
        let step = |at, amounts| RecordedStep { at: Time::from_secs(at), amounts };
        assert_eq!(
            requests,
            [
                step(0, amounts(Some(500), true)),
                step(400, amounts(Some(250), true)),
                step(900, amounts(Some(300), true))
            ]
        );
        // The second generation has no limit.
        assert_eq!(limits, [step(0, amounts(None, true)), step(400, amounts(None, false))]);
        let others = states.steps(&namespace, &["db-0"], &container, Time::from_secs(0));
        assert_eq!(others, [Vec::new(), Vec::new()], "unknown is not zero");
    }

    #[test]
    fn patterns_of_pods_are_short() {
        let names = |count: usize| -> BTreeSet<Arc<str>> {
            (0..count).map(|index| Arc::from(format!("web-7d5f9c4b6d-{index:05}"))).collect()
        };
        assert_eq!(
            patterns(&names(2))[0].as_str(),
            "(?:web-7d5f9c4b6d-00000|web-7d5f9c4b6d-00001)"
        );
        let several = patterns(&names(1_000));
        // The group around the names is not counted.
        let limit = LONGEST_PATTERN + "(?:)".len();
        assert!(several.len() > 4 && several.iter().all(|one| one.as_str().len() <= limit));
        assert_eq!(patterns(&names(10_000)), [Pattern::regex(".+")]);
    }
}
