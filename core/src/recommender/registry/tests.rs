//! Tests of the registry: which histories are restored, and which OOM kills count.

mod plans;
mod saves;

use std::{collections::HashSet, time::Duration};

use crate::history::Throttling;

use super::*;
use crate::{
    recommender::{
        OomKill, RecommendationReason, ResourceAmounts,
        memory_window::SampleRejected,
        node_capacity::NodeCapacity,
        pod_cap::{self, PodCapacity},
    },
    types::units::{Bytes, MilliCpu},
};

const START: Time = Time::from_secs(1_780_000_000);
const MINUTE: Duration = Duration::from_mins(1);
const AGE: Duration = Duration::from_mins(4);
const DAY: Duration = Duration::from_hours(24);
const KILL: OomKill = OomKill { request: Bytes(1 << 30), limit: None, usage: None };

fn registry(compat: Compat, names: &[&str]) -> VpaRegistry {
    let mut registry = VpaRegistry::new(Settings::for_compat(compat), compat);
    for name in names {
        registry.track(&vpa(name), VpaSettings::default(), START);
        load(&mut registry, name);
    }
    registry
}

fn load(registry: &mut VpaRegistry, name: &str) {
    let load_generation = registry.load_generation(&vpa(name)).expect("tracked");
    registry.mark_loaded(&vpa(name), load_generation);
}

