//! Vectors E1 to E91: whole passes.

use serde_json::{Value, json};

use super::fixture::{Case, condition, container_cpu, cpu, external, object, per_pod, reason};
use crate::hpa::decision::Zone;
use crate::hpa::labels::{Action, Failure};
use crate::hpa::{HpaState, Selector, pod_groups::NotCounted};

/// The replicas after a pass.
fn replicas(case: &Case) -> i32 {
    case.written().desired.expect("decided")
}

/// Half the usage of a pod, as each of its two containers has.
fn used(case: Case, milli: &[i64]) -> Case {
    case.using(&milli.iter().map(|milli| milli / 2).collect::<Vec<_>>()).change(|case| {
        for pod in &mut case.pods {
            for container in &mut pod.containers {
                container.requests = super::fixture::requests(500);
            }
        }
    })
}

#[test]
fn cpu_metrics_scale_up_and_down() {
    let new = |current, target, milli: &[i64], states: &[(usize, &str)]| {
        used(Case::new(current, cpu(target)).state(states), milli)
    };
    let down = &[100, 300, 500, 250, 250];
    for (name, case, expected) in [
        ("E1", new(3, 30, &[300, 500, 700], &[]), 5),
        ("E3", new(3, 30, &[300, 500, 700], &[(0, "unready")]), 4),
        ("E4", new(3, 30, &[300, 500, 700], &[(0, "hot")]), 4),
        ("E5", new(3, 30, &[400, 500, 700], &[(1, "unready"), (2, "unready")]), 3),
        ("E6", new(3, 30, &[400, 500, 700], &[(1, "hot"), (2, "hot")]), 3),
        ("E7", new(2, 30, &[500, 700], &[(2, "failed"), (3, "failed")]), 4),
        ("E8", new(2, 30, &[500, 700], &[(2, "deleted"), (3, "deleted")]), 4),
        ("E28", new(5, 50, down, &[]), 3),
        ("E30", new(5, 50, down, &[]).change(|case| case.spec["behavior"] = json!({})), 3),
        ("E31", new(5, 50, down, &[(3, "unready"), (4, "unready")]), 2),
        ("E32", new(5, 50, down, &[(3, "hot"), (4, "hot")]), 2),
        ("E33", new(5, 50, down, &[(5, "failed"), (6, "failed")]), 3),
        ("E34", new(5, 50, down, &[(5, "deleted"), (6, "deleted")]), 3),
        ("E43", new(3, 100, &[1010, 1030, 1020], &[]), 3),
        ("E54", new(3, 50, &[0, 0, 0], &[]).bounds(0, 6), 0),
        ("E55", new(3, 50, &[0, 0, 0], &[]), 2),
        ("E59", new(3, 90, &[8000, 9500, 1000], &[]).bounds(2, 5), 5),
        ("E61", new(4, 100, &[400, 95], &[]), 3),
        (
            "E69",
            new(4, 100, &[1000; 4], &[]).change(|case| {
                if let Ok(scale) = &mut case.scale {
                    scale.status_replicas = 5;
                }
            }),
            4,
        ),
    ] {
        assert_eq!(replicas(&case), expected, "{name}");
    }
    let of_container = Case::new(3, container_cpu(30));
    assert_eq!(replicas(&used(of_container, &[300, 500, 700])), 5, "E2");
    assert_eq!(replicas(&used(Case::new(5, container_cpu(50)), down)), 3, "E29");
    let up = new(3, 30, &[300, 500, 700], &[]).written();
    assert_eq!((up.action, up.failure), (Action::ScaleUp, Failure::None), "E1");
    assert_eq!(new(5, 50, down, &[]).written().action, Action::ScaleDown, "E28");
    let limited =
        reason(&new(3, 90, &[8000, 9500, 1000], &[]).bounds(2, 5).written(), "ScalingLimited");
    assert_eq!(limited, "TooManyReplicas", "E59");
}

