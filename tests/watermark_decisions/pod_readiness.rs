//! Which pods count as ready: vectors P1 to P20 and O1 to O7.

use std::time::Duration;

use plimsoll_core::{
    scaling::{
        Pod, PodsNotReady, ReadinessPolicy, Scale,
        pod_readiness::{Phase, Usage, is_owner_by_name},
    },
    types::compat::Fixes,
};

use serde_json::json;

use super::{NOW, OBJECT, ago, both_modes, pending_pod, pod, pods, spec};

const fn readiness(fixes: Fixes) -> ReadinessPolicy<'static> {
    let delay = Duration::from_secs(10);
    let (pending_counts, starting_ignored) = (delay, delay);
    ReadinessPolicy {
        target: OBJECT,
        pending_counts_for: pending_counts,
        starting_ignored_for: starting_ignored,
        min_ready_percent: 0,
        now: NOW,
        fixes,
    }
}

const fn scale(replicas: i32) -> Scale {
    Scale { spec_replicas: replicas, status_replicas: replicas }
}

fn usage(pods: &[Pod]) -> Usage {
    pods.iter().map(|pod| (pod.name.clone(), 1)).collect()
}

/// Returns a pod started this many seconds ago, with this readiness since then.
fn pod_since(number: usize, started: u64, ready: bool, since: u64) -> Pod {
    Pod { started: Some(ago(started)), ready: Some((ready, ago(since))), ..pod(number) }
}

#[test]
fn cpu_usage_of_a_starting_pod_does_not_count() {
    for fixes in both_modes() {
        let unknown = Pod { ready: None, ..pod(0) };
        for (name, pods, is_cpu, samples, expected) in [
            ("P1", vec![], true, 0, (0, 0)),
            ("P2", vec![Pod { phase: Phase::Succeeded, ..pod(0) }], false, 1, (1, 0)),
            ("P3", vec![unknown.clone()], true, 1, (0, 1)),
            ("P4", vec![pod_since(0, 60, true, 30)], true, 1, (1, 0)),
            ("P5", vec![pod_since(0, 600, false, 594)], true, 1, (0, 1)),
            ("P6", vec![pod_since(0, 180, true, 150)], true, 1, (1, 0)),
            ("P7", vec![pod_since(0, 600, false, 540)], true, 1, (0, 1)),
            ("P8", vec![pod_since(0, 600, false, 595)], true, 1, (0, 1)),
            ("P9", vec![pod(0)], true, 0, (0, 0)),
            ("P12", vec![pending_pod(0, 5)], true, 1, (0, 1)),
            ("P13", vec![Pod { owned_by_target: false, ..pod(0) }], true, 1, (0, 0)),
        ] {
            let samples = usage(&pods[..samples]);
            let grouped = readiness(fixes).group_pods(&pods, is_cpu, &samples);
            assert_eq!((grouped.ready, grouped.ignored.len()), expected, "{name}");
        }
    }
}

#[test]
fn a_pod_that_was_ready_at_once_is_ignored_forever_only_by_upstream() {
    // P10: a pod without a ready condition, one that was ready when it started, and one without a sample.
    let three = vec![Pod { ready: None, ..pod(0) }, pod_since(1, 60, true, 60), pod(2)];
    let grouped = |fixes| {
        let grouped = readiness(fixes).group_pods(&three, true, &usage(&three[..2]));
        (grouped.ready, grouped.ignored.len())
    };
    assert_eq!(both_modes().map(grouped), [(0, 2), (1, 1)]);
    let young = vec![pod_since(0, 9, true, 9)];
    let grouped = |fixes| readiness(fixes).group_pods(&young, true, &usage(&young)).ready;
    assert_eq!(both_modes().map(grouped), [0, 0], "it still has a second to go");
    // P11: pods of another ReplicaSet are ignored.
    let other = |number| Pod { owned_by_target: false, ..pod(number) };
    let mixed = vec![other(0), other(1), pod_since(2, 60, true, 60)];
    let grouped = readiness(both_modes()[0]).group_pods(&mixed, true, &usage(&mixed));
    assert_eq!((grouped.ready, grouped.ignored.len()), (0, 1));
}

