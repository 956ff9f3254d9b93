//! Queries about one HPA or WPA, by the metrics that Plimsoll exports about it, and what becomes of their series.

use std::{collections::BTreeMap, time::Duration};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    promql::{Aggregation, Query, RangeFunction},
    selector::{LabelMatchers, Selector},
};

use super::{RATE_WINDOW, ReplicaSubject, collector::CollectedSeries};
use crate::ui::{
    replica_timeline::{MetricChart, ReplicaTimeline, Restriction},
    timeline::Point,
};

/// What a query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplicaPart {
    Value,
    Low,
    High,
    Target,
    Proposal,
    Effective,
    Min,
    Max,
    Restriction,
}

impl ReplicaPart {
    /// The label that series are told apart by.
    pub fn label(self) -> &'static [&'static str] {
        match self {
            Self::Value | Self::Low | Self::High | Self::Target | Self::Proposal => &["metric"],
            Self::Effective | Self::Min | Self::Max => &[],
            Self::Restriction => &["reason"],
        }
    }
}

/// The queries about an autoscaler.
pub(super) fn queries(
    subject: &ReplicaSubject,
    step: u64,
    matchers: &LabelMatchers,
) -> Vec<(ReplicaPart, Query)> {
    let window = Duration::from_secs(step.max(RATE_WINDOW));
    let parts = [
        (ReplicaPart::Value, "plimsoll_value"),
        (ReplicaPart::Low, "plimsoll_low"),
        (ReplicaPart::High, "plimsoll_high"),
        (ReplicaPart::Target, "plimsoll_target"),
        (ReplicaPart::Proposal, "plimsoll_proposal"),
        (ReplicaPart::Effective, "plimsoll_effective"),
        (ReplicaPart::Min, "plimsoll_min_replicas"),
        (ReplicaPart::Max, "plimsoll_max_replicas"),
        (ReplicaPart::Restriction, "plimsoll_restricted_scaling"),
    ];
    let queries = parts.into_iter().map(|(part, metric)| {
        let selector = Selector::metric(metric)
            .equals("kind", subject.kind.label())
            .equals("namespace", &subject.namespace)
            .equals("name", &subject.name)
            .with_all(matchers);
        let query = match part {
            // A restriction that was shorter than a step is shown as well, but for no longer than its step.
            ReplicaPart::Restriction => {
                let step = Duration::from_secs(step);
                Query::range_function(RangeFunction::Max, &selector, step)
            }
            _ => Query::range_function(RangeFunction::Last, &selector, window),
        };
        (part, query.aggregate(Aggregation::Max, part.label()))
    });
    queries.collect()
}

/// Adds the series of a query to the timeline.
pub(super) fn add(
    part: ReplicaPart,
    series: Vec<CollectedSeries>,
    timeline: &mut ReplicaTimeline,
    metrics: &mut BTreeMap<String, MetricChart>,
) {
    for one in series {
        let label = one.labels.into_iter().next().unwrap_or_default();
        let points = match part {
            ReplicaPart::Effective => &mut timeline.effective,
            ReplicaPart::Min => &mut timeline.min,
            ReplicaPart::Max => &mut timeline.max,
            ReplicaPart::Restriction => {
                let step = i64::try_from(timeline.step_seconds).unwrap_or(i64::MAX);
                let spans = active_spans(&one.points, step);
                timeline.restrictions.extend(spans.into_iter().map(|(from, until)| Restriction {
                    reason: label.clone(),
                    from,
                    until,
                }));
                continue;
            }
            _ => {
                let chart = metrics
                    .entry(label.clone())
                    .or_insert_with(|| MetricChart { metric: label, ..MetricChart::default() });
                match part {
                    ReplicaPart::Value => &mut chart.value,
                    ReplicaPart::Low => &mut chart.low,
                    ReplicaPart::High => &mut chart.high,
                    ReplicaPart::Target => &mut chart.target,
                    _ => &mut chart.proposal,
                }
            }
        };
        *points = one.points;
    }
}

/// The times in which a series was not 0. A point is about the step before it, and a missing point ends a time.
fn active_spans(points: &[Point], step: i64) -> Vec<(Time, Time)> {
    let mut spans: Vec<(i64, i64)> = Vec::new();
    for (at, _) in points.iter().filter(|(_, value)| *value > 0.0) {
        let from = at.saturating_sub(step);
        match spans.last_mut() {
            Some((_, until)) if *until >= from => *until = *at,
            _ => spans.push((from, *at)),
        }
    }
    spans.into_iter().map(|(from, until)| (Time::from_secs(from), Time::from_secs(until))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::timeline_reader::ReplicaKind;

    #[test]
    fn queries_select_one_autoscaler_by_quoted_labels() {
        for (kind, label) in [(ReplicaKind::Hpa, "hpa"), (ReplicaKind::Wpa, "wpa")] {
            let subject =
                ReplicaSubject { kind, namespace: "sh\"op".to_owned(), name: "we\\b".to_owned() };
            let queries = queries(&subject, 180, &LabelMatchers::default());
            assert_eq!(queries.len(), 9);
            for (_, query) in &queries {
                let text = query.as_str();
                assert!(text.contains("sh\\\"op") && text.contains("we\\\\b"), "{text}");
                assert!(text.contains(&format!("kind=\"{label}\"")), "{text}");
                promql_parser::parser::parse(text).expect(text);
            }
        }
    }

    #[test]
    fn a_restriction_lasts_from_the_step_before_its_first_point_to_its_last_one() {
        let points = [(60, 0.0), (120, 1.0), (180, 1.0), (240, 0.0), (300, 1.0), (480, 1.0)];
        let spans = active_spans(&points, 60);
        let spans: Vec<_> =
            spans.iter().map(|(from, until)| (from.as_secs(), until.as_secs())).collect();
        assert_eq!(spans, [(60, 180), (240, 300), (420, 480)]);
        assert!(active_spans(&[(60, 0.0)], 60).is_empty());
    }

    #[test]
    fn series_are_told_apart_by_their_metric_and_reason() {
        let mut timeline = ReplicaTimeline { step_seconds: 60, ..ReplicaTimeline::default() };
        let mut metrics = BTreeMap::new();
        let series = |label: &str| CollectedSeries {
            labels: if label.is_empty() { Vec::new() } else { vec![label.to_owned()] },
            points: vec![(60, 1.0)],
        };
        for (part, label) in [
            (ReplicaPart::Value, "cpu"),
            (ReplicaPart::Proposal, "cpu"),
            (ReplicaPart::High, "qps"),
            (ReplicaPart::Effective, ""),
            (ReplicaPart::Restriction, "forbidden_window"),
        ] {
            add(part, vec![series(label)], &mut timeline, &mut metrics);
        }
        assert_eq!(metrics["cpu"].value, [(60, 1.0)]);
        assert_eq!(metrics["cpu"].proposal, [(60, 1.0)]);
        assert_eq!((metrics["qps"].high.len(), metrics["qps"].value.len()), (1, 0));
        assert_eq!(timeline.effective, [(60, 1.0)]);
        assert!(timeline.min.is_empty());
        assert_eq!(timeline.restrictions[0].reason, "forbidden_window");
    }
}