#[test]
fn ignored_pods_are_named_with_the_reason() {
    let case = used(Case::new(3, cpu(30)).state(&[(0, "hot"), (3, "failed")]), &[300, 500]);
    let decision = case.decide();
    let proposal = decision.evaluations[0].outcome.as_ref().expect("a proposal");
    let groups = proposal.groups.as_ref().expect("groups");
    let reasons: Vec<_> =
        groups.reasons.iter().map(|(pod, reason)| (pod.as_str(), *reason)).collect();
    assert_eq!(groups.ready, 1);
    assert_eq!(
        reasons,
        [("p0", NotCounted::Starting), ("p2", NotCounted::NoSample), ("p3", NotCounted::Failed)]
    );
    assert!(proposal.padded_ratio.is_some());
}

#[test]
fn other_metrics_scale_up_and_down() {
    let metric = |current, metrics, object, external: &'static str| {
        Case::new(current, metrics).change(|case| {
            case.object = Ok(object);
            case.external = Ok(vec![external]);
        })
    };
    for (name, case, expected) in [
        ("E11", Case::new(3, per_pod("15")).valued(&[20000, 10000, 30000]), 4),
        (
            "E12",
            Case::new(3, per_pod("15"))
                .valued(&[50000, 10000, 30000])
                .state(&[(0, "unready"), (2, "hot")]),
            6,
        ),
        (
            "E13",
            Case::new(3, per_pod("15"))
                .valued(&[50000, 15000, 30000])
                .state(&[(0, "unready"), (2, "hot")]),
            6,
        ),
        ("E15", metric(3, object("Value", "15"), "20", "0"), 4),
        ("E16", metric(3, object("AverageValue", "10"), "40", "0"), 4),
        ("E17", metric(3, external("Value", "6666m"), "0", "8600m"), 4),
        ("E18", metric(3, external("AverageValue", "2222m"), "0", "8600m"), 4),
        ("E36", Case::new(5, per_pod("20")).valued(&[12000; 5]), 3),
        ("E37", metric(5, object("Value", "20"), "12", "0"), 3),
        ("E38", metric(5, object("AverageValue", "20"), "60", "0"), 3),
        ("E39", metric(5, external("Value", "14400m"), "0", "8600m"), 3),
        ("E40", metric(5, external("AverageValue", "3"), "0", "8600m"), 3),
        ("E44", Case::new(3, per_pod("20")).valued(&[20000, 20001, 21000]), 3),
        ("E45", metric(3, object("Value", "20"), "20050m", "0"), 3),
        ("E46", metric(4, external("Value", "8666m"), "0", "8600m"), 4),
        ("E48", metric(4, external("AverageValue", "2200m"), "0", "8600m"), 4),
    ] {
        assert_eq!(replicas(&case), expected, "{name}");
    }
}

fn woken(status: &str) -> Value {
    json!({"desiredReplicas": 0, "conditions": [{"type": "ScaledToZero", "status": status}]})
}

