//! Replica proposals of metrics: vectors C1 to C48 and X1 to X13, X31 to X33 of upstream's calculators.

use plimsoll_core::{
    scaling::{
        MetricError, MetricValue, Pod, PodsNotReady,
        Position::{self, Above, Below, Inside},
        pod_readiness::Phase,
    },
    watermark::{MetricInput, propose::Proposal},
};
use serde_json::{Value, json};

use super::{
    DecisionCase, ago, both_modes, cpu_metric, external_metric, pending_pod, pod, pods, source,
};

/// Replicas, the compared value, its position, and the number of pods counted.
type ExpectedProposal = (i32, i64, Position, u32);
/// Name, fields of the object, current replicas, pods and their usage, watermarks, and the expected proposal.
type PodMetricVector =
    (&'static str, Value, i32, &'static [Phase], &'static [i64], (i64, i64), ExpectedProposal);
/// The same for an external metric with this sum.
type SumMetricVector = (&'static str, Value, i32, i64, (i64, i64), ExpectedProposal);

/// Evaluates the single source of a case.
fn evaluate(case: &DecisionCase) -> Result<Proposal, MetricError> {
    let (mut rows, _) = case.setting().combine(&case.sources);
    rows.remove(0).result
}

fn proposal_of(case: &DecisionCase) -> ExpectedProposal {
    let proposal = evaluate(case).expect("value is known");
    (proposal.replicas, proposal.utilization, proposal.position, proposal.ready_pods)
}

fn pod_in_phase(phase: Phase, number: usize) -> Pod {
    match phase {
        Phase::Pending => pending_pod(number, 60),
        phase => Pod { phase, ..pod(number) },
    }
}

#[test]
fn pod_usage_is_compared_with_watermarks_as_upstream_does() {
    use Phase::{Failed as F, Pending as P, Running as R};
    let low = 20_000;
    let none: &[Phase] = &[];
    #[rustfmt::skip]
    let vectors: [PodMetricVector; 25] = [
        ("C1", json!({"tolerance": "25m"}), 3, none, &[90_000; 3], (low, 40_000), (21, 270_000, Above, 3)),
        ("C3", json!({"tolerance": "25m", "replicaScalingAbsoluteModulo": 5}), 3, none, &[90_000; 3], (low, 40_000), (25, 270_000, Above, 3)),
        ("C4", json!({"tolerance": "25m", "replicaScalingAbsoluteModulo": 5}), 3, none, &[9_000; 3], (low, 40_000), (3, 27_000, Inside, 3)),
        ("C5", json!({"convergeTowardsWatermark": "highwatermark", "minReplicas": 1, "maxReplicas": 10}), 3, none, &[9_000; 3], (low, 40_000), (3, 27_000, Inside, 3)),
        ("C6", json!({"minReplicas": 1, "maxReplicas": 10}), 3, none, &[9_000; 3], (low, 40_000), (3, 27_000, Inside, 3)),
        ("C7", json!({"convergeTowardsWatermark": "lowwatermark", "maxReplicas": 1}), 3, none, &[9_000; 3], (27_000, 40_000), (3, 27_000, Inside, 3)),
        ("C8", json!({"convergeTowardsWatermark": "lowwatermark", "minReplicas": 1, "maxReplicas": 10}), 3, none, &[9_000; 3], (low, 40_000), (4, 27_000, Inside, 3)),
        ("C9", json!({"convergeTowardsWatermark": "highwatermark", "minReplicas": 1, "maxReplicas": 10}), 3, none, &[8_000; 3], (low, 40_000), (2, 24_000, Inside, 3)),
        ("C10", json!({"tolerance": "20m"}), 3, none, &[4_000; 3], (low, 40_000), (1, 12_000, Below, 3)),
        ("C11", json!({"tolerance": "20m", "replicaScalingAbsoluteModulo": 2}), 3, none, &[4_000; 3], (low, 40_000), (2, 12_000, Below, 3)),
        ("C12", json!({"tolerance": "20m"}), 3, none, &[5_000; 3], (low, 40_000), (2, 15_000, Below, 3)),
        ("C13", json!({"tolerance": "20m"}), 3, &[P, R, R], &[100_000, 50_000, 70_000], (low, 40_000), (6, 120_000, Above, 2)),
        ("C14", json!({"tolerance": "20m"}), 3, &[P, R, R], &[100_000, 50_001, 70_000], (low, 40_000), (7, 120_001, Above, 2)),
        ("C15", json!({"tolerance": "20"}), 3, &[P, P, R], &[100_000, 50_000, 40_000], (low, 40_000), (3, 40_000, Inside, 1)),
        ("C16", json!({"tolerance": "20"}), 3, &[P, P, R], &[100_000, 50_000, 45_000], (low, 40_000), (3, 45_000, Inside, 1)),
        ("C17", json!({"tolerance": "20m"}), 3, &[F, R, R], &[100_000, 50_000, 60_000], (low, 40_000), (6, 110_000, Above, 2)),
        ("C19", json!({"tolerance": "20m", "algorithm": "average"}), 3, none, &[90_000; 3], (low, 40_000), (7, 90_000, Above, 3)),
        ("C20", json!({"tolerance": "20m", "algorithm": "average"}), 3, none, &[5_000; 3], (low, 40_000), (1, 5_000, Below, 3)),
        ("C21", json!({"tolerance": "20m", "algorithm": "average"}), 3, none, &[15_000; 3], (low, 40_000), (2, 15_000, Below, 3)),
        ("C22", json!({"tolerance": "20m", "algorithm": "average"}), 3, &[P, R, R], &[100_000, 50_000, 60_000], (low, 40_000), (3, 55_000, Above, 2)),
        ("C23", json!({"tolerance": "20m", "algorithm": "average"}), 3, &[P, P, R], &[100_000, 50_000, 40_000], (low, 40_000), (3, 40_000, Inside, 1)),
        ("C24", json!({"tolerance": "20m", "algorithm": "average"}), 3, &[P, P, R], &[100_000, 50_000, 45_000], (low, 40_000), (3, 45_000, Above, 1)),
        ("C25", json!({"tolerance": "20m", "algorithm": "average"}), 3, &[F, R, R], &[100_000, 50_000, 60_000], (low, 40_000), (3, 55_000, Above, 2)),
        ("idle", json!({"tolerance": "20m", "algorithm": "average"}), 3, none, &[1_200; 3], (low, 40_000), (1, 1_200, Below, 3)),
        ("idle", json!({"tolerance": "20m"}), 3, none, &[10; 3], (low, 40_000), (1, 30, Below, 3)),
    ];
    for (name, fields, wanted, phases, samples, (low, high), expected) in vectors {
        for fixes in both_modes() {
            let mut case = DecisionCase::new(
                fixes,
                fields.clone(),
                wanted,
                vec![cpu_metric(samples, low, high)],
            );
            for (number, phase) in phases.iter().enumerate() {
                case.pods[number] = pod_in_phase(*phase, number);
            }
            assert_eq!(proposal_of(&case), expected, "{name}");
        }
    }
}

#[test]
fn pods_of_a_rolling_update_without_metrics_do_not_count() {
    for fixes in both_modes() {
        let mut case = DecisionCase::new(
            fixes,
            json!({"tolerance": "25m"}),
            3,
            vec![cpu_metric(&[90_000; 3], 20_000, 40_000)],
        );
        case.scale.status_replicas = 6;
        case.pods = pods(6);
        assert_eq!(proposal_of(&case), (21, 270_000, Above, 3), "C2");
    }
}

#[test]
fn an_unready_pod_does_not_count() {
    for fixes in both_modes() {
        for (algorithm, expected) in
            [("absolute", (6, 110_000, Above, 2)), ("average", (3, 55_000, Above, 2))]
        {
            let fields =
                json!({"tolerance": "20m", "readinessDelaySeconds": 10, "algorithm": algorithm});
            let sources = vec![cpu_metric(&[100_000, 50_000, 60_000], 20_000, 40_000)];
            let mut case = DecisionCase::new(fixes, fields, 3, sources);
            case.pods[0].ready = Some((false, ago(3_600)));
            assert_eq!(proposal_of(&case), expected, "C18 and C26, {algorithm}");
        }
    }
}

#[test]
fn external_metrics_are_compared_with_watermarks_as_upstream_does() {
    #[rustfmt::skip]
    let vectors: [SumMetricVector; 27] = [
        ("C28", json!({"tolerance": "20m"}), 4, 8_600, (2_000, 4_000), (9, 8_600, Above, 4)),
        ("C29", json!({"tolerance": "20m"}), 9, 8_600, (2_000, 4_000), (20, 8_600, Above, 9)),
        ("C30", json!({"tolerance": "20m"}), 20, 200, (2_000, 4_000), (2, 200, Below, 20)),
        ("C31", json!({"tolerance": "20m"}), 3, 0, (2_000, 4_000), (3, 0, Inside, 3)),
        ("C32", json!({"tolerance": "20m", "tolerateZero": true}), 3, 0, (2_000, 4_000), (1, 0, Below, 3)),
        ("C33", json!({"tolerance": "200m"}), 9, 4_799, (2_000, 4_000), (9, 4_799, Inside, 9)),
        ("C34", json!({"tolerance": "10m", "algorithm": "average"}), 5, 370_000, (75_000, 85_000), (4, 74_000, Below, 5)),
        ("C35", json!({"tolerance": "10m", "algorithm": "average"}), 4, 240_000, (75_000, 85_000), (3, 60_000, Below, 4)),
        ("C36", json!({"tolerance": "10m", "algorithm": "average"}), 3, 240_000, (75_000, 85_000), (3, 80_000, Inside, 3)),
        ("C37", json!({"tolerance": "10m", "algorithm": "average"}), 3, 375_000, (75_000, 85_000), (5, 125_000, Above, 3)),
        ("C38", json!({"tolerance": "10m", "convergeTowardsWatermark": "highwatermark"}), 3, 80_000, (75_000, 120_001), (2, 80_000, Inside, 3)),
        ("C39", json!({"tolerance": "10m", "convergeTowardsWatermark": "highwatermark", "minReplicas": 1, "maxReplicas": 10}), 3, 80_000, (75_000, 119_999), (3, 80_000, Inside, 3)),
        ("X1", json!({"tolerance": "10m"}), 4, 81, (80, 80), (5, 81, Above, 4)),
        ("X2", json!({"tolerance": "20m"}), 4, 4_080, (2_000, 4_000), (4, 4_080, Inside, 4)),
        ("X3", json!({"tolerance": "20m"}), 4, 1_960, (2_000, 4_000), (4, 1_960, Inside, 4)),
        ("X3", json!({"tolerance": "20m"}), 4, 1_959, (2_000, 4_000), (3, 1_959, Below, 4)),
        ("X4", json!({"tolerance": "200m"}), 9, 4_800, (2_000, 4_000), (9, 4_800, Inside, 9)),
        ("X4", json!({"tolerance": "200m"}), 9, 4_801, (2_000, 4_000), (11, 4_801, Above, 9)),
        ("X5", json!({"tolerance": "20m"}), 4, 100, (0, 0), (4, 100, Above, 4)),
        ("X6", json!({"tolerance": "20m", "replicaScalingAbsoluteModulo": 4}), 3, 1_500, (2_000, 4_000), (3, 1_500, Below, 3)),
        ("X7", json!({"tolerance": "20m", "replicaScalingAbsoluteModulo": 4}), 6, 1_500, (2_000, 4_000), (4, 1_500, Below, 6)),
        ("X10", json!({"convergeTowardsWatermark": "highwatermark", "minReplicas": 4}), 4, 2_100, (2_000, 4_000), (4, 2_100, Inside, 4)),
        ("X11", json!({"convergeTowardsWatermark": "lowwatermark", "maxReplicas": 4}), 4, 3_900, (2_000, 4_000), (4, 3_900, Inside, 4)),
        ("X12", json!({"convergeTowardsWatermark": "highwatermark", "replicaScalingAbsoluteModulo": 2}), 8, 2_500, (2_000, 4_000), (6, 2_500, Inside, 8)),
        ("X13", json!({"tolerance": "10m"}), 8, 33_959, (35_000, 40_000), (7, 33_959, Below, 8)),
        ("exact", json!({"tolerance": "20m", "algorithm": "average"}), 3, 24_000, (2_000, 4_000), (6, 8_000, Above, 3)),
        ("exact", json!({"tolerance": "20m", "algorithm": "average"}), 4, 4_000, (2_000, 4_000), (2, 1_000, Below, 4)),
    ];
    for (name, fields, wanted, sum, (low, high), expected) in vectors {
        for fixes in both_modes() {
            let case = DecisionCase::new(
                fixes,
                fields.clone(),
                wanted,
                vec![external_metric(sum, low, high)],
            );
            assert_eq!(proposal_of(&case), expected, "{name}");
        }
    }
}

#[test]
fn fewer_ready_pods_than_replicas_never_propose_against_the_value() {
    for fixes in both_modes() {
        let case = |ready, sum| {
            let fields = json!({"tolerance": "20m"});
            let mut case =
                DecisionCase::new(fixes, fields, 10, vec![external_metric(sum, 2_000, 4_000)]);
            case.pods.truncate(ready);
            proposal_of(&case)
        };
        assert_eq!(case(8, 1_900), (7, 1_900, Below, 8), "X8");
        assert_eq!(case(5, 6_000), (10, 6_000, Above, 5), "X9");
    }
}

#[test]
fn starting_pods_count_until_their_readiness_delay_ends() {
    let low_high = (75_000, 85_000);
    for fixes in both_modes() {
        let case = |pods: Vec<Pod>, delay: i32, sum: i64| {
            let mut fields = json!({"tolerance": "10m"});
            if delay > 0 {
                fields["readinessDelaySeconds"] = delay.into();
            }
            let source = source("requests", Ok(MetricValue::Sum { sum, at: None }), low_high);
            let mut case = DecisionCase::new(fixes, fields, pods.len() as i32, vec![source]);
            case.pods = pods;
            proposal_of(&case)
        };
        let waiting = |seconds: &[u64]| -> Vec<Pod> {
            let waits = seconds.iter().enumerate();
            let mut pods: Vec<Pod> =
                waits.map(|(number, seconds)| pending_pod(number, *seconds)).collect();
            pods.push(pod(pods.len()));
            pods
        };
        let mut two = waiting(&[60]);
        two.push(pod(2));
        assert_eq!(case(two, 0, 10_000), (1, 10_000, Below, 2), "C40");
        assert_eq!(case(waiting(&[20, 5]), 10, 70_000), (1, 70_000, Below, 2), "C41");
        assert_eq!(case(waiting(&[20, 20]), 10, 90_000), (3, 90_000, Above, 1), "C42");
        assert_eq!(case(waiting(&[20, 5]), 10, 80_000), (3, 80_000, Inside, 2), "C43");
        let seven = waiting(&[20, 20, 20, 20, 20, 5]);
        assert_eq!(case(seven.clone(), 10, 800_000), (19, 800_000, Above, 2), "C44");
        assert_eq!(case(seven, 6_000, 800_000), (66, 800_000, Above, 7), "C45");
    }
}

#[test]
fn too_few_ready_pods_are_an_error() {
    for fixes in both_modes() {
        let fields = json!({"algorithm": "average", "minAvailableReplicaPercentage": 30});
        let mut case =
            DecisionCase::new(fixes, fields, 4, vec![external_metric(30_000, 7_000, 10_000)]);
        for number in 0..3 {
            case.pods[number] = pending_pod(number, 60);
        }
        let text = "25 % of the pods are unready, will not autoscale shop/web";
        assert_eq!(evaluate(&case).expect_err("C46").to_string(), text);

        let fields = json!({
            "algorithm": "average", "minAvailableReplicaPercentage": 34, "tolerance": "20m",
        });
        let mut case =
            DecisionCase::new(fixes, fields, 3, vec![external_metric(30_000, 7_000, 10_000)]);
        case.pods[1].phase = Phase::Failed;
        case.pods[2].phase = Phase::Succeeded;
        assert_eq!(proposal_of(&case), (3, 30_000, Above, 1), "C47");

        case.pods.clear();
        assert_eq!(evaluate(&case), Err(MetricError::PodsNotReady(PodsNotReady::NoPods)), "C48");
        let text = "no pods returned by selector while calculating replica count";
        assert_eq!(PodsNotReady::NoPods.to_string(), text);
    }
}

#[test]
fn each_metric_error_has_its_own_name_and_upstreams_message() {
    for fixes in both_modes() {
        for (why, word) in [
            (
                MetricError::Failed(
                    "unable to fetch metrics from external metrics API: gone".into(),
                ),
                "error",
            ),
            (MetricError::Empty("external"), "empty"),
            (MetricError::NotANumber, "not_a_number"),
            (MetricError::Stale { at: ago(900) }, "stale"),
        ] {
            let source: MetricInput = source("requests", Err(why.clone()), (1, 2));
            let case = DecisionCase::new(fixes, json!({}), 3, vec![source]);
            let (rows, combined) = case.setting().combine(&case.sources);
            assert_eq!(rows[0].result, Err(why.clone()));
            assert_eq!(why.as_str(), word);
            let text = combined.expect_err("value is unknown").to_string();
            let start = "failed to compute replicas based on external metric requests: ";
            assert!(text.starts_with(start) && text.ends_with(&why.to_string()), "{text}");
        }
        assert_eq!(
            MetricError::Empty("resource").to_string(),
            "no metrics returned from resource metrics API",
            "C27"
        );
    }
}

#[test]
fn a_stale_value_is_an_error() {
    let case = DecisionCase::new(
        both_modes()[1],
        json!({}),
        3,
        vec![source("requests", Ok(MetricValue::Sum { sum: 1, at: Some(ago(120)) }), (5, 6))],
    );
    let mut setting = case.setting();
    assert!(setting.combine(&case.sources).1.is_ok(), "not requested");
    setting.oldest_sample = Some(ago(60));
    let (rows, combined) = setting.combine(&case.sources);
    assert_eq!(rows[0].result, Err(MetricError::Stale { at: ago(120) }));
    assert!(combined.is_err());
}