fn vpa(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

fn key(name: &str) -> ContainerKey {
    ContainerKey::new(vpa(name), "main")
}

fn minute(number: u32) -> Time {
    START.later(MINUTE * number)
}

fn take(registry: &mut VpaRegistry, name: &str, at: Time) {
    let (cpu, memory) = (Some(MilliCpu(100)), Some(Bytes(100 << 20)));
    let usage = UsageSample { pod: "pod-0", container: "main", at, cpu, memory };
    let result = registry.ingest().add_usage(&vpa(name), usage, at).expect("tracked");
    assert_eq!((result.cpu, result.memory), (Some(Ok(())), Some(Ok(()))));
}

fn kill(registry: &mut VpaRegistry, name: &str, at: Time, now: Time) -> OomResult {
    registry.ingest().add_oom(&vpa(name), ("pod-0", "main"), (at, KILL), true, now)
}

fn due(registry: &mut VpaRegistry, now: Time) -> Vec<String> {
    registry
        .saves()
        .due_for_save(now, AGE, 100, &HashSet::new())
        .iter()
        .map(|key| key.name.to_string())
        .collect()
}

fn save(registry: &mut VpaRegistry, name: &str, now: Time) {
    assert!(!registry.saves().records(&vpa(name), now).is_empty(), "{name} has something to save");
    registry.saves().mark_saved(&vpa(name), &["main".into()], now);
}

/// The stored history of a workload that was observed for this many minutes.
fn stored(minutes: u32, owner: Option<&str>) -> Snapshot {
    let mut source = registry(Compat::Plimsoll, &["source"]);
    (0..minutes).for_each(|number| take(&mut source, "source", minute(number)));
    if let Some(owner) = owner {
        source.set_owner(&vpa("source"), owner);
    }
    source.saves().records(&vpa("source"), minute(minutes)).remove(0).snapshot
}

#[test]
fn nothing_is_saved_or_recommended_before_stored_history_is_loaded() {
    let mut registry = registry(Compat::Plimsoll, &[]);
    registry.track(&vpa("web"), VpaSettings::default(), START);
    take(&mut registry, "web", minute(0));
    assert!(matches!(kill(&mut registry, "web", minute(1), minute(1)), OomResult::Counted(_)));
    assert!(due(&mut registry, minute(99)).is_empty());
    assert_eq!(registry.recommend(&vpa("web"), minute(1)), None);
    load(&mut registry, "web");
    assert_eq!(due(&mut registry, minute(99)), ["web"]);
    assert!(registry.recommend(&vpa("web"), minute(1)).is_some());
}

#[test]
fn a_load_for_a_vpa_recreated_meanwhile_is_discarded() {
    let mut registry = registry(Compat::Plimsoll, &[]);
    registry.track(&vpa("web"), VpaSettings::default(), START);
    let before = registry.load_generation(&vpa("web")).expect("tracked");
    registry.untrack(&vpa("web"));
    registry.track(&vpa("web"), VpaSettings::default(), minute(1));
    registry.mark_loaded(&vpa("web"), before);
    assert_eq!(registry.waiting_for_history().count(), 1);
    let before = registry.load_generation(&vpa("web")).expect("tracked");
    registry.set_owner(&vpa("web"), "apps/Deployment/web");
    registry.mark_loaded(&vpa("web"), before);
    assert_eq!(registry.waiting_for_history().count(), 1, "the load did not know the owner");
    load(&mut registry, "web");
    assert_eq!(registry.waiting_for_history().count(), 0);
}

#[test]
fn an_owner_found_late_triggers_a_load_of_inherited_history() {
    let mut registry = registry(Compat::Plimsoll, &["bare", "endowed"]);
    registry.restore(&key("endowed"), &stored(60, None), minute(60), false).expect("good");
    take(&mut registry, "bare", minute(60));
    for name in ["bare", "endowed"] {
        registry.set_owner(&vpa(name), "apps/Deployment/web");
    }
    let waiting: Vec<_> = registry.waiting_for_history().collect();
    assert_eq!(waiting, [(&vpa("bare"), Some("apps/Deployment/web"))]);
    let restored =
        registry.restore(&key("bare"), &stored(60, Some("apps/Deployment/web")), minute(61), false);
    assert_eq!(restored, Ok(RestoreResult::Merged));
    let count = registry
        .get(&vpa("bare"))
        .and_then(|state| state.history.get("main"))
        .map(|history| history.cpu_samples.count);
    assert_eq!(count, Some(61), "in addition to the live samples");
}

#[test]
fn another_workload_starts_without_history_and_may_replace_the_stored_one() {
    for owner in [Some("apps/Deployment/old"), None] {
        let mut registry = registry(Compat::Plimsoll, &[]);
        registry.track(&vpa("web"), VpaSettings::default(), START);
        registry.set_owner(&vpa("web"), "apps/Deployment/old");
        registry.restore(&key("web"), &stored(60, owner), minute(60), false).expect("good");
        load(&mut registry, "web");
        take(&mut registry, "web", minute(60));
        registry.saves().records(&vpa("web"), minute(60));

        registry.set_owner(&vpa("web"), "apps/Deployment/new");
        registry.saves().mark_saved(&vpa("web"), &["main".into()], minute(61));
        assert_eq!(registry.containers(), 0, "{owner:?}");
        let again = registry.restore(&key("web"), &stored(60, owner), minute(61), false);
        assert_eq!(again, Ok(RestoreResult::Expired), "{owner:?}: it belongs to the old workload");
        load(&mut registry, "web");
        take(&mut registry, "web", minute(62));
        let records = registry.saves().records(&vpa("web"), minute(62));
        assert!(
            records[0].supersede,
            "{owner:?}: saving the old workload does not count for the new one"
        );
        registry.saves().mark_saved(&vpa("web"), &["main".into()], minute(62));
        take(&mut registry, "web", minute(63));
        assert!(!registry.saves().records(&vpa("web"), minute(63))[0].supersede, "{owner:?}");
    }
}

#[test]
fn a_richer_record_is_adopted_and_a_poorer_or_expired_one_is_not() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    (60..70).for_each(|number| take(&mut registry, "web", minute(number)));
    let count = |registry: &VpaRegistry| {
        registry
            .get(&vpa("web"))
            .and_then(|state| state.history.get("main"))
            .map(|history| history.cpu_samples.count)
    };
    assert_eq!(
        registry.restore(&key("web"), &stored(5, None), minute(70), true),
        Ok(RestoreResult::AlreadyLoaded)
    );
    assert_eq!(count(&registry), Some(10));
    assert_eq!(
        registry.restore(&key("web"), &stored(50, None), minute(70), true),
        Ok(RestoreResult::Merged)
    );
    assert_eq!(count(&registry), Some(50), "it replaces ours, so that nothing counts twice");

    let late = START.later(DAY * 20);
    take(&mut registry, "web", late);
    assert_eq!(
        registry.restore(&key("web"), &stored(100, None), late, true),
        Ok(RestoreResult::Expired)
    );
    assert_eq!(count(&registry), Some(51), "an expired record replaces nothing");
    assert!(registry.saves().records(&vpa("web"), late)[0].supersede, "but may be replaced");
}

