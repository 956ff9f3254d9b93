//! The samples of the pods of one batch: the last points of each container, and the usage that follows from them.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    decode::{Interest, Labels, SeriesVisitor},
    schema::container_name,
};

use super::series_tail::SeriesTail;
use crate::cluster::container_usage::pod_metrics::{ContainerUsage, PodUsage, UsageReport};
use plimsoll_core::{
    recommender::estimate::Resource,
    types::units::{Bytes, MilliCpu},
};

#[derive(Debug, Default)]
pub(super) struct PodSamples(BTreeMap<Box<str>, BTreeMap<Box<str>, Vec<Container>>>);

/// A container, and the last points of its preferred series of each resource. A series that had only invalid points has
/// none.
#[derive(Debug)]
struct Container {
    name: Box<str>,
    cpu: SeriesTail,
    memory: SeriesTail,
}

impl PodSamples {
    /// The usage of each pod. A container has ended if its last sample is at least `max_age` older than the pod's latest.
    pub(super) fn into_usages(self, max_age: Duration) -> impl Iterator<Item = PodUsage> {
        self.0.into_iter().flat_map(move |(namespace, pods)| {
            pods.into_iter().filter_map(move |(pod, containers)| {
                let usage = PodUsage {
                    namespace: namespace.clone(),
                    pod,
                    at: latest_sample_time(&containers)?,
                    containers: Vec::with_capacity(containers.len()),
                    is_incomplete: false,
                };
                with_container_usage(usage, containers, max_age)
            })
        })
    }

    fn container(&mut self, namespace: &str, pod: &str, name: &str) -> &mut Container {
        let pods = self.0.entry(namespace.into()).or_default();
        let containers = pods.entry(pod.into()).or_default();
        let at =
            containers.iter().position(|container| *container.name == *name).unwrap_or_else(|| {
                let (cpu, memory) = (SeriesTail::default(), SeriesTail::default());
                containers.push(Container { name: name.into(), cpu, memory });
                containers.len() - 1
            });
        &mut containers[at]
    }

    fn clear(&mut self, resource: Resource) {
        for container in self.0.values_mut().flat_map(BTreeMap::values_mut).flatten() {
            *container.tail(resource) = SeriesTail::default();
        }
    }
}

impl Container {
    fn tail(&mut self, resource: Resource) -> &mut SeriesTail {
        match resource {
            Resource::Cpu => &mut self.cpu,
            Resource::Memory => &mut self.memory,
        }
    }
}

/// The timestamp of a pod's usage: of its latest memory sample, or of its latest CPU sample if it has no memory.
fn latest_sample_time(containers: &[Container]) -> Option<Time> {
    let memory = containers.iter().filter_map(|container| container.memory.last_time()).max();
    memory.or_else(|| containers.iter().filter_map(|container| container.cpu.last_time()).max())
}

/// Adds the usage of the containers. `None` if no container has any.
fn with_container_usage(
    mut usage: PodUsage,
    containers: Vec<Container>,
    max_age: Duration,
) -> Option<PodUsage> {
    let max_age = i64::try_from(max_age.as_nanos()).unwrap_or(i64::MAX).max(1);
    let at = usage.at;
    let is_current = |time: &Time| at.nanos_since(*time) < max_age;
    for Container { name, cpu, memory } in containers {
        let last_time = cpu.last_time().max(memory.last_time());
        if last_time.is_some_and(|time| !is_current(&time)) {
            continue;
        }
        let memory = memory.last().filter(|(at, _)| is_current(at));
        let rate = cpu.rate(memory.map(|(at, _)| at)).filter(|(at, _)| is_current(at));
        let cpu = rate.map(|(_, cores)| MilliCpu::from_measured(cores));
        let memory = memory.map(|(_, bytes)| Bytes::from_f64(bytes));
        usage.is_incomplete |= cpu.is_none() || memory.is_none();
        if cpu.is_some() || memory.is_some() {
            usage.containers.push(ContainerUsage { name, cpu, memory });
        }
    }
    usage.containers.sort_by(|a, b| a.name.cmp(&b.name));
    (!usage.containers.is_empty()).then_some(usage)
}

