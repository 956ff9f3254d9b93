//! Tests of replica groups, against the golden vectors 155 to 192 that need only pod counts.

use std::sync::Arc;

use crate::types::Time;

use super::*;
use crate::{types::compat::Compat, updater::pod_status::Readiness};

fn owner(kind: &str) -> PodOwner {
    PodOwner { kind: kind.into(), name: "web".into() }
}

fn pod(kind: &str, phase: Phase, ready: bool) -> PodStatus {
    let at = Time::EPOCH;
    let readiness = if ready { Readiness::Ready(at) } else { Readiness::Unready(at) };
    PodStatus { owner: Some(owner(kind)), phase, readiness, ..PodStatus::default() }
}

fn member(pod: &PodStatus) -> GroupMember<'_> {
    GroupMember { status: pod, boosted: false, counts_as_down: false }
}

fn rules(min_replicas: i64, tolerance: f64) -> GroupRules {
    GroupRules { min_replicas, tolerance, in_place_skips_budget: false, surges: false }
}

/// Evicts as many pods as the groups allow, and returns their number.
fn evict_all(groups: &mut ReplicaGroups, pods: &[PodStatus]) -> usize {
    let mut evicted_pods = 0;
    for pod in pods {
        if groups.may_evict(pod, false).is_ok() {
            evicted_pods += 1;
            if pod.phase != Phase::Pending {
                groups.get_mut(pod).expect("the group exists").budget.evicted += 1;
            }
        }
    }
    evicted_pods
}

fn count(
    pods: &[PodStatus],
    wanted: DesiredReplicas,
    rules: &GroupRules,
    compat: Compat,
) -> ReplicaGroups {
    ReplicaGroups::count(pods.iter().map(member), |_| wanted, rules, &Settings::for_compat(compat))
}

/// Vectors 155 to 174.
#[test]
fn the_budget_of_a_pass_follows_replicas_and_tolerance() {
    for (configured, share, running, tolerance, evictable) in [
        (1, 0.5, 1, 0, 1),
        (2, 0.5, 2, 1, 1),
        (2, 0.5, 1, 1, 0),
        (3, 0.5, 3, 1, 1),
        (3, 0.5, 2, 1, 0),
        (4, 0.5, 4, 2, 2),
        (4, 0.5, 3, 2, 1),
        (4, 0.5, 2, 2, 0),
        (5, 0.5, 5, 2, 2),
        (5, 0.8, 5, 4, 4),
        (5, 0.1, 5, 0, 1),
        (5, 0.1, 4, 0, 0),
        (3, 1.0, 3, 3, 3),
        (3, 1.0, 1, 3, 1),
        (10, 0.25, 10, 2, 2),
        (10, 0.25, 8, 2, 0),
        (3, 0.1, 4, 0, 1),
        (0, 0.5, 5, 0, 5),
        (5, 0.99, 5, 4, 4),
        (7, 0.5, 7, 3, 3),
    ] {
        let mut budget = GroupBudget::new(configured, share, running);
        assert_eq!(budget.tolerance, tolerance, "{configured} {share}");
        while budget.evicted < running && budget.allows_one_more() {
            budget.evicted += 1;
        }
        assert_eq!(budget.evicted, evictable, "{configured} {share} {running}");
    }
}

/// Vectors 175 to 183, 186 and 187. Both modes count the same pods as available here.
#[test]
fn pending_pods_are_always_evictable_and_running_ones_within_the_budget() {
    for (configured, share, min, running, pending, evictable) in [
        (3, 0.5, 2, 3, 0, 1),
        (4, 0.5, 2, 4, 0, 2),
        (4, 0.5, 2, 3, 0, 1),
        (3, 0.1, 2, 3, 0, 1),
        (3, 0.1, 2, 2, 0, 0),
        (3, 0.5, 2, 2, 1, 1),
        (4, 0.5, 2, 1, 3, 3),
        (1, 0.5, 2, 1, 0, 0),
        (1, 0.5, 1, 1, 0, 1),
        (5, 0.5, 10, 5, 0, 0),
        (5, 0.8, 2, 5, 0, 4),
        (5, 0.1, 2, 5, 0, 1),
    ] {
        let mut pods = vec![pod("ReplicaSet", Phase::Running, true); running];
        pods.extend(vec![pod("ReplicaSet", Phase::Pending, false); pending]);
        for compat in [Compat::Upstream, Compat::Plimsoll] {
            let mut groups =
                count(&pods, DesiredReplicas::Known(configured), &rules(min, share), compat);
            let evicted_pods = evict_all(&mut groups, &pods);
            assert_eq!(
                evicted_pods, evictable,
                "{compat:?} {configured} {share} {min} {running} {pending}"
            );
        }
    }
}

