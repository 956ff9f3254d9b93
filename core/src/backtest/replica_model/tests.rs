//! Passes worked by hand, and what holds for all of them.

use proptest::prelude::*;

use super::*;
use crate::{
    backtest::testing::minutes_later,
    rightsizing::survey::{AutoscalerRef, ReplicaRange, UtilizationTarget},
};

fn scaling(min: u32, max: u32, percents: &[u32]) -> UtilizationScaling {
    let target = |percent: &u32| ScalingTarget {
        resource: Resource::Cpu,
        container: None,
        percent: *percent,
    };
    UtilizationScaling { min, max, targets: percents.iter().map(target).collect() }
}

fn sums(used: i64, requested: i64) -> PodSums {
    PodSums { used, requested }
}

#[test]
fn a_pass_is_that_of_the_controller() {
    for (name, current, percents, measured, expected) in [
        // 4 pods request 500m each and use 1,600m: 80 % instead of 50 % is 1.6 times as many: 6.4.
        ("more", 4, &[50][..], &[Some(sums(1_600, 2_000))][..], 7),
        // 54 % of 50 % is within a tenth, 56 % is not: 4.48.
        ("within tolerance", 4, &[50], &[Some(sums(1_080, 2_000))], 4),
        ("above tolerance", 4, &[50], &[Some(sums(1_120, 2_000))], 5),
        // 20 % of 50 %: 1.6.
        ("less", 4, &[50], &[Some(sums(400, 2_000))], 2),
        ("the minimum", 4, &[50], &[Some(sums(0, 2_000))], 2),
        ("the maximum", 4, &[50], &[Some(sums(20_000, 2_000))], 12),
        ("the larger of two", 4, &[50, 80], &[Some(sums(400, 2_000)), Some(sums(3_200, 2_000))], 8),
        ("an unknown metric keeps", 4, &[50, 80], &[Some(sums(400, 2_000)), None], 4),
        ("an unknown metric adds", 4, &[50, 80], &[Some(sums(1_600, 2_000)), None], 7),
        ("nothing is known", 4, &[50], &[None], 4),
        ("without requests", 4, &[50], &[Some(sums(400, 0))], 4),
        ("scaled to zero", 0, &[50], &[None], 0),
    ] {
        let scaling = scaling(2, 12, percents);
        let found = ReplicaModel::new(&scaling).pass(current, measured, minutes_later(0));
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn replicas_are_removed_by_the_highest_proposal_of_five_minutes() {
    let scaling = scaling(1, 20, &[50]);
    let mut model = ReplicaModel::new(&scaling);
    // 100m per pod. Proposals: 8 in minute 0, 6 in minute 2, then 2.
    let used = [400, 100, 300, 100, 100, 100, 100, 100, 100, 100];
    let mut replicas = 4;
    let mut found = Vec::new();
    for (minute, used) in used.into_iter().enumerate() {
        let measured = [Some(sums(used, i64::from(replicas) * 100))];
        replicas = model.pass(replicas, &measured, minutes_later(minute as u32));
        found.push(replicas);
    }
    // One that is exactly five minutes old still counts: 8 until minute 5, then 6 until minute 7.
    assert_eq!(found, [8, 8, 8, 8, 8, 8, 6, 6, 2, 2]);
}

#[test]
fn only_an_autoscaler_by_utilization_alone_is_modelled() {
    let target = |percent| UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric: 0,
        resource: Resource::Cpu,
        container: None,
        percent,
    };
    let range = ReplicaRange {
        autoscaler: "web".into(),
        min: Some(2),
        max: Some(9),
        has_other_metrics: false,
    };
    let by = |kind: &str| AutoscalerRef { kind: kind.into(), name: "web".into() };
    let web = Workload {
        utilization_targets: vec![target(70)],
        replica_ranges: vec![range.clone()],
        scaled_by: vec![by("HorizontalPodAutoscaler")],
        ..Workload::default()
    };
    let expected = scaling(2, 9, &[70]);
    assert_eq!(WorkloadScaling::of(&web), WorkloadScaling::Utilization(expected));
    assert_eq!(WorkloadScaling::of(&Workload::default()), WorkloadScaling::Independent);
    let unknown = Workload { autoscalers_unknown: true, ..Workload::default() };
    assert_eq!(WorkloadScaling::of(&unknown), WorkloadScaling::Unknown);
    let changed = |change: fn(&mut Workload)| {
        let mut changed = web.clone();
        change(&mut changed);
        WorkloadScaling::of(&changed)
    };
    for (name, found) in [
        ("other metrics", changed(|web| web.replica_ranges[0].has_other_metrics = true)),
        ("unknown maximum", changed(|web| web.replica_ranges[0].max = None)),
        ("unknown range", changed(|web| web.replica_ranges.clear())),
        ("scale to zero", changed(|web| web.replica_ranges[0].min = Some(0))),
        ("a target of 0", changed(|web| web.utilization_targets[0].percent = 0)),
        ("maybe another one", changed(|web| web.autoscalers_unknown = true)),
        (
            "two autoscalers",
            changed(|web| {
                let (kind, name) = ("WatermarkPodAutoscaler".into(), "web".into());
                web.scaled_by.push(AutoscalerRef { kind, name });
            }),
        ),
    ] {
        assert_eq!(found, WorkloadScaling::NotModelled, "{name}");
    }
}

#[test]
fn the_source_of_replicas_is_told() {
    use ReplicaRule::{Model, Recorded};
    let utilization = WorkloadScaling::Utilization(scaling(1, 2, &[50]));
    for (scaling, rule, expected) in [
        (&WorkloadScaling::Independent, Model, ReplicaSource::Recorded),
        (&utilization, Recorded, ReplicaSource::RecordedWithAutoscaler),
        (&utilization, Model, ReplicaSource::Modelled),
        (&WorkloadScaling::NotModelled, Model, ReplicaSource::RecordedWithAutoscaler),
        (&WorkloadScaling::Unknown, Model, ReplicaSource::RecordedUnknownAutoscaler),
    ] {
        assert_eq!(scaling.source(rule), expected);
    }
}

proptest! {
    #[test]
    fn a_lower_request_never_gives_fewer_replicas(
        current in 1..200_u32,
        percent in 1..400_u32,
        used in prop::collection::vec(0..100_000_i64, 1..12),
        request in 1..5_000_i64,
        lower in 1..5_000_i64,
    ) {
        let scaling = scaling(1, 500, &[percent]);
        let (request, lower) = (request.max(lower), request.min(lower));
        let [mut model, mut with_lower] = [(); 2].map(|()| ReplicaModel::new(&scaling));
        for (minute, used) in used.into_iter().enumerate() {
            let pass = |model: &mut ReplicaModel<'_>, request: i64| {
                let measured = [Some(sums(used, request * i64::from(current)))];
                model.pass(current, &measured, minutes_later(minute as u32))
            };
            prop_assert!(pass(&mut with_lower, lower) >= pass(&mut model, request));
        }
    }

    #[test]
    fn a_steady_demand_within_tolerance_keeps_the_replicas(
        replicas in 1..200_u32,
        percent in 20..100_u32,
        request in 100..5_000_i64,
        share in 0.92..1.08_f64,
    ) {
        let scaling = scaling(1, 500, &[percent]);
        let mut model = ReplicaModel::new(&scaling);
        let requested = request * i64::from(replicas);
        let used = (requested as f64 * f64::from(percent) / 100.0 * share).ceil() as i64;
        for minute in 0..10 {
            // Whole percent are counted, so that a target of a few percent has fewer steps than the tolerance.
            prop_assume!((f64::from(percent) * share).floor() >= 0.9 * f64::from(percent));
            prop_assert_eq!(model.pass(replicas, &[Some(sums(used, requested))], minutes_later(minute)), replicas);
        }
    }
}
