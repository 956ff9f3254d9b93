//! Vectors R1 to R41: utilization of requests.

use super::fixture::{Case, container_cpu, cpu, pods, requests, test_config, usage};
use crate::hpa::Config;
use crate::hpa::error::Cause;
use crate::hpa::evaluation::Failed;
use crate::hpa::proposal::Proposal;

/// The proposal of the only metric.
fn proposal(case: &Case) -> Result<Proposal, Failed> {
    case.decide().evaluations.remove(0).outcome
}

const MISSING: i64 = -1;

/// A pass without bounds, over pods with this usage per container.
fn case(
    current: i32,
    used: &[i64],
    states: &[(usize, &str)],
    target: i32,
    is_container: bool,
) -> Case {
    let metrics = if is_container { container_cpu(target) } else { cpu(target) };
    let mut case = Case::new(current, metrics).bounds(1, 1000);
    case.pods = pods(used.len().max(usize::try_from(current).expect("a count")));
    case = case.using(used).state(states);
    if let Ok(usage) = &mut case.usage {
        usage.retain(|pod| !pod.containers.iter().any(|(_, amounts)| amounts["cpu"].is_negative()));
    }
    case
}

#[test]
fn utilization_is_computed_as_in_the_vectors() {
    const M: i64 = MISSING;
    type Row =
        (&'static str, i32, &'static [i64], &'static [(usize, &'static str)], i32, bool, [i64; 3]);
    let down = &[100, 300, 500, 250, 250];
    let rows: [Row; 35] = [
        ("R1", 3, &[300, 500, 700], &[], 30, false, [5, 50, 1000]),
        ("R2", 3, &[300, 500, 700], &[], 30, true, [5, 50, 500]),
        ("R3", 3, &[300, 500, 700], &[(0, "unready")], 30, false, [4, 60, 1200]),
        ("R4", 3, &[300, 500, 700], &[(0, "unready")], 30, true, [4, 60, 600]),
        ("R5", 3, &[300, 500, 700], &[(0, "hot")], 30, false, [4, 60, 1200]),
        ("R6", 3, &[400, 500, 700], &[(1, "unready"), (2, "unready")], 30, false, [3, 40, 800]),
        ("R7", 3, &[400, 500, 700], &[(1, "hot"), (2, "hot")], 30, false, [3, 40, 800]),
        ("R8", 2, &[500, 700], &[(2, "failed"), (3, "failed")], 30, false, [4, 60, 1200]),
        ("R9", 2, &[500, 700], &[(2, "failed"), (3, "failed")], 30, true, [4, 60, 600]),
        ("R10", 2, &[500, 700], &[(2, "deleted"), (3, "deleted")], 30, false, [4, 60, 1200]),
        ("R11", 5, down, &[], 50, false, [3, 28, 560]),
        ("R12", 5, down, &[], 50, true, [3, 28, 280]),
        ("R13", 5, down, &[(3, "unready"), (4, "unready")], 50, false, [2, 30, 600]),
        ("R14", 5, down, &[(3, "unready"), (4, "unready")], 50, true, [2, 30, 300]),
        (
            "R15",
            5,
            &[100],
            &[(1, "pending"), (2, "pending"), (3, "pending"), (4, "pending")],
            50,
            false,
            [1, 10, 200],
        ),
        (
            "R16",
            5,
            &[100],
            &[(1, "pending"), (2, "pending"), (3, "pending"), (4, "pending")],
            50,
            true,
            [1, 10, 100],
        ),
        ("R17", 5, down, &[(3, "hot"), (4, "hot")], 50, false, [2, 30, 600]),
        ("R18", 5, down, &[(5, "failed"), (6, "failed")], 50, false, [3, 28, 560]),
        ("R19", 5, down, &[(5, "deleted"), (6, "deleted")], 50, false, [3, 28, 560]),
        ("R26", 4, &[400, 95, M, M], &[], 100, false, [3, 24, 495]),
        ("R29", 2, &[1000, M], &[], 100, false, [2, 100, 2000]),
        ("R30", 2, &[1900, M], &[], 100, false, [2, 190, 3800]),
        ("R31", 2, &[600, M], &[], 100, false, [2, 60, 1200]),
        ("R32", 3, &[100, 450, M], &[(0, "unready")], 50, false, [3, 45, 900]),
        ("R33", 3, &[100, 450, M], &[(0, "hot")], 50, false, [3, 45, 900]),
        ("R34", 3, &[100, 2000, M], &[(0, "unready")], 50, false, [4, 200, 4000]),
        ("R35", 3, &[100, 2000, M], &[(0, "hot")], 50, false, [4, 200, 4000]),
        ("R36", 4, &[100, 100, 100, M], &[(0, "unready")], 50, false, [3, 10, 200]),
        ("R38", 2, &[100, 100, M], &[], 50, false, [2, 10, 200]),
        // Edges of the truncated percentage.
        ("100.9 % is 100 %", 1, &[1009], &[], 100, false, [1, 100, 2018]),
        ("nothing used", 3, &[0, 0, 0], &[], 50, false, [0, 0, 0]),
        ("all missing but one", 4, &[200, M, M, M], &[], 50, false, [4, 20, 400]),
        ("one pod of four replicas", 1, &[1000], &[], 50, false, [2, 100, 2000]),
        ("inclusive above", 10, &[55; 10], &[], 5, false, [10, 5, 110]),
        ("inclusive below", 10, &[450; 10], &[], 50, false, [10, 45, 900]),
    ];
    for (name, current, used, states, target, is_container, [replicas, utilization, mean]) in rows {
        let found = proposal(&case(current, used, states, target, is_container)).expect(name);
        assert_eq!(
            (i64::from(found.replicas), found.utilization.map(i64::from), found.value),
            (replicas, Some(utilization), mean),
            "{name}"
        );
    }
}