#[test]
fn an_oom_kill_counts_once_whichever_version_stored_the_history() {
    let now = minute(3000);
    let ours = {
        let mut registry = registry(Compat::Plimsoll, &["web"]);
        (0..3000).for_each(|number| take(&mut registry, "web", minute(number)));
        assert!(matches!(kill(&mut registry, "web", minute(2999), now), OomResult::Counted(_)));
        assert_eq!(kill(&mut registry, "web", minute(2999), now), OomResult::Known);
        registry.saves().records(&vpa("web"), now).remove(0).snapshot
    };
    // Upstream's checkpoints do not have pods.
    let upstream = Snapshot { replicas: Vec::new(), bump: None, ..ours.clone() };
    for (stored, name, at, counts) in [
        (&ours, "ours", 2999, false),
        (&ours, "ours, a new kill", 3000, true),
        (&upstream, "upstream's, window open", 2999, true),
        (&upstream, "upstream's, window closed", 100, false),
    ] {
        let mut registry = registry(Compat::Plimsoll, &["web"]);
        registry.restore(&key("web"), stored, now, false).expect("good");
        let outcome = kill(&mut registry, "web", minute(at), now);
        assert_eq!(matches!(outcome, OomResult::Counted(_)), counts, "{name}: {outcome:?}");
        let again = kill(&mut registry, "web", minute(at), now);
        assert_eq!(again, OomResult::Known, "{name}: the pod status keeps showing it");
    }
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    assert_eq!(kill(&mut registry, "web", START, START.later(DAY * 9)), OomResult::Expired);
    assert_eq!(kill(&mut registry, "other", START, START), OomResult::Untracked);
}

#[test]
fn a_rejection_is_reported_once_and_outdated_records_are_dropped_after_collection() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    assert!(
        registry.saves().mark_rejected(&vpa("web")) && !registry.saves().mark_rejected(&vpa("web"))
    );
    take(&mut registry, "web", START);
    let late = START.later(DAY * 9);
    assert_eq!(registry.forget_expired(late), [key("web")]);
    let is_outdated = |registry: &VpaRegistry| {
        registry.get(&vpa("web")).is_some_and(|state| state.history.supersedes("main"))
    };
    assert!(is_outdated(&registry), "its record may be replaced");
    registry.saves().clear_stale_records();
    assert!(!is_outdated(&registry));
}

#[test]
fn the_delay_until_the_first_recommendation_is_reported_once() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    let empty = registry.recommend(&vpa("web"), minute(1)).expect("loaded");
    assert_eq!(registry.store_summary(&vpa("web"), &empty, minute(1)), None);
    take(&mut registry, "web", minute(2));
    let recommendation = registry.recommend(&vpa("web"), minute(3)).expect("loaded");
    assert_ne!(recommendation.containers[0].target, ResourceAmounts::default());
    assert_eq!(registry.store_summary(&vpa("web"), &recommendation, minute(3)), Some(MINUTE * 3));
    assert_eq!(
        registry.store_summary(&vpa("web"), &recommendation, minute(4)),
        None,
        "only the first"
    );
}

#[test]
fn both_limits_are_reported_when_both_apply() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    take(&mut registry, "web", minute(2));
    let mut recommendation = registry.recommend(&vpa("web"), minute(3)).expect("loaded");
    assert_eq!(pod_cap::restricted_by(&recommendation).count(), 0);
    let cap = ResourceAmounts { cpu: "1m".parse().ok(), memory: None };
    let node_capacities = vec![NodeCapacity { cpu: MilliCpu(4000), memory: Bytes(1 << 20) }];
    let limits = pod_cap::cap_to_pod(&mut recommendation, &PodCapacity { cap, node_capacities });
    assert_eq!(limits.cpu.map(|limit| limit.by), Some(RecommendationReason::PodCap));
    assert_eq!(limits.memory.map(|limit| limit.by), Some(RecommendationReason::NodeCap));
    let named: Vec<RecommendationReason> = pod_cap::restricted_by(&recommendation).collect();
    assert_eq!(named, [RecommendationReason::NodeCap, RecommendationReason::PodCap]);
}

