//! What is known of the pods of one batch: the last points of each of their containers, and what they come to.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    decode::{Interest, Labels, SeriesVisitor},
    schema::container_name,
};

use super::series_tail::SeriesTail;
use crate::cluster::metrics_api::pod_metrics::{ContainerUsage, PodUsage, UsageReport};
use plimsoll_core::{
    recommender::estimate::Resource,
    types::units::{Bytes, MilliCpu},
};

/// The containers of pods, by namespace and pod.
#[derive(Debug, Default)]
pub(super) struct PodSamples(BTreeMap<Box<str>, BTreeMap<Box<str>, Vec<Container>>>);

/// A container that has a series, and the last points of the series that says most of each resource. One that had only
/// points that are no amounts has none.
#[derive(Debug)]
struct Container {
    name: Box<str>,
    cpu: SeriesTail,
    memory: SeriesTail,
}

impl PodSamples {
    /// What each pod uses. A container whose samples all lie `over` or more before the latest one of its pod has ended.
    pub(super) fn into_usages(self, over: Duration) -> impl Iterator<Item = PodUsage> {
        self.0.into_iter().flat_map(move |(namespace, pods)| {
            pods.into_iter().filter_map(move |(pod, containers)| {
                let usage = PodUsage {
                    namespace: namespace.clone(),
                    pod,
                    at: latest_sample_time(&containers)?,
                    containers: Vec::with_capacity(containers.len()),
                    is_incomplete: false,
                };
                with_container_usage(usage, containers, over)
            })
        })
    }