#[test]
fn tolerance_applies_to_each_direction() {
    for (name, used, target, down, up, replicas, utilization) in [
        ("R20", [1010, 1030, 1020], 100, 0.1, 0.1, 3, 102),
        ("R21", [909, 1010, 1111], 100, 0.0, 0.0, 4, 101),
        ("R22", [1890, 1910, 1900], 100, 0.1, 2.0, 3, 190),
        ("R23", [1100, 1080, 1090], 100, 2.0, 0.08, 4, 109),
        ("R24", [660, 640, 650], 100, 0.36, 0.1, 3, 65),
        ("R25", [660, 640, 650], 100, 0.34, 0.1, 2, 65),
    ] {
        let mut case = case(3, &used, &[], target, false);
        for (pod, milli) in case.pods.iter_mut().zip([900, 1000, 1100]) {
            for container in &mut pod.containers {
                container.requests = requests(milli);
            }
        }
        case.spec["behavior"] = serde_json::json!({
            "scaleUp": {"tolerance": format!("{up}")}, "scaleDown": {"tolerance": format!("{down}")}});
        let found = proposal(&case).expect(name);
        assert_eq!((found.replicas, found.utilization), (replicas, Some(utilization)), "{name}");
        // With the feature gate off, only the flag applies.
        case.config.configurable_tolerance = false;
        case.config.tolerance = 9.0;
        assert_eq!(proposal(&case).expect(name).replicas, 3, "{name}");
    }
}

#[test]
fn utilization_just_inside_and_just_outside_the_tolerance_is_distinguished() {
    for (name, target, replicas) in [("R40", 56, 9), ("R41", 55, 10)] {
        let mut case = case(10, &[150; 10], &[], target, false);
        let jitter = [100, -100, 10, -10, 2, -2, 1, -1, 0, 0];
        for (pod, jitter) in case.pods.iter_mut().zip(jitter) {
            for container in &mut pod.containers {
                container.requests = requests(300 + jitter);
            }
        }
        let found = proposal(&case).expect(name);
        assert_eq!((found.replicas, found.utilization), (replicas, Some(50)), "{name}");
    }
}

#[test]
fn with_a_target_above_100_percent_missing_pods_count_as_the_target() {
    let mut case = case(4, &[200, 100, 100, MISSING], &[(0, "unready")], 300, false);
    for (pod, milli) in case.pods.iter_mut().zip([1000, 1000, 2000, 2000]) {
        for container in &mut pod.containers {
            container.requests = requests(milli);
        }
    }
    let found = proposal(&case).expect("R37");
    assert_eq!((found.replicas, found.utilization, found.value), (2, Some(6), 200));
}

#[test]
fn samples_of_unknown_pods_do_not_count() {
    let mut case = case(4, &[4000, 9500, 3000, 7000], &[], 100, false);
    if let Ok(pods) = &mut case.usage {
        pods.extend([usage("ghost-1", 3200), usage("ghost-2", 2000)]);
    }
    let found = proposal(&case).expect("R39");
    assert_eq!((found.replicas, found.utilization, found.value), (24, Some(587), 11750));
}

#[test]
fn without_pods_samples_or_requests_there_is_no_proposal() {
    let cause = |case: &Case| proposal(case).expect_err("no proposal").error.cause;
    assert_eq!(cause(&case(4, &[], &[], 100, false)), Cause::NoValues, "R27");
    let mut without_request = case(1, &[200], &[], 100, false);
    without_request.pods[0].containers[0].requests.clear();
    assert_eq!(cause(&without_request), Cause::MissingRequest, "R28");
    let mut disjoint = case(1, &[], &[], 100, false);
    disjoint.usage = Ok(vec![usage("ghost", 100)]);
    assert_eq!(cause(&disjoint), Cause::NoKnownPods);
    let mut without_pods = case(1, &[200], &[], 100, false);
    without_pods.pods.clear();
    assert_eq!(cause(&without_pods), Cause::NoPods);
    let all_unready = case(2, &[100, 100], &[(0, "unready"), (1, "unready")], 100, false);
    assert_eq!(cause(&all_unready), Cause::NoReadyPods);
    let failing = case(1, &[], &[], 100, false).change(|case| case.usage = Err("no".to_owned()));
    assert_eq!(cause(&failing), Cause::FetchFailed);
}

#[test]
fn flag_defaults_are_those_of_the_release() {
    let config = Config::default();
    assert_eq!(config.tolerance, 0.1);
    assert_eq!(config.cpu_initialization_period.as_secs(), 300);
    assert_eq!(config.initial_readiness_delay.as_secs(), 30);
    assert_ne!(config, test_config());
}