/// Vector 188, and change 24 of 1.8.1.
#[test]
fn desired_replicas_are_known_for_each_kind() {
    for (kind, wanted) in [
        ("ReplicaSet", DesiredReplicas::Known(5)),
        ("StatefulSet", DesiredReplicas::Known(5)),
        ("ReplicationController", DesiredReplicas::Known(5)),
        ("DaemonSet", DesiredReplicas::Known(5)),
        ("Job", DesiredReplicas::Unknown),
    ] {
        let pods = vec![pod(kind, Phase::Running, true); 5];
        for compat in [Compat::Upstream, Compat::Plimsoll] {
            let mut groups = count(&pods, wanted, &rules(2, 0.5), compat);
            assert_eq!(evict_all(&mut groups, &pods), 2, "{kind} {compat:?}");
        }
    }
    for wanted in
        [DesiredReplicas::Known(0), DesiredReplicas::Unspecified, DesiredReplicas::Unknown]
    {
        let pods = vec![pod("DaemonSet", Phase::Running, true); 5];
        let groups = count(&pods, wanted, &rules(2, 0.5), Compat::Upstream);
        assert_eq!(groups.get(&pods[0]).err(), Some(SkipReason::ReplicasUnknown), "{wanted:?}");
    }
}

/// Vector 172 and defect 22.
#[test]
fn unknown_owners_have_replicas() {
    let pods = vec![pod("CloneSet", Phase::Running, true); 5];
    let evicted =
        |wanted, compat| evict_all(&mut count(&pods, wanted, &rules(2, 0.5), compat), &pods);
    assert_eq!(evicted(DesiredReplicas::Known(5), Compat::Upstream), 5, "all at once");
    assert_eq!(evicted(DesiredReplicas::Known(5), Compat::Plimsoll), 2);
    assert_eq!(evicted(DesiredReplicas::SameAsCurrent, Compat::Plimsoll), 2);
    assert_eq!(evicted(DesiredReplicas::Unknown, Compat::Plimsoll), 0);
}

/// Defect 24.
#[test]
fn only_ready_pods_are_alive() {
    let mut pods = vec![pod("ReplicaSet", Phase::Running, true); 4];
    pods[0].readiness = Readiness::Unready(Time::EPOCH);
    pods[1].readiness = Readiness::Unready(Time::EPOCH);
    let evicted = |compat| {
        evict_all(&mut count(&pods, DesiredReplicas::Known(4), &rules(2, 0.5), compat), &pods)
    };
    assert_eq!(evicted(Compat::Upstream), 2, "so all four are down");
    assert_eq!(evicted(Compat::Plimsoll), 0);
    let settings = Settings::default();
    let groups = ReplicaGroups::count(
        pods.iter().map(member),
        |_| DesiredReplicas::Known(4),
        &rules(2, 0.5),
        &settings,
    );
    assert_eq!(groups.may_evict(&pods[0], true), Ok(()), "an unready pod blocks nothing");
    assert!(matches!(
        groups.may_evict(&pods[2], false),
        Err(SkipReason::Budget { alive: 2, wanted: 4 })
    ));
}

/// Vectors 184 and defect 23.
#[test]
fn boost_lifts_unboost_only() {
    let pods = [pod("ReplicaSet", Phase::Running, true)];
    let boosted = pods.iter().map(|pod| GroupMember { boosted: true, ..member(pod) });
    let evicted = |compat| {
        let settings = Settings::for_compat(compat);
        let groups = ReplicaGroups::count(
            boosted.clone(),
            |_| DesiredReplicas::Known(1),
            &rules(2, 0.5),
            &settings,
        );
        assert!(groups.get(&pods[0]).is_ok(), "its boost can be ended");
        groups.may_evict(&pods[0], false)
    };
    assert_eq!(evicted(Compat::Upstream), Ok(()));
    assert_eq!(evicted(Compat::Plimsoll), Err(SkipReason::BelowMinReplicas { live: 1 }));
}

/// Vectors 182, 185 and 215.
#[test]
fn a_group_below_the_minimum_is_kept_only_for_resizes_that_skip_the_budget() {
    let pods = [pod("ReplicaSet", Phase::Running, true)];
    for compat in [Compat::Upstream, Compat::Plimsoll] {
        let skips = GroupRules { in_place_skips_budget: true, ..rules(2, 0.5) };
        let groups = count(&pods, DesiredReplicas::Known(5), &skips, compat);
        assert!(groups.get(&pods[0]).is_ok());
        assert_eq!(
            groups.may_evict(&pods[0], false),
            Err(SkipReason::BelowMinReplicas { live: 1 })
        );
        let groups = count(&pods, DesiredReplicas::Known(5), &rules(2, 0.5), compat);
        assert_eq!(groups.get(&pods[0]).err(), Some(SkipReason::BelowMinReplicas { live: 1 }));
    }
    let orphan = PodStatus { owner: None, ..PodStatus::default() };
    assert_eq!(ReplicaGroups::default().get(&orphan).err(), Some(SkipReason::NoController));
}

#[test]
fn each_owner_is_a_separate_group() {
    let mut pods = vec![pod("ReplicaSet", Phase::Running, true); 4];
    pods[2].owner = Some(PodOwner { kind: "ReplicaSet".into(), name: Arc::from("web-new") });
    pods[3] = pods[2].clone();
    let mut groups = count(&pods, DesiredReplicas::Known(2), &rules(2, 0.5), Compat::Plimsoll);
    assert_eq!(groups.iter().count(), 2);
    assert_eq!(evict_all(&mut groups, &pods), 2, "one of each");
}