pub(super) struct SampleCollector<'a> {
    samples: &'a mut PodSamples,
    report: &'a mut UsageReport,
    /// Mark of the report before this query.
    malformed_before: (u64, usize),
    resource: Resource,
    labels: [&'a str; 3],
    oldest: Time,
    current: CurrentSeries,
}

#[derive(Debug, Default)]
struct CurrentSeries {
    names: [String; 3],
    tail: SeriesTail,
    invalid: Option<(Time, f64)>,
}

impl<'a> SampleCollector<'a> {
    /// Identifies containers by these labels, and skips points older than `oldest`.
    pub(super) fn new(
        samples: &'a mut PodSamples,
        report: &'a mut UsageReport,
        resource: Resource,
        labels: [&'a str; 3],
        oldest: Time,
    ) -> Self {
        let (malformed_before, current) = (report.malformed_mark(), CurrentSeries::default());
        Self { samples, report, malformed_before, resource, labels, oldest, current }
    }

    pub(super) fn reset(&mut self) {
        self.samples.clear(self.resource);
        self.report.rewind_malformed(self.malformed_before);
    }
}

impl SeriesVisitor for SampleCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let [namespace, pod, container] =
            self.labels.map(|label| labels.get(label).unwrap_or_default());
        let names = [namespace, pod, container_name(container)];
        for (stored, name) in self.current.names.iter_mut().zip(names) {
            stored.clear();
            stored.push_str(name);
        }
        (self.current.tail, self.current.invalid) = (SeriesTail::default(), None);
        // The series of a pod sandbox is not one of a container.
        let is_container = names.iter().all(|name| !name.is_empty()) && names[2] != "POD";
        if is_container { Interest::Points } else { Interest::LabelsOnly }
    }

    fn point(&mut self, at: Time, value: f64) {
        if at < self.oldest {
            return;
        }
        if value.is_finite() && value >= 0.0 {
            self.current.tail.push(at, value);
        } else {
            self.current.invalid = Some((at, value));
        }
    }

    fn end(&mut self) {
        let CurrentSeries { names: [namespace, pod, name], tail, invalid } = &self.current;
        if tail.last().is_none() && invalid.is_none() {
            return;
        }
        let resource = self.resource;
        if let Some((at, value)) = invalid {
            let resource_name = match resource {
                Resource::Cpu => "CPU",
                Resource::Memory => "memory",
            };
            let describe = || {
                format!(
                    "{namespace}/{pod}/{name}: {resource_name} of {value} at {at}: not a valid amount"
                )
            };
            self.report.record_malformed(describe);
        }
        let stored = self.samples.container(namespace, pod, name).tail(resource);
        if tail.is_preferred_over(stored) {
            *stored = *tail;
        }
    }

    fn discard(&mut self) {
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, stream};
    use plimsoll_storage::prometheus::decode::{
        DecodeError, ResponseKind, ResponseSummary, decode_response,
    };

    use super::*;

    fn decode(
        answer: String,
        collector: &mut SampleCollector<'_>,
    ) -> Result<ResponseSummary, DecodeError> {
        let pieces = stream::iter([Ok(answer.into())]);
        let kind = ResponseKind::QueryResult;
        let decoded = decode_response(pieces, kind, collector, |_, _| Ok(()));
        decoded.now_or_never().expect("it has arrived")
    }

    const OVER: Duration = Duration::from_secs(54);

    /// Series of a pod's container, with a label that distinguishes copies.
    type TestSeries<'a> = (&'a str, &'a str, &'a str, &'a [(i64, &'a str)]);

    fn take(
        gathered: &mut PodSamples,
        resource: Resource,
        series: &[TestSeries<'_>],
    ) -> UsageReport {
        let series: Vec<String> = series
            .iter()
            .map(|(pod, container, copy, points)| {
                let points: Vec<_> =
                    points.iter().map(|(at, value)| format!(r#"[{at},"{value}"]"#)).collect();
                format!(
                    r#"{{"metric":{{"namespace":"shop","pod":"{pod}","container":"{container}","copy":"{copy}"}},
                        "values":[{}]}}"#,
                    points.join(",")
                )
            })
            .collect();
        let answer = format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[{}]}}}}"#,
            series.join(",")
        );
        let mut report = UsageReport::default();
        let labels = ["namespace", "pod", "container"];
        let oldest = Time::from_secs(1000);
        let mut taker = SampleCollector::new(gathered, &mut report, resource, labels, oldest);
        decode(answer, &mut taker).expect("all of it");
        report
    }

    type Found = (String, i64, Vec<(String, Option<i64>, Option<i64>)>, bool);

    fn found(gathered: PodSamples) -> Vec<Found> {
        let amounts = |used: ContainerUsage| {
            (used.name.into(), used.cpu.map(|cpu| cpu.0), used.memory.map(|of| of.0))
        };
        let of = |pod: PodUsage| {
            let containers = pod.containers.into_iter().map(amounts).collect();
            (pod.pod.into(), pod.at.as_secs(), containers, pod.is_incomplete)
        };
        gathered.into_usages(OVER).map(of).collect()
    }

    fn both(memory: &[TestSeries<'_>], cpu: &[TestSeries<'_>]) -> (Vec<Found>, u64) {
        let mut gathered = PodSamples::default();
        let memory = take(&mut gathered, Resource::Memory, memory);
        let cpu = take(&mut gathered, Resource::Cpu, cpu);
        (found(gathered), memory.malformed + cpu.malformed)
    }

    #[test]
    fn the_usage_of_a_pod_has_the_time_of_its_latest_memory_sample() {
        let (found, malformed) = both(
            &[
                ("b", "main", "", &[(1000, "7"), (1060, "100")]),
                ("a", "side", "", &[(1061, "50")]),
                ("a", "main", "", &[(1065, "100")]),
            ],
            &[
                ("a", "main", "", &[(1005, "10"), (1065, "25")]),
                ("a", "side", "", &[(1001, "0"), (1061, "0")]),
                ("b", "main", "", &[(1000, "0"), (1060, "6"), (1120, "600")]),
            ],
        );
        let main = |cpu| ("main".to_owned(), Some(cpu), Some(100));
        let side = ("side".to_owned(), Some(0), Some(50));
        let a = ("a".to_owned(), 1065, vec![main(250), side], false);
        // A sample that arrived during the second query goes with the next memory sample.
        let b = ("b".to_owned(), 1060, vec![main(100)], false);
        assert_eq!((found, malformed), (vec![a, b], 0));
    }

    #[test]
    fn with_samples_of_one_resource_the_other_is_unknown() {
        let memory: &[TestSeries<'_>] = &[("a", "main", "", &[(1060, "100")])];
        let once: &[TestSeries<'_>] = &[("a", "main", "", &[(1060, "25")])];
        let cpu: &[TestSeries<'_>] = &[("a", "main", "", &[(1000, "10"), (1060, "25")])];
        let pod = |cpu, memory| {
            vec![("a".to_owned(), 1060, vec![("main".to_owned(), cpu, memory)], true)]
        };
        assert_eq!(both(memory, &[]).0, pod(None, Some(100)));
        assert_eq!(both(memory, once).0, pod(None, Some(100)), "one sample has no rate");
        assert_eq!(both(&[], cpu).0, pod(Some(250), None));
        assert_eq!(both(&[], once).0, []);
    }

    #[test]
    fn an_invalid_amount_is_skipped_and_named() {
        let points: &[(i64, &str)] = &[(1010, "10"), (1020, "11"), (1030, "NaN"), (1040, "-1")];
        let mut gathered = PodSamples::default();
        let series: &[TestSeries<'_>] =
            &[("a", "main", "", points), ("b", "main", "", &points[2..])];
        let report = take(&mut gathered, Resource::Memory, series);
        assert_eq!(report.malformed, 2);
        let message = "shop/a/main: memory of -1 at 1970-01-01T00:17:20Z: not a valid amount";
        assert_eq!(report.malformed_examples[0], message);
        take(&mut gathered, Resource::Cpu, &[("a", "main", "", points)]);
        let of_a = ("main".to_owned(), Some(100), Some(11));
        assert_eq!(found(gathered), [("a".to_owned(), 1020, vec![of_a], false)]);
        // A pod that has another container is incomplete.
        let memory: &[TestSeries<'_>] =
            &[("a", "main", "", &[(1060, "+Inf")]), ("a", "side", "", &[(1060, "5")])];
        let cpu: &[TestSeries<'_>] = &[("a", "side", "", &[(1000, "0"), (1060, "6")])];
        let side = ("side".to_owned(), Some(100), Some(5));
        assert_eq!(both(memory, cpu), (vec![("a".to_owned(), 1060, vec![side], true)], 1));
    }

    #[test]
    fn stale_and_ended_series_are_excluded() {
        let memory: &[TestSeries<'_>] = &[
            ("stale", "main", "", &[(940, "1"), (999, "2")]),
            ("a", "main", "", &[(1060, "100")]),
            ("a", "setup", "", &[(1006, "100")]),
        ];
        let cpu: &[TestSeries<'_>] = &[
            ("stale", "main", "", &[(940, "1"), (999, "2")]),
            ("a", "main", "", &[(1001, "0"), (1060, "59")]),
            ("a", "setup", "", &[(1000, "0"), (1006, "6")]),
        ];
        let main = ("main".to_owned(), Some(1000), Some(100));
        assert_eq!(both(memory, cpu).0, [("a".to_owned(), 1060, vec![main], false)]);
    }

    #[test]
    fn the_freshest_of_several_copies_of_a_series_counts() {
        let memory: &[TestSeries<'_>] = &[
            ("a", "main", "one", &[(1000, "1"), (1060, "2")]),
            ("a", "main", "two", &[(1005, "3"), (1065, "4")]),
            ("a", "main", "three", &[(1050, "5")]),
        ];
        let cpu: &[TestSeries<'_>] = &[
            ("a", "main", "two", &[(1005, "0"), (1065, "6")]),
            ("a", "main", "one", &[(1000, "0"), (1060, "60")]),
        ];
        let main = ("main".to_owned(), Some(100), Some(4));
        assert_eq!(both(memory, cpu).0, [("a".to_owned(), 1065, vec![main], false)]);
    }

    #[test]
    fn a_partial_response_is_discarded() {
        let mut gathered = PodSamples::default();
        take(&mut gathered, Resource::Memory, &[("a", "main", "", &[(1060, "100")])]);
        let mut report = UsageReport::default();
        let labels = ["namespace", "pod", "container"];
        let oldest = Time::from_secs(1000);
        let mut taker =
            SampleCollector::new(&mut gathered, &mut report, Resource::Cpu, labels, oldest);
        let half = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"namespace":"shop","pod":"a","container":"main"},"values":[[1000,"1"],[1060,"2"]]},
            {"metric":{"namespace":"shop","pod":"b","container":"main"},"values":[[1000,"NaN"]]},"#;
        let truncated = decode(half.to_owned(), &mut taker);
        assert!(matches!(truncated, Err(DecodeError::Truncated { .. })));
        taker.discard();
        assert_eq!(report, UsageReport::default());
        let main = ("main".to_owned(), None, Some(100));
        assert_eq!(found(gathered), [("a".to_owned(), 1060, vec![main], true)]);
    }
}
