//! Reads the timeline of a workload from Prometheus. Selectors are built by type; no text of a request becomes a query.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt as _, stream};
use plimsoll_core::{rightsizing::survey::Resource, types::Time};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryRange},
    decode::{Interest, Labels, SeriesVisitor},
    promql::{Aggregation, Query, RangeFunction},
    selector::{LabelMatchers, Pattern, Selector},
};

use super::{
    list_query::Span,
    timeline::{EventKind, Point, Timeline, TimelineChart, TimelineEvent},
};
use crate::report::recommend::server::ConnectedServer;

/// The most points of a series.
const MAX_POINTS: u64 = 590;
/// Concurrent queries.
const MAX_QUERIES: usize = 4;
/// Timeout of one query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The most series of one response: containers of a pod.
const MAX_SERIES: usize = 100;
/// The window of rates, if steps are shorter.
const RATE_WINDOW: u64 = 300;

/// The workload of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimelineSubject {
    /// Its namespace.
    pub namespace: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its VPA.
    pub vpa: Option<String>,
}

/// Reads timelines from one server.
#[derive(Debug)]
pub struct TimelineReader {
    client: PrometheusClient,
    server: String,
    matchers: LabelMatchers,
}

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Usage(Resource),
    Request,
    Limit,
    Target,
    Lower,
    Upper,
    Event(EventKind),
}

impl TimelineReader {
    /// A reader of a server. The matchers are added to every query.
    pub fn new(server: &ConnectedServer, matchers: LabelMatchers) -> Self {
        let limits = QueryLimits {
            max_in_flight: MAX_QUERIES,
            timeout: QUERY_TIMEOUT,
            max_attempts: 1,
            max_response_bytes: Some(8 << 20),
            max_response_points: Some(MAX_POINTS * MAX_SERIES as u64 * 2),
            ..QueryLimits::default()
        };
        Self { client: server.client(limits), server: server.name.clone(), matchers }
    }

    /// Reads the time before `until`. Queries that fail are named; if all fail, the first failure is the error.
    pub async fn read(
        &self,
        subject: &TimelineSubject,
        span: Span,
        until: Time,
    ) -> Result<Timeline, String> {
        let step = (span.seconds().div_ceil(MAX_POINTS)).div_ceil(60) * 60;
        let until = Time::from_secs(until.as_secs().div_euclid(step as i64) * step as i64);
        let from = until.earlier(Duration::from_secs(span.seconds()));
        let grid = QueryRange::new(from, until, Duration::from_secs(step));
        let grid = grid.map_err(|error| error.to_string())?;
        let queries = queries(subject, step, &self.matchers);
        let total = queries.len();
        let reads = queries.into_iter().map(|(part, query)| async move {
            let mut collector = Collector::default();
            let read = self.client.range(&query, grid, &mut collector).await;
            (part, read.map(|_| collector.series).map_err(|error| error.failure.to_string()))
        });
        let results: Vec<_> = stream::iter(reads).buffered(MAX_QUERIES).collect().await;
        let mut charts: BTreeMap<(String, Resource), TimelineChart> = BTreeMap::new();
        let (mut events, mut problems) = (Vec::new(), Vec::new());
        for (part, result) in results {
            match result {
                Ok(series) => add(part, series, &mut charts, &mut events),
                Err(why) => problems.push(why),
            }
        }
        if problems.len() == total
            && let Some(first) = problems.into_iter().next()
        {
            return Err(format!("{}: {first}", self.server));
        }
        events.sort_by_key(|event: &TimelineEvent| (event.at, event.what));
        Ok(Timeline {
            from,
            until,
            step_seconds: step,
            server: self.server.clone(),
            charts: charts.into_values().collect(),
            events,
            problems: Vec::new(),
        })
    }
}

