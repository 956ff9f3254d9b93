//! Queries about a workload and its VPA, and what becomes of their series.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::{rightsizing::survey::Resource, types::Time};
use plimsoll_storage::prometheus::{
    promql::{Aggregation, Query, RangeFunction},
    selector::{LabelMatchers, Pattern, Selector},
};

use super::{RATE_WINDOW, TimelineSubject, collector::CollectedSeries};
use crate::ui::timeline::{EventKind, TimelineChart, TimelineEvent};

/// The labels that series are told apart by.
pub(super) const LABELS: &[&str] = &["container", "resource"];

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Usage(Resource),
    Request,
    Limit,
    Target,
    Lower,
    Upper,
    Event(EventKind),
}

/// The queries about a workload, and if it has a VPA about that.
pub(super) fn queries(
    subject: &TimelineSubject,
    step: u64,
    matchers: &LabelMatchers,
) -> Vec<(Part, Query)> {
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
pub(super) fn add(
    part: Part,
    series: Vec<CollectedSeries>,
    charts: &mut BTreeMap<(String, Resource), TimelineChart>,
    events: &mut Vec<TimelineEvent>,
) {
    for line in series {
        let [container, resource] = labels(&line);
        if let Part::Event(what) = part {
            events.extend(increases(&line, what));
            continue;
        }
        let resource = match (part, resource) {
            (Part::Usage(resource), _) => resource,
            (_, "cpu") => Resource::Cpu,
            (_, "memory") => Resource::Memory,
            _ => continue,
        };
        let key = (container.to_owned(), resource);
        let chart = charts.entry(key).or_insert_with(|| TimelineChart::new(container, resource));
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

/// The values of [`LABELS`].
fn labels(line: &CollectedSeries) -> [&str; 2] {
    let label = |place: usize| line.labels.get(place).map_or("", String::as_str);
    [label(0), label(1)]
}

/// The steps in which a counter increased. Windows may overlap, and an increase is extrapolated: neighbors are one event.
fn increases(line: &CollectedSeries, what: EventKind) -> Vec<TimelineEvent> {
    let [container, _] = labels(line);
    let container = Some(container.to_owned()).filter(|name| !name.is_empty());
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
        let line = CollectedSeries {
            points: vec![(0, 0.0), (180, 1.1), (360, 1.0), (540, 0.0), (720, 2.2)],
            ..CollectedSeries::default()
        };
        let events = increases(&line, EventKind::OomKill);
        let found: Vec<_> = events.iter().map(|event| (event.at.as_secs(), event.count)).collect();
        assert_eq!(found, [(180, 1), (720, 2)]);
    }
}