#[test]
fn an_unreadable_history_is_loaded_again_and_not_overwritten() {
    let mut registry = registry(Compat::Plimsoll, &[]);
    registry.track(&vpa("web"), VpaSettings::default(), START);
    registry.mark_missing(&vpa("web"));
    (60..70).for_each(|number| take(&mut registry, "web", minute(number)));
    assert!(registry.recommend(&vpa("web"), minute(70)).is_some(), "live samples count meanwhile");
    assert!(due(&mut registry, minute(99)).is_empty(), "the stored history is unknown");
    assert_eq!(registry.waiting_for_history().count(), 0);
    assert_eq!(registry.with_missing_history().collect::<Vec<_>>(), [(&vpa("web"), None)]);
    registry.restore(&key("web"), &stored(60, None), minute(70), false).expect("good");
    load(&mut registry, "web");
    assert_eq!(registry.with_missing_history().count(), 0);
    let count = registry
        .get(&vpa("web"))
        .and_then(|state| state.history.get("main"))
        .map(|history| history.cpu_samples.count);
    assert_eq!(count, Some(70), "the stored and the live samples");
    assert_eq!(due(&mut registry, minute(99)), ["web"]);
}

#[test]
fn a_stored_sample_counts_once_when_its_history_is_loaded_later() {
    let stats = |registry: &VpaRegistry| {
        let history = registry.get(&vpa("web")).and_then(|state| state.history.get("main"));
        history.map(|history| (history.cpu_samples, history.memory_samples))
    };
    let mut continuous = registry(Compat::Plimsoll, &["web"]);
    (0..60).for_each(|number| take(&mut continuous, "web", minute(number)));
    // The last stored sample is that of minute 59, and metrics show it until the next one is measured.
    for later in [60, 63] {
        (60..later).for_each(|number| {
            if continuous.get(&vpa("web")).and_then(|vpa| vpa.last_sample) < Some(minute(number)) {
                take(&mut continuous, "web", minute(number));
            }
        });
        let mut restarted = registry(Compat::Plimsoll, &[]);
        restarted.track(&vpa("web"), VpaSettings::default(), START);
        (59..later).for_each(|number| take(&mut restarted, "web", minute(number)));
        restarted.restore(&key("web"), &stored(60, None), minute(later), false).expect("good");
        load(&mut restarted, "web");
        assert_eq!(stats(&restarted), stats(&continuous), "until minute {later}");
        let recommend = |registry: &VpaRegistry| {
            registry.recommend(&vpa("web"), minute(later)).expect("loaded")
        };
        assert_eq!(recommend(&restarted), recommend(&continuous), "until minute {later}");
    }
}

#[test]
fn throttling_is_dropped_with_the_limit_and_that_is_saved() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    take(&mut registry, "web", minute(1));
    let measured = Throttling { throttled: 4.0, periods: 10.0, at: minute(2) };
    registry.ingest().set_throttling(&key("web"), Some(measured), minute(2));
    let throttling = |registry: &VpaRegistry| {
        let history = registry.get(&vpa("web")).and_then(|state| state.history.get("main"));
        history.expect("has one").throttling().copied()
    };
    assert_eq!(throttling(&registry), Some(measured));
    save(&mut registry, "web", minute(3));
    assert_eq!(registry.unsaved_stats().0, 0);
    registry.ingest().set_throttling(&key("web"), None, minute(4));
    assert_eq!((throttling(&registry), registry.unsaved_stats().0), (None, 1));
}

#[test]
fn a_repeated_memory_sample_counts_once_and_changes_nothing() {
    let ingest = |compat: Compat| {
        let mut registry = registry(compat, &["web"]);
        let mut add = |bytes: i64| {
            let (cpu, memory) = (Some(MilliCpu(100)), Some(Bytes(bytes)));
            let (pod, container, at) = ("pod-0", "main", minute(1));
            let usage = UsageSample { pod, container, at, cpu, memory };
            let result =
                registry.ingest().add_usage(&vpa("web"), usage, minute(2)).expect("tracked");
            if bytes == 1000 {
                save(&mut registry, "web", minute(2));
            }
            (result.memory.expect("a memory sample"), registry.unsaved_stats().0)
        };
        let results = [add(1000), add(1000), add(900), add(2000)];
        let history = registry.get(&vpa("web")).and_then(|state| state.history.get("main"));
        (results, history.expect("has one").memory_samples.count)
    };
    let repeated = (Err(SampleRejected::Duplicate), 0);
    let (results, count) = ingest(Compat::Plimsoll);
    assert_eq!(results, [(Ok(()), 0), repeated, repeated, (Ok(()), 1)]);
    assert_eq!(count, 2, "a larger amount of the same time is another sample");
    // Upstream reports each sample in its quality metrics, and does not deduplicate memory samples.
    assert_eq!(ingest(Compat::Upstream).1, 4);
}
