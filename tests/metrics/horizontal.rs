//! Series of HorizontalPodAutoscalers.

use std::{sync::Arc, time::Duration};

use plimsoll::telemetry::{
    Cardinality, ExportedState, HorizontalMetrics, Registry, ReplacedControllerMetrics,
    ReplicaKind, ReplicaMetricsSource, ReplicaObjectMetrics, ReplicaRow, UpstreamSeries,
};
use plimsoll_core::{
    hpa::{
        comparison::Comparison,
        labels::{Action, Computed, Failure},
        pod_groups::{PodCounts, PodGroups},
    },
    scaling::{MetricBounds, MetricDecision, Restriction, ScaleDecision},
    types::{ObjectKey, Time},
};

use super::scrape;

const NOW: Time = Time::from_secs(1_000_000);

/// One object, whose values are all known.
struct OneObject(ObjectKey, ExportedState);

impl ReplicaMetricsSource for OneObject {
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ReplicaRow<'_>),
    ) -> Option<ObjectKey> {
        if after.is_none() {
            visit(ReplicaRow { key: &self.0, state: &self.1, now: NOW });
        }
        None
    }
}

/// Adds a controller with one object, of which everything has happened once.
pub fn add_to(registry: &mut Registry, cardinality: Cardinality) {
    let metrics = HorizontalMetrics::new(registry);
    metrics.reconciles.with_labels(["decided"]).increment();
    metrics.count_comparison(Comparison::Same);
    let replaced = ReplacedControllerMetrics::new(registry);
    let key = ObjectKey::new("shop", "web");
    let (outcome, took) = ((Action::ScaleUp, Failure::None), Duration::from_millis(3));
    replaced.count_reconcile(&key, outcome, Some(5), took);
    replaced.count_evaluation(
        &Computed {
            metric_type: "Resource".to_owned(),
            action: Action::ScaleUp,
            error: Failure::None,
        },
        took,
    );
    replaced.set_objects(&[key].into());
    replaced.set_builtin_active(false);
    let cpu = MetricDecision {
        label: "cpu".to_owned(),
        value: Some(120_000.0),
        bounds: Some(MetricBounds {
            low: 80_000,
            high: 80_000,
            tolerated_low: 72_000,
            tolerated_high: 88_000,
        }),
        proposal: Some(6),
        ..MetricDecision::default()
    };
    let decision = ScaleDecision {
        metrics: vec![cpu],
        restrictions: vec![Restriction::Max, Restriction::StabilizedDown],
        held_until: Some(Time::from_secs(1_000_090)),
        ..ScaleDecision::default()
    };
    let groups = PodGroups { ready: 3, ..PodGroups::default() };
    let state = ExportedState {
        target: ("Deployment".to_owned(), "web-server".to_owned()),
        dry_run: true,
        bounds: (2, 5),
        desired_replicas: Some(5),
        decision: Some(Arc::new(decision)),
        reconciled_at: NOW,
        last_value_at: Some(Time::from_secs(999_998)),
        update_mode: "shadow",
        pods: Some(PodCounts::new(&groups, 1)),
        shadow_difference: Some(-1),
        ..ExportedState::default()
    };
    let objects = Arc::new(OneObject(ObjectKey::new("shop", "web"), state));
    registry.add_replica_autoscalers(ReplicaObjectMetrics::new(
        ReplicaKind::HORIZONTAL,
        objects,
        cardinality,
        UpstreamSeries::default(),
    ));
}

#[test]
fn an_object_has_a_series_for_each_value_of_its_decision() {
    let mut registry = Registry::new();
    add_to(&mut registry, Cardinality::Standard);
    let text = scrape(registry);
    let series: Vec<&str> = text.lines().filter(|line| line.contains("kind=\"hpa\"")).collect();
    let object = r#"kind="hpa",name="web",namespace="shop""#;
    let metric = r#"kind="hpa",metric="cpu",name="web",namespace="shop""#;
    let expected = [
        format!(
            r#"plimsoll_object_info{{{object},target_kind="Deployment",target_name="web-server",update_mode="shadow"}} 1"#
        ),
        format!("plimsoll_staleness_seconds{{{object}}} 2"),
        format!("plimsoll_value{{{metric}}} 120"),
        format!("plimsoll_low{{{metric}}} 72"),
        format!("plimsoll_high{{{metric}}} 88"),
        format!("plimsoll_target{{{metric}}} 80"),
        format!("plimsoll_proposal{{{metric}}} 6"),
        format!("plimsoll_effective{{{object}}} 5"),
        format!("plimsoll_min_replicas{{{object}}} 2"),
        format!("plimsoll_max_replicas{{{object}}} 5"),
        format!(r#"plimsoll_transition_countdown_seconds{{{object},transition="downscale"}} 90"#),
        format!(r#"plimsoll_pods{{{object},state="counted"}} 3"#),
        format!(r#"plimsoll_pods{{{object},state="foreign"}} 1"#),
        format!(r#"plimsoll_pods{{{object},state="ignored"}} 0"#),
        format!(r#"plimsoll_pods{{{object},state="missing"}} 0"#),
        format!(r#"plimsoll_pods{{{object},state="unready"}} 0"#),
        format!("plimsoll_shadow_difference{{{object}}} -1"),
        format!(r#"plimsoll_restricted_scaling{{{object},reason="stabilized_down"}} 1"#),
        format!(r#"plimsoll_restricted_scaling{{{object},reason="max"}} 1"#),
    ];
    let missing: Vec<_> = expected.iter().filter(|line| !series.contains(&line.as_str())).collect();
    assert!(missing.is_empty() && series.len() == expected.len(), "{missing:#?}\n{series:#?}");
}