    fn container(&mut self, namespace: &str, pod: &str, name: &str) -> &mut Container {
        let pods = self.0.entry(namespace.into()).or_default();
        let containers = pods.entry(pod.into()).or_default();
        let at = containers.iter().position(|known| *known.name == *name).unwrap_or_else(|| {
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

/// The time that a pod's usage goes by: of its latest memory, or of its latest CPU where there is none.
fn latest_sample_time(containers: &[Container]) -> Option<Time> {
    let memory = containers.iter().filter_map(|container| container.memory.last_time()).max();
    memory.or_else(|| containers.iter().filter_map(|container| container.cpu.last_time()).max())
}

/// A pod with what its containers use. `None` where nothing is known of any.
fn with_container_usage(
    mut usage: PodUsage,
    containers: Vec<Container>,
    over: Duration,
) -> Option<PodUsage> {
    let over = i64::try_from(over.as_nanos()).unwrap_or(i64::MAX).max(1);
    let at = usage.at;
    let is_now = |time: &Time| at.nanos_since(*time) < over;
    for Container { name, cpu, memory } in containers {
        let ended = cpu.last_time().max(memory.last_time());
        if ended.is_some_and(|ended| !is_now(&ended)) {
            continue;
        }
        let memory = memory.last().filter(|(at, _)| is_now(at));
        let rate = cpu.rate(memory.map(|(at, _)| at)).filter(|(at, _)| is_now(at));
        let cpu = rate.map(|(_, cores)| MilliCpu::from_measured(cores));
        let memory = memory.map(|(_, bytes)| Bytes::from_f64(bytes));
        usage.is_incomplete |= cpu.is_none() || memory.is_none();
        if cpu.is_some() || memory.is_some() {
            usage.containers.push(ContainerUsage { name, cpu, memory });
        }
    }
    usage.containers.sort_by(|one, other| one.name.cmp(&other.name));
    (!usage.containers.is_empty()).then_some(usage)
}

/// Takes the series of one resource.
pub(super) struct SampleCollector<'a> {
    samples: &'a mut PodSamples,
    report: &'a mut UsageReport,
    /// What the report had before.
    malformed_before: (u64, usize),
    resource: Resource,
    labels: [&'a str; 3],
    oldest: Time,
    current: CurrentSeries,
}

/// The series at hand.
#[derive(Debug, Default)]
struct CurrentSeries {
    names: [String; 3],
    tail: SeriesTail,
    /// A point of it that is no amount.
    invalid: Option<(Time, f64)>,
}

impl<'a> SampleCollector<'a> {
    /// By these labels, of points that are not older.
    pub(super) fn new(
        gathered: &'a mut PodSamples,
        report: &'a mut UsageReport,
        resource: Resource,
        labels: [&'a str; 3],
        oldest: Time,
    ) -> Self {
        let (before, current) = (report.malformed_mark(), CurrentSeries::default());
        Self {
            samples: gathered,
            report,
            malformed_before: before,
            resource,
            labels,
            oldest,
            current,
        }
    }

    /// Nothing of it counts.
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
        for (kept, name) in self.current.names.iter_mut().zip(names) {
            kept.clear();
            kept.push_str(name);
        }
        (self.current.tail, self.current.invalid) = (SeriesTail::default(), None);
        // A sandbox around containers is none.
        let is_one = names.iter().all(|name| !name.is_empty()) && names[2] != "POD";
        if is_one { Interest::Points } else { Interest::LabelsOnly }
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
        let CurrentSeries { names: [namespace, pod, name], tail, invalid: odd } = &self.current;
        if tail.last().is_none() && odd.is_none() {
            return;
        }
        let resource = self.resource;
        if let Some((at, value)) = odd {
            let word = match resource {
                Resource::Cpu => "CPU",
                Resource::Memory => "memory",
            };
            let what = || format!("{namespace}/{pod}/{name}: {word} of {value} at {at}: no amount");
            self.report.record_malformed(what);
        }
        let known = self.samples.container(namespace, pod, name).tail(resource);
        if tail.is_preferred_over(known) {
            *known = *tail;
        }
    }

    fn discard(&mut self) {
        self.reset();
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_storage::prometheus::decode::ResponseDecoder;

    use super::*;

    const OVER: Duration = Duration::from_secs(54);

    /// Series of a pod's container, with labels that tell copies apart.
    type Told<'a> = (&'a str, &'a str, &'a str, &'a [(i64, &'a str)]);

    fn take(gathered: &mut PodSamples, resource: Resource, series: &[Told<'_>]) -> UsageReport {
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
        let mut reader = ResponseDecoder::new();
        reader.push(answer.as_bytes(), &mut taker).expect("an answer");
        reader.finish(&mut taker).expect("all of it");
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

    fn both(memory: &[Told<'_>], cpu: &[Told<'_>]) -> (Vec<Found>, u64) {
        let mut gathered = PodSamples::default();
        let memory = take(&mut gathered, Resource::Memory, memory);
        let cpu = take(&mut gathered, Resource::Cpu, cpu);
        (found(gathered), memory.malformed + cpu.malformed)
    }

    #[test]
    fn containers_of_a_pod_are_one_usage_at_the_time_of_its_latest_memory() {
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
        // What came while the second question was under way goes with the next memory.
        let b = ("b".to_owned(), 1060, vec![main(100)], false);
        assert_eq!((found, malformed), (vec![a, b], 0));
    }

    #[test]
    fn what_is_there_of_one_resource_only_is_unknown_of_the_other() {
        let memory: &[Told<'_>] = &[("a", "main", "", &[(1060, "100")])];
        let once: &[Told<'_>] = &[("a", "main", "", &[(1060, "25")])];
        let cpu: &[Told<'_>] = &[("a", "main", "", &[(1000, "10"), (1060, "25")])];
        let pod = |cpu, memory| {
            vec![("a".to_owned(), 1060, vec![("main".to_owned(), cpu, memory)], true)]
        };
        assert_eq!(both(memory, &[]).0, pod(None, Some(100)));
        assert_eq!(both(memory, once).0, pod(None, Some(100)), "one sample is no rate");
        assert_eq!(both(&[], cpu).0, pod(Some(250), None));
        assert_eq!(both(&[], once).0, []);
    }

    #[test]
    fn what_is_no_amount_counts_for_nothing_and_is_named() {
        let points: &[(i64, &str)] = &[(1010, "10"), (1020, "11"), (1030, "NaN"), (1040, "-1")];
        let mut gathered = PodSamples::default();
        let series: &[Told<'_>] = &[("a", "main", "", points), ("b", "main", "", &points[2..])];
        let report = take(&mut gathered, Resource::Memory, series);
        assert_eq!(report.malformed, 2);
        let told = "shop/a/main: memory of -1 at 1970-01-01T00:17:20Z: no amount";
        assert_eq!(report.malformed_examples[0], told);
        take(&mut gathered, Resource::Cpu, &[("a", "main", "", points)]);
        let of_a = ("main".to_owned(), Some(100), Some(11));
        assert_eq!(found(gathered), [("a".to_owned(), 1020, vec![of_a], false)]);
        // A pod that has something beside it is incomplete.
        let memory: &[Told<'_>] =
            &[("a", "main", "", &[(1060, "+Inf")]), ("a", "side", "", &[(1060, "5")])];
        let cpu: &[Told<'_>] = &[("a", "side", "", &[(1000, "0"), (1060, "6")])];
        let side = ("side".to_owned(), Some(100), Some(5));
        assert_eq!(both(memory, cpu), (vec![("a".to_owned(), 1060, vec![side], true)], 1));
    }

    #[test]
    fn what_is_stale_or_has_ended_is_not_handed_out() {
        let memory: &[Told<'_>] = &[
            ("stale", "main", "", &[(940, "1"), (999, "2")]),
            ("a", "main", "", &[(1060, "100")]),
            ("a", "setup", "", &[(1006, "100")]),
        ];
        let cpu: &[Told<'_>] = &[
            ("stale", "main", "", &[(940, "1"), (999, "2")]),
            ("a", "main", "", &[(1001, "0"), (1060, "59")]),
            ("a", "setup", "", &[(1000, "0"), (1006, "6")]),
        ];
        let main = ("main".to_owned(), Some(1000), Some(100));
        assert_eq!(both(memory, cpu).0, [("a".to_owned(), 1060, vec![main], false)]);
    }

    #[test]
    fn copies_are_one_and_the_freshest_of_them_counts() {
        let memory: &[Told<'_>] = &[
            ("a", "main", "one", &[(1000, "1"), (1060, "2")]),
            ("a", "main", "two", &[(1005, "3"), (1065, "4")]),
            ("a", "main", "three", &[(1050, "5")]),
        ];
        let cpu: &[Told<'_>] = &[
            ("a", "main", "two", &[(1005, "0"), (1065, "6")]),
            ("a", "main", "one", &[(1000, "0"), (1060, "60")]),
        ];
        let main = ("main".to_owned(), Some(100), Some(4));
        assert_eq!(both(memory, cpu).0, [("a".to_owned(), 1065, vec![main], false)]);
    }

    #[test]
    fn half_an_answer_counts_for_nothing() {
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
        ResponseDecoder::new().push(half.as_bytes(), &mut taker).expect("fine so far");
        taker.discard();
        assert_eq!(report, UsageReport::default());
        let main = ("main".to_owned(), None, Some(100));
        assert_eq!(found(gathered), [("a".to_owned(), 1060, vec![main], true)]);
    }
}