#[test]
fn scales_to_zero_and_back() {
    let new = |current, min, gate, condition: Option<&str>, value| {
        Case::new(current, object("Value", "15")).bounds(min, 6).change(|case| {
            case.config.scale_to_zero = gate;
            case.object = Ok(value);
            if let Some(status) = condition {
                case.status = woken(status);
            }
        })
    };
    let zero = |decision: &crate::hpa::Decision| condition(decision, "ScaledToZero");
    let text = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    for (name, case, replicas, active, scaled_to_zero) in [
        (
            "E19",
            new(0, 0, true, Some("True"), "20"),
            2,
            "ValidMetricFound",
            text("False", "NotScaledToZero"),
        ),
        ("E20", new(0, 0, false, Some("True"), "20"), 0, "ScalingDisabled", None),
        ("E22", new(0, 0, true, None, "20"), 0, "ScalingDisabled", None),
        (
            "E23",
            new(0, 2, true, Some("True"), "10"),
            2,
            "ValidMetricFound",
            text("False", "NotScaledToZero"),
        ),
        ("E24", new(0, 2, false, Some("True"), "10"), 0, "ScalingDisabled", None),
        (
            "E25",
            new(3, 1, true, Some("True"), "25"),
            5,
            "ValidMetricFound",
            text("False", "NotScaledToZero"),
        ),
        ("E25 off", new(3, 1, false, Some("True"), "25"), 5, "ValidMetricFound", None),
        ("E26", new(0, 1, true, None, "20"), 0, "ScalingDisabled", None),
        ("E41", new(3, 0, true, None, "0"), 0, "ValidMetricFound", text("True", "ScaledToZero")),
        ("E41 off", new(3, 0, false, None, "0"), 0, "ValidMetricFound", None),
        ("E56", new(0, 3, false, None, "20"), 0, "ScalingDisabled", None),
        (
            "no metric scales up from zero",
            new(0, 0, true, Some("False"), "20"),
            0,
            "ScalingDisabled",
            text("False", ""),
        ),
    ] {
        let decision = case.written();
        assert_eq!(decision.desired, Some(replicas), "{name}");
        assert_eq!(reason(&decision, "ScalingActive"), active, "{name}");
        assert_eq!(zero(&decision), scaled_to_zero, "{name}");
    }
    let mut case = new(0, 0, true, Some("True"), "1");
    case.spec["metrics"] = object("Value", "1");
    assert_eq!(replicas(&case), 1, "E21");
    let with_cpu = json!([cpu(50)[0], object("Value", "15")[0]]);
    let mixed = new(0, 0, true, Some("True"), "20").change(|case| case.spec["metrics"] = with_cpu);
    let decision = mixed.written();
    assert_eq!(
        (decision.desired, decision.failure),
        (Some(2), Failure::Internal),
        "scales up by one of two metrics"
    );
}

#[test]
fn metrics_are_not_read_for_replicas_out_of_bounds() {
    for (name, current, min, max, expected, zone) in [
        ("E57", 2, 3, 6, 3, Zone::BelowMin),
        ("E58", 10, 2, 5, 5, Zone::AboveMax),
        ("E88", 1, 2, 6, 2, Zone::BelowMin),
        ("E89", 6, 2, 5, 5, Zone::AboveMax),
    ] {
        let decision = used(Case::new(current, cpu(50)).bounds(min, max), &[500; 10]).written();
        assert_eq!((decision.desired, decision.zone), (Some(expected), zone), "{name}");
        assert!(
            decision.evaluations.is_empty() && decision.status.current_metrics.is_none(),
            "{name}"
        );
        assert_eq!(reason(&decision, "AbleToScale"), "SucceededRescale", "{name}");
        assert_eq!(condition(&decision, "ScalingActive"), None, "{name}");
    }
}

#[test]
fn failed_metrics_block_scale_down_and_not_scale_up() {
    let unknown = json!({"type": "CheddarCheese"});
    let two = |target, other: &Value| json!([cpu(target)[0], other]);
    let up = |metrics| used(Case::new(3, metrics), &[300, 400, 500]);
    let down = |metrics| used(Case::new(5, metrics), &[100, 300, 500, 250, 250]);

    let decision = up(two(30, &unknown)).written();
    assert_eq!((decision.desired, decision.failure), (Some(4), Failure::Internal), "E79");
    assert_eq!(decision.evaluations[1].computed.error, Failure::Spec, "E79");
    assert_eq!(decision.action, Action::ScaleUp, "E79");
    let decision = down(two(50, &unknown)).decide();
    assert_eq!((decision.desired, decision.write), (None, None), "E80");
    assert_eq!(reason(&decision, "ScalingActive"), "InvalidMetricSourceType", "E80");
    let decision = up(json!([unknown, unknown])).decide();
    assert_eq!(reason(&decision, "ScalingActive"), "InvalidMetricSourceType", "E81");
    assert_eq!((decision.desired, decision.failure), (None, Failure::Internal), "E76, E81");
    let failing = external("Value", "1")[0].clone();
    let decision = up(two(30, &failing)).written();
    assert_eq!((decision.desired, decision.failure), (Some(4), Failure::Internal), "E82");
    let decision = down(two(50, &failing)).decide();
    assert_eq!(reason(&decision, "ScalingActive"), "FailedGetExternalMetric", "E83");
    assert_eq!(decision.desired, None, "E83");

    for (metrics, expected) in [
        (cpu(50), "FailedGetResourceMetric"),
        (container_cpu(50), "FailedGetContainerResourceMetric"),
        (per_pod("15"), "FailedGetPodsMetric"),
        (object("Value", "15"), "FailedGetObjectMetric"),
        (external("Value", "15"), "FailedGetExternalMetric"),
    ] {
        let decision = Case::new(3, metrics).decide();
        assert_eq!((decision.desired, decision.write), (None, None), "E75 {expected}");
        assert_eq!(reason(&decision, "ScalingActive"), expected, "E62, E75");
    }
    let both = json!([per_pod("15")[0], cpu(30)[0]]);
    let decision =
        used(Case::new(3, both).valued(&[20000, 10000, 30000]), &[300, 500, 700]).written();
    assert_eq!(
        (decision.desired, decision.winner),
        (Some(5), Some(1)),
        "E85: the largest proposal wins"
    );
}