/// The queries about a workload, and if it has a VPA about that.
fn queries(subject: &TimelineSubject, step: u64, matchers: &LabelMatchers) -> Vec<(Part, Query)> {
    let TimelineSubject { namespace, kind, name, vpa } = subject;
    let of_pods = |metric: &str| {
        Selector::metric(metric)
            .equals("namespace", namespace)
            .matches("pod", pod_pattern(kind, name))
            .with_all(matchers)
    };
    let of_containers =
        |metric: &str| of_pods(metric).not_equals("container", "").not_equals("container", "POD");
    let window = Duration::from_secs(step.max(RATE_WINDOW));
    let step = Duration::from_secs(step);
    let cpu = of_containers("container_cpu_usage_seconds_total");
    let memory = of_containers("container_memory_working_set_bytes");
    let by_container = ["container"];
    let by_resource = ["container", "resource"];
    let maximum = |function, selector: &Selector, window| {
        Query::range_function(function, selector, window).aggregate(Aggregation::Max, &by_container)
    };
    let mut queries = vec![
        (Part::Usage(Resource::Cpu), maximum(RangeFunction::Rate, &cpu, window)),
        (Part::Usage(Resource::Memory), maximum(RangeFunction::Max, &memory, step)),
    ];
    let configured = [
        (Part::Request, "kube_pod_container_resource_requests"),
        (Part::Limit, "kube_pod_container_resource_limits"),
    ];
    let largest = |selector: &Selector| {
        Query::range_function(RangeFunction::Last, selector, window)
            .aggregate(Aggregation::Max, &by_resource)
    };
    for (part, metric) in configured {
        queries.push((part, largest(&of_containers(metric))));
    }
    let Some(vpa) = vpa else { return queries };
    let of_vpa = |metric: &str| {
        Selector::metric(metric)
            .equals("kind", "vpa")
            .equals("namespace", namespace)
            .equals("name", vpa)
            .with_all(matchers)
    };
    let numbers = [
        (Part::Target, "plimsoll_target"),
        (Part::Lower, "plimsoll_low"),
        (Part::Upper, "plimsoll_high"),
    ];
    for (part, metric) in numbers {
        queries.push((part, largest(&of_vpa(metric))));
    }
    let kills = of_vpa("plimsoll_container_oom_kills_total");
    queries
        .push((Part::Event(EventKind::OomKill), maximum(RangeFunction::Increase, &kills, window)));
    let actions = [
        (EventKind::Eviction, "vpa_updater_evicted_pods_total"),
        (EventKind::Resize, "vpa_updater_in_place_updated_pods_total"),
    ];
    for (kind, metric) in actions {
        let selector = Selector::metric(metric)
            .equals("vpa_namespace", namespace)
            .equals("vpa_name", vpa)
            .with_all(matchers);
        let increase = Query::range_function(RangeFunction::Increase, &selector, window);
        queries.push((Part::Event(kind), increase.aggregate(Aggregation::Sum, &["vpa_name"])));
    }
    queries
}

/// The names of the pods of a workload.
fn pod_pattern(kind: &str, name: &str) -> Pattern {
    let suffix = match kind {
        "Deployment" => "-[0-9a-z]{1,10}-[0-9a-z]{5}",
        "StatefulSet" => "-[0-9]+",
        "DaemonSet" | "ReplicaSet" | "ReplicationController" | "Job" => "-[0-9a-z]{5}",
        "CronJob" => "-[0-9]+-[0-9a-z]{5}",
        "Pod" => "",
        _ => "-.+",
    };
    Pattern::literal(name).then(&Pattern::regex(suffix))
}

