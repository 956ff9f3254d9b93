//! Vectors P1 to P8, V1 to V14, A1 to A10 and U5: averages over pods, values, and values per pod.

use serde_json::json;

use super::fixture::{Case, external, object, per_pod};
use crate::hpa::proposal::Proposal;

fn proposal(case: &Case, name: &str) -> Proposal {
    case.decide().evaluations.remove(0).outcome.expect(name)
}

fn tolerant(case: &mut Case, up: Option<&str>) {
    if let Some(up) = up {
        case.spec["behavior"] = json!({"scaleUp": {"tolerance": up}});
    }
}

#[test]
fn pod_averages_are_computed_as_in_the_vectors() {
    const M: i64 = -1;
    type Row = (
        &'static str,
        i32,
        &'static [i64],
        &'static [(usize, &'static str)],
        &'static str,
        Option<&'static str>,
        (i32, i64),
    );
    let mixed: &[(usize, &str)] = &[(0, "unready"), (2, "hot")];
    let rows: [Row; 9] = [
        ("P1", 3, &[20000, 10000, 30000], &[], "15", None, (4, 20000)),
        ("P2", 3, &[50000, 10000, 30000], mixed, "15", None, (6, 30000)),
        ("P3", 3, &[50000, 15000, 30000], mixed, "15", None, (7, 31666)),
        ("P4", 5, &[12000; 5], &[], "20", None, (3, 12000)),
        ("P5", 3, &[20000, 21000, 21000], &[], "20", None, (3, 20666)),
        ("P6", 3, &[20000, 21000, 21000], &[], "20", Some("10m"), (4, 20666)),
        ("P7", 5, &[20000, M, 19000, M, 21000], &[], "20", None, (5, 20000)),
        ("P8", 2, &[10000, 10000, M], &[], "17", None, (2, 10000)),
        ("U5", 2, &[5000, 10000], &[], "10", None, (2, 7500)),
    ];
    for (name, current, values, states, target, up, expected) in rows {
        let mut case =
            Case::new(current, per_pod(target)).bounds(1, 1000).valued(values).state(states);
        case.pods = super::fixture::pods(values.len());
        case = case.state(states);
        if let Ok(values) = &mut case.values {
            values.retain(|pod| !pod.value.is_negative());
        }
        tolerant(&mut case, up);
        let found = proposal(&case, name);
        assert_eq!((found.replicas, found.value), expected, "{name}");
    }
}

#[test]
fn values_are_computed_as_in_the_vectors() {
    const MOST: &str = "9223372036854775807m";
    for (name, is_external, current, ready, values, target, up, replicas) in [
        ("V1", false, 3, 3, vec!["20"], "15", None, 4),
        ("V2", false, 3, 1, vec!["50"], "10", None, 5),
        ("V3", false, 5, 5, vec!["12"], "20", None, 3),
        ("V4", false, 3, 3, vec!["20666m"], "20", None, 3),
        ("V5", false, 3, 3, vec!["20666m"], "20", Some("10m"), 4),
        ("V6", false, 3, 3, vec![MOST], "1m", None, i32::MAX),
        ("V7", false, 0, 0, vec!["20"], "15", None, 2),
        ("V8", false, 0, 0, vec!["1"], "1", None, 1),
        ("V9", true, 3, 1, vec!["8600m"], "4400m", None, 2),
        ("V10", true, 3, 3, vec!["8600m"], "6666m", None, 4),
        ("V11", true, 5, 5, vec!["8600m"], "14334m", None, 3),
        ("V12", true, 3, 3, vec!["8600m"], "8888m", None, 3),
        ("V13", true, 3, 3, vec!["8900m"], "8800m", Some("10m"), 4),
        ("V14", true, 3, 3, vec![MOST, MOST], MOST, None, 3),
        ("several series are summed", true, 3, 3, vec!["1", "2", "27"], "15", None, 6),
    ] {
        let metrics = if is_external { external("Value", target) } else { object("Value", target) };
        let mut case = Case::new(current, metrics).bounds(1, 1000);
        for index in ready..case.pods.len() {
            case = case.state(&[(index, "unready")]);
        }
        if current == 0 {
            // Only a target that this object scaled to zero is scaled up.
            case.config.scale_to_zero = true;
            case.status = json!({"desiredReplicas": 0, "conditions": [{"type": "ScaledToZero", "status": "True"}]});
        }
        case.object = Ok(values[0]);
        case.external = Ok(values);
        tolerant(&mut case, up);
        assert_eq!(proposal(&case, name).replicas, replicas, "{name}");
    }
}

#[test]
fn values_per_pod_are_computed_as_in_the_vectors() {
    const MOST: &str = "9223372036854775807m";
    for (name, is_external, pods, value, target, up, replicas, average) in [
        ("A1", false, 3, "20", "5", None, 4, 6667),
        ("A2", false, 5, "6", "2", None, 3, 1200),
        ("A3", false, 4, "20166m", "5", None, 4, 5042),
        ("A4", false, 4, "20208m", "5", Some("10m"), 5, 5052),
        ("A5", true, 3, "8600m", "2150m", None, 4, 2867),
        ("A6", true, 5, "8600m", "2867m", None, 3, 1720),
        ("A7", true, 3, "8600m", "2900m", None, 3, 2867),
        ("A8", true, 3, "8600m", "2800m", Some("10m"), 4, 2867),
        ("A9", true, 1, MOST, "1m", None, i32::MAX, i64::MAX),
        ("A10", true, 1, MOST, MOST, None, 1, i64::MAX),
    ] {
        let metrics = if is_external {
            external("AverageValue", target)
        } else {
            object("AverageValue", target)
        };
        let mut case = Case::new(pods, metrics).bounds(1, 1000);
        case.object = Ok(value);
        case.external = Ok(vec![value]);
        tolerant(&mut case, up);
        let found = proposal(&case, name);
        assert_eq!((found.replicas, found.value), (replicas, average), "{name}");
    }
}