#[test]
fn rates_and_windows_limit_a_pass() {
    let behavior =
        json!({"scaleUp": {"policies": [{"type": "Percent", "value": 700, "periodSeconds": 60}]}});
    for (name, max, expected, limited) in
        [("E67", 100, 24, "ScaleUpLimit"), ("E68", 20, 20, "TooManyReplicas")]
    {
        let case = used(Case::new(3, cpu(10)).bounds(1, max), &[100_000; 3]);
        let decision = case.change(|case| case.spec["behavior"] = behavior.clone()).written();
        assert_eq!(
            (decision.desired, reason(&decision, "ScalingLimited").as_str()),
            (Some(expected), limited),
            "{name}"
        );
    }
    let first = used(Case::new(5, cpu(50)), &[100, 300, 500, 250, 250])
        .change(|case| case.memory = HpaState::default());
    let decision = first.decide();
    assert_eq!(decision.desired, Some(5), "E35: the first pass keeps the current replicas");
    assert_eq!(reason(&decision, "AbleToScale"), "ScaleDownStabilized", "E35");
    let recommendations = json!({"recommendations": [
        {"replicas": 10, "at": super::fixture::ago(600)}, {"replicas": 4, "at": super::fixture::ago(60)}]});
    let held = used(Case::new(5, cpu(100)), &[50; 5]).change(|case| {
        case.memory = serde_json::from_value(recommendations).expect("a memory");
    });
    assert_eq!(held.decide().desired, Some(4), "E86");
}

#[test]
fn selectors_must_be_set_valid_and_unambiguous() {
    let with = |selector: &str| {
        used(Case::new(3, cpu(30)), &[300, 500, 700]).change(|case| {
            if let Ok(scale) = &mut case.scale {
                selector.clone_into(&mut scale.selector);
            }
        })
    };
    for (name, selector) in [("E70", ""), ("E71", "cheddar cheese")] {
        let decision = with(selector).decide();
        assert_eq!(
            (decision.desired, reason(&decision, "ScalingActive").as_str()),
            (None, "InvalidSelector"),
            "{name}"
        );
    }
    let beside = |other: &str| {
        let other = Selector::parse(other).expect("a selector");
        with("app=web").change(|case| case.others = vec![("other".to_owned(), other)])
    };
    assert_eq!(replicas(&beside("app=old")), 5, "E72");
    for (name, other) in [("E73", "app=web"), ("E74", "app in (web,old)")] {
        let decision = beside(other).decide();
        assert_eq!(
            (decision.desired, reason(&decision, "ScalingActive").as_str()),
            (None, "AmbiguousSelector"),
            "{name}"
        );
    }
    let without_pods = beside("app=web").change(|case| case.pods.clear()).decide();
    assert_eq!(
        reason(&without_pods, "ScalingActive"),
        "FailedGetResourceMetric",
        "nothing is shared without a pod"
    );
}