/// Adds the series of a query to the charts or events.
fn add(
    part: Part,
    series: Vec<CollectedLine>,
    charts: &mut BTreeMap<(String, Resource), TimelineChart>,
    events: &mut Vec<TimelineEvent>,
) {
    for line in series {
        if let Part::Event(what) = part {
            events.extend(increases(&line, what));
            continue;
        }
        let resource = match (part, &*line.resource) {
            (Part::Usage(resource), _) => resource,
            (_, "cpu") => Resource::Cpu,
            (_, "memory") => Resource::Memory,
            _ => continue,
        };
        let key = (line.container.clone(), resource);
        let chart =
            charts.entry(key).or_insert_with(|| TimelineChart::new(&line.container, resource));
        let points = match part {
            Part::Usage(_) => &mut chart.usage,
            Part::Request => &mut chart.request,
            Part::Limit => &mut chart.limit,
            Part::Target => &mut chart.target,
            Part::Lower => &mut chart.lower,
            Part::Upper => &mut chart.upper,
            Part::Event(_) => continue,
        };
        *points = line.points;
    }
}

/// The steps in which a counter increased. Windows may overlap, and an increase is extrapolated: neighbors are one event.
fn increases(line: &CollectedLine, what: EventKind) -> Vec<TimelineEvent> {
    let container = Some(line.container.clone()).filter(|name| !name.is_empty());
    let mut events = Vec::new();
    let mut before: f64 = 0.0;
    for (at, value) in &line.points {
        let count = value.round();
        if count > before {
            events.push(TimelineEvent {
                at: Time::from_secs(*at),
                what,
                container: container.clone(),
                count: (count - before) as u64,
            });
        }
        before = count;
    }
    events
}

/// A series with the labels that matter here.
#[derive(Debug, Default)]
struct CollectedLine {
    container: String,
    resource: String,
    points: Vec<Point>,
}

/// Collects series. Points of a part that fails do not count.
#[derive(Debug, Default)]
struct Collector {
    series: Vec<CollectedLine>,
    pending: Vec<CollectedLine>,
    is_skipping: bool,
}

impl SeriesVisitor for Collector {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        self.is_skipping = self.pending.len() >= MAX_SERIES;
        if self.is_skipping {
            return Interest::LabelsOnly;
        }
        let label = |name: &str| labels.get(name).unwrap_or_default().to_owned();
        let (container, resource) = (label("container"), label("resource"));
        self.pending.push(CollectedLine { container, resource, points: Vec::new() });
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        if let Some(line) =
            self.pending.last_mut().filter(|_| !self.is_skipping && value.is_finite())
        {
            line.points.push((at.as_secs(), value));
        }
    }

    fn finish(&mut self) {
        for line in self.pending.drain(..) {
            let same = |known: &&mut CollectedLine| {
                known.container == line.container && known.resource == line.resource
            };
            match self.series.iter_mut().find(same) {
                Some(known) => known.points.extend(line.points),
                None => self.series.push(line),
            }
        }
    }

    fn discard(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_select_the_pods_and_the_vpa_by_quoted_labels() {
        let subject = TimelineSubject {
            namespace: "sh\"op".to_owned(),
            kind: "Deployment".to_owned(),
            name: "we.b".to_owned(),
            vpa: Some("web".to_owned()),
        };
        let texts: Vec<String> = queries(&subject, 180, &LabelMatchers::default())
            .iter()
            .map(|(_, query)| query.as_str().to_owned())
            .collect();
        assert_eq!(texts.len(), 10);
        for text in &texts {
            assert!(text.contains("sh\\\"op"), "{text}");
            promql_parser::parser::parse(text).expect(text);
        }
        assert!(texts[0].contains("we\\\\.b-[0-9a-z]{1,10}-[0-9a-z]{5}"), "{}", texts[0]);
        let without = TimelineSubject { vpa: None, ..subject };
        assert_eq!(queries(&without, 180, &LabelMatchers::default()).len(), 4);
    }

    #[test]
    fn an_increase_in_overlapping_windows_is_one_event() {
        let line = CollectedLine {
            points: vec![(0, 0.0), (180, 1.1), (360, 1.0), (540, 0.0), (720, 2.2)],
            ..CollectedLine::default()
        };
        let events = increases(&line, EventKind::OomKill);
        let found: Vec<_> = events.iter().map(|event| (event.at.as_secs(), event.count)).collect();
        assert_eq!(found, [(180, 1), (720, 2)]);
    }
}