#[test]
fn ready_pods_are_counted_as_upstream_does() {
    for fixes in both_modes() {
        let count = |pods: &[Pod]| readiness(fixes).ready_pods(pods, scale(100));
        assert_eq!(count(&pods(3)), Ok(3), "P14");
        assert_eq!(count(&[pending_pod(0, 5), pending_pod(1, 20), pod(2)]), Ok(2), "P15");
        let failed: Vec<Pod> =
            pods(3).into_iter().map(|pod| Pod { phase: Phase::Failed, ..pod }).collect();
        assert_eq!(count(&failed), Err(PodsNotReady::NoneReady { among: 3 }), "P16");
        assert_eq!(
            PodsNotReady::NoneReady { among: 3 }.to_string(),
            "among the 3 pods, none is ready. Skipping recommendation"
        );
        let waiting: Vec<Pod> = (0..3).map(|number| pending_pod(number, 120)).collect();
        assert_eq!(count(&waiting), Err(PodsNotReady::NoneReady { among: 3 }), "P17");
        assert_eq!(count(&[pod(0), pending_pod(1, 5), pending_pod(2, 120)]), Ok(2), "P18");
        let mut four = pods(4);
        four[0].terminating = true;
        four[1].terminating = true;
        assert_eq!(count(&four), Ok(2), "P19");
        let foreign: Vec<Pod> =
            pods(2).into_iter().map(|pod| Pod { owned_by_target: false, ..pod }).collect();
        assert_eq!(count(&foreign), Err(PodsNotReady::NoneReady { among: 2 }), "P20");
        assert_eq!(
            readiness(fixes).ready_pods(&pods(4), scale(3)),
            Ok(3),
            "no more than the workload has"
        );
        assert_eq!(count(&[]), Err(PodsNotReady::NoPods));
    }
}

#[test]
fn owners_are_recognized_by_name_as_upstream_does() {
    for (name, kind, owner, target, expected) in [
        ("O1", "StatefulSet", "foo", "foo", true),
        ("O2", "StatefulSet", "foo-ssdsdd", "foo", false),
        ("O3", "ReplicaSet", "foo-eyruwey", "foo", true),
        ("O4", "ReplicaSet", "foo-bar-ssdsdd", "foo", false),
        ("O5", "Custom", "foo", "foo", true),
        ("O6", "Custom", "foo-1", "foo", false),
        ("O7", "ReplicaSet", "foo", "foo", true),
        ("P13", "ReplicaSet", "foo-bar-123-base", "foo-bar-123-345", false),
    ] {
        assert_eq!(is_owner_by_name(kind, owner, target), expected, "{name}");
    }
}

#[test]
fn the_share_of_ready_pods_is_of_all_pods() {
    // Two of eight pods are ready and use something; six are starting.
    let mut eight = pods(8);
    for pod in eight.iter_mut().skip(2) {
        pod.ready = Some((false, ago(5)));
    }
    let evaluate = |fixes| {
        let readiness = ReadinessPolicy { min_ready_percent: 50, ..readiness(fixes) };
        readiness.total_usage(&eight, true, &usage(&eight))
    };
    let [theirs, ours] = both_modes().map(evaluate);
    assert_eq!(theirs, Ok((2, 2)), "upstream sees two of two");
    assert_eq!(ours, Err(PodsNotReady::TooFewReady { percent: 25, object: "shop/web".to_owned() }));
}

/// Vector C46: the message names the target.
#[test]
fn the_error_about_too_few_ready_pods_names_the_target() {
    let target = json!({"scaleTargetRef": {"kind": "Deployment", "name": "foo-bar-123"}});
    let spec = spec(target);
    let object = plimsoll_core::watermark::spec::target_name("", &spec);
    let readiness =
        ReadinessPolicy { target: object, min_ready_percent: 30, ..readiness(both_modes()[0]) };
    let mut four: Vec<Pod> = (0..3).map(|number| pending_pod(number, 60)).collect();
    four.push(pod(3));
    let why =
        readiness.ready_pods(&four, scale(4)).expect_err("a quarter of the pods is not enough");
    assert_eq!(why.to_string(), "25 % of the pods are unready, will not autoscale /foo-bar-123");
}
