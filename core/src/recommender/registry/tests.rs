//! The fleet as its users see it: what comes back, and which kills count.

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

fn fleet(compat: Compat, names: &[&str]) -> VpaRegistry {
    let mut fleet = VpaRegistry::new(Settings::for_compat(compat), compat);
    for name in names {
        fleet.track(&vpa(name), VpaSettings::default(), START);
        load(&mut fleet, name);
    }
    fleet
}

fn load(fleet: &mut VpaRegistry, name: &str) {
    let sighting = fleet.load_generation(&vpa(name)).expect("tracked");
    fleet.mark_loaded(&vpa(name), sighting);
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

fn take(fleet: &mut VpaRegistry, name: &str, at: Time) {
    let (cpu, memory) = (Some(MilliCpu(100)), Some(Bytes(100 << 20)));
    let usage = UsageSample { pod: "pod-0", container: "main", at, cpu, memory };
    let taken = fleet.add_usage(&vpa(name), usage, at).expect("tracked");
    assert_eq!((taken.cpu, taken.memory), (Some(Ok(())), Some(Ok(()))));
}

fn kill(fleet: &mut VpaRegistry, name: &str, at: Time, now: Time) -> OomResult {
    fleet.add_oom(&vpa(name), ("pod-0", "main"), (at, KILL), true, now)
}

fn due(fleet: &VpaRegistry, now: Time) -> Vec<String> {
    fleet
        .due_for_save(now, AGE, 100, &HashSet::new())
        .iter()
        .map(|key| key.name.to_string())
        .collect()
}

fn save(fleet: &mut VpaRegistry, name: &str, now: Time) {
    assert!(!fleet.records(&vpa(name), now).is_empty(), "{name} has something to save");
    fleet.mark_saved(&vpa(name), &["main".into()], now);
}

/// What a storage holds of a workload that was seen for so many minutes.
fn stored(minutes: u32, owner: Option<&str>) -> Snapshot {
    let mut seen = fleet(Compat::Plimsoll, &["seen"]);
    (0..minutes).for_each(|number| take(&mut seen, "seen", minute(number)));
    if let Some(owner) = owner {
        seen.set_owner(&vpa("seen"), owner);
    }
    seen.records(&vpa("seen"), minute(minutes)).remove(0).snapshot
}

#[test]
fn nothing_is_saved_or_said_before_the_stored_history_was_read() {
    let mut fleet = fleet(Compat::Plimsoll, &[]);
    fleet.track(&vpa("web"), VpaSettings::default(), START);
    take(&mut fleet, "web", minute(0));
    assert!(matches!(kill(&mut fleet, "web", minute(1), minute(1)), OomResult::Counted(_)));
    assert!(due(&fleet, minute(99)).is_empty());
    assert_eq!(fleet.recommend(&vpa("web"), minute(1)), None);
    load(&mut fleet, "web");
    assert_eq!(due(&fleet, minute(99)), ["web"]);
    assert!(fleet.recommend(&vpa("web"), minute(1)).is_some());
}

#[test]
fn a_load_for_a_vpa_that_was_made_anew_meanwhile_is_not_its_own() {
    let mut fleet = fleet(Compat::Plimsoll, &[]);
    fleet.track(&vpa("web"), VpaSettings::default(), START);
    let before = fleet.load_generation(&vpa("web")).expect("tracked");
    fleet.untrack(&vpa("web"));
    fleet.track(&vpa("web"), VpaSettings::default(), minute(1));
    fleet.mark_loaded(&vpa("web"), before);
    assert_eq!(fleet.waiting_for_history().count(), 1);
    let before = fleet.load_generation(&vpa("web")).expect("tracked");
    fleet.set_owner(&vpa("web"), "apps/Deployment/web");
    fleet.mark_loaded(&vpa("web"), before);
    assert_eq!(fleet.waiting_for_history().count(), 1, "what was read was not asked for by owner");
    load(&mut fleet, "web");
    assert_eq!(fleet.waiting_for_history().count(), 0);
}

#[test]
fn an_owner_that_is_found_late_is_asked_for_something_to_inherit() {
    let mut fleet = fleet(Compat::Plimsoll, &["bare", "endowed"]);
    fleet.restore(&key("endowed"), &stored(60, None), minute(60)).expect("good");
    take(&mut fleet, "bare", minute(60));
    for name in ["bare", "endowed"] {
        fleet.set_owner(&vpa(name), "apps/Deployment/web");
    }
    let waiting: Vec<_> = fleet.waiting_for_history().collect();
    assert_eq!(waiting, [(&vpa("bare"), Some("apps/Deployment/web"))]);
    let restored =
        fleet.restore(&key("bare"), &stored(60, Some("apps/Deployment/web")), minute(61));
    assert_eq!(restored, Ok(RestoreResult::Merged));
    let seen = fleet
        .get(&vpa("bare"))
        .and_then(|it| it.history().get("main"))
        .map(|it| it.cpu_samples().count);
    assert_eq!(seen, Some(61), "beside what was seen before");
}

#[test]
fn another_workload_begins_anew_and_may_replace_what_is_stored() {
    for owner in [Some("apps/Deployment/old"), None] {
        let mut fleet = fleet(Compat::Plimsoll, &[]);
        fleet.track(&vpa("web"), VpaSettings::default(), START);
        fleet.set_owner(&vpa("web"), "apps/Deployment/old");
        fleet.restore(&key("web"), &stored(60, owner), minute(60)).expect("good");
        load(&mut fleet, "web");
        take(&mut fleet, "web", minute(60));
        fleet.records(&vpa("web"), minute(60));

        fleet.set_owner(&vpa("web"), "apps/Deployment/new");
        fleet.mark_saved(&vpa("web"), &["main".into()], minute(61));
        assert_eq!(fleet.containers(), 0, "{owner:?}");
        let again = fleet.restore(&key("web"), &stored(60, owner), minute(61));
        assert_eq!(again, Ok(RestoreResult::Expired), "{owner:?}: it is of the old workload");
        load(&mut fleet, "web");
        take(&mut fleet, "web", minute(62));
        let records = fleet.records(&vpa("web"), minute(62));
        assert!(
            records[0].supersede,
            "{owner:?}: a save of the old workload answers nothing for the new"
        );
        fleet.mark_saved(&vpa("web"), &["main".into()], minute(62));
        take(&mut fleet, "web", minute(63));
        assert!(!fleet.records(&vpa("web"), minute(63))[0].supersede, "{owner:?}");
    }
}

#[test]
fn a_richer_record_is_adopted_and_a_poorer_or_expired_one_is_not() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    (60..70).for_each(|number| take(&mut fleet, "web", minute(number)));
    let seen = |fleet: &VpaRegistry| {
        fleet
            .get(&vpa("web"))
            .and_then(|it| it.history().get("main"))
            .map(|it| it.cpu_samples().count)
    };
    assert_eq!(
        fleet.restore_if_richer(&key("web"), &stored(5, None), minute(70)),
        Ok(RestoreResult::AlreadyLoaded)
    );
    assert_eq!(seen(&fleet), Some(10));
    assert_eq!(
        fleet.restore_if_richer(&key("web"), &stored(50, None), minute(70)),
        Ok(RestoreResult::Merged)
    );
    assert_eq!(seen(&fleet), Some(50), "in place of ours, so that nothing counts twice");

    let late = START.later(DAY * 20);
    take(&mut fleet, "web", late);
    assert_eq!(
        fleet.restore_if_richer(&key("web"), &stored(100, None), late),
        Ok(RestoreResult::Expired)
    );
    assert_eq!(seen(&fleet), Some(51), "what has expired takes the place of nothing");
    assert!(fleet.records(&vpa("web"), late)[0].supersede, "but may be replaced");
}

#[test]
fn a_kill_counts_once_whoever_stored_the_history() {
    let now = minute(3000);
    let ours = {
        let mut fleet = fleet(Compat::Plimsoll, &["web"]);
        (0..3000).for_each(|number| take(&mut fleet, "web", minute(number)));
        assert!(matches!(kill(&mut fleet, "web", minute(2999), now), OomResult::Counted(_)));
        assert_eq!(kill(&mut fleet, "web", minute(2999), now), OomResult::Known);
        fleet.records(&vpa("web"), now).remove(0).snapshot
    };
    // Upstream's checkpoints know no pods.
    let upstream = Snapshot { replicas: Vec::new(), bump: None, ..ours.clone() };
    for (stored, who, at, counts) in [
        (&ours, "ours", 2999, false),
        (&ours, "ours, a new kill", 3000, true),
        (&upstream, "upstream's, window open", 2999, true),
        (&upstream, "upstream's, window closed", 100, false),
    ] {
        let mut fleet = fleet(Compat::Plimsoll, &["web"]);
        fleet.restore(&key("web"), stored, now).expect("good");
        let outcome = kill(&mut fleet, "web", minute(at), now);
        assert_eq!(matches!(outcome, OomResult::Counted(_)), counts, "{who}: {outcome:?}");
        let again = kill(&mut fleet, "web", minute(at), now);
        assert_eq!(again, OomResult::Known, "{who}: it is shown for as long as the pod lives");
    }
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    assert_eq!(kill(&mut fleet, "web", START, START.later(DAY * 9)), OomResult::Expired);
    assert_eq!(kill(&mut fleet, "other", START, START), OomResult::Untracked);
}

#[test]
fn a_refusal_is_news_once_and_outdated_records_are_forgotten_once_collected() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    assert!(fleet.mark_rejected(&vpa("web")) && !fleet.mark_rejected(&vpa("web")));
    take(&mut fleet, "web", START);
    let late = START.later(DAY * 9);
    assert_eq!(fleet.forget_expired(late), [key("web")]);
    let is_outdated = |fleet: &VpaRegistry| {
        fleet.get(&vpa("web")).is_some_and(|it| it.history().supersedes("main"))
    };
    assert!(is_outdated(&fleet), "its record may go");
    fleet.clear_stale_records();
    assert!(!is_outdated(&fleet));
}

#[test]
fn a_fleet_says_what_a_container_should_request_and_when_it_first_did() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    let empty = fleet.recommend(&vpa("web"), minute(1)).expect("loaded");
    assert_eq!(fleet.store_summary(&vpa("web"), &empty, minute(1)), None);
    take(&mut fleet, "web", minute(2));
    let said = fleet.recommend(&vpa("web"), minute(3)).expect("loaded");
    assert_ne!(said.containers[0].target, ResourceAmounts::default());
    assert_eq!(fleet.store_summary(&vpa("web"), &said, minute(3)), Some(MINUTE * 3));
    assert_eq!(fleet.store_summary(&vpa("web"), &said, minute(4)), None, "only the first");
}

#[test]
fn both_limits_are_named_when_both_hold() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    take(&mut fleet, "web", minute(2));
    let mut said = fleet.recommend(&vpa("web"), minute(3)).expect("loaded");
    assert_eq!(pod_cap::restricted_by(&said).count(), 0);
    let cap = ResourceAmounts { cpu: "1m".parse().ok(), memory: None };
    let shapes = vec![NodeCapacity { cpu: MilliCpu(4000), memory: Bytes(1 << 20) }];
    let limits = pod_cap::cap_to_pod(&mut said, &PodCapacity { cap, node_capacities: shapes });
    assert_eq!(limits.cpu.map(|it| it.by), Some(RecommendationReason::PodCap));
    assert_eq!(limits.memory.map(|it| it.by), Some(RecommendationReason::NodeCap));
    let named: Vec<RecommendationReason> = pod_cap::restricted_by(&said).collect();
    assert_eq!(named, [RecommendationReason::NodeCap, RecommendationReason::PodCap]);
}

#[test]
fn a_history_that_could_not_be_read_is_asked_for_again_and_not_written_over() {
    let mut fleet = fleet(Compat::Plimsoll, &[]);
    fleet.track(&vpa("web"), VpaSettings::default(), START);
    fleet.mark_missing(&vpa("web"));
    (60..70).for_each(|number| take(&mut fleet, "web", minute(number)));
    assert!(fleet.recommend(&vpa("web"), minute(70)).is_some(), "what is seen counts meanwhile");
    assert!(due(&fleet, minute(99)).is_empty(), "what is stored is not known");
    assert_eq!(fleet.waiting_for_history().count(), 0);
    assert_eq!(fleet.with_missing_history().collect::<Vec<_>>(), [(&vpa("web"), None)]);
    fleet.restore(&key("web"), &stored(60, None), minute(70)).expect("good");
    load(&mut fleet, "web");
    assert_eq!(fleet.with_missing_history().count(), 0);
    let seen = fleet
        .get(&vpa("web"))
        .and_then(|it| it.history().get("main"))
        .map(|it| it.cpu_samples().count);
    assert_eq!(seen, Some(70), "what was stored, and what was seen since");
    assert_eq!(due(&fleet, minute(99)), ["web"]);
}

#[test]
fn a_sample_that_is_stored_already_counts_once_when_the_history_comes_after_it() {
    let seen = |fleet: &VpaRegistry| {
        let known = fleet.get(&vpa("web")).and_then(|it| it.history().get("main"));
        known.map(|it| (it.cpu_samples(), it.memory_samples()))
    };
    let mut stayed = fleet(Compat::Plimsoll, &["web"]);
    (0..60).for_each(|number| take(&mut stayed, "web", minute(number)));
    // The last stored sample is that of minute 59, and it is shown until the next is measured.
    for later in [60, 63] {
        (60..later).for_each(|number| {
            if stayed.get(&vpa("web")).and_then(VpaState::last_sample) < Some(minute(number)) {
                take(&mut stayed, "web", minute(number));
            }
        });
        let mut late = fleet(Compat::Plimsoll, &[]);
        late.track(&vpa("web"), VpaSettings::default(), START);
        (59..later).for_each(|number| take(&mut late, "web", minute(number)));
        late.restore(&key("web"), &stored(60, None), minute(later)).expect("good");
        load(&mut late, "web");
        assert_eq!(seen(&late), seen(&stayed), "until minute {later}");
        let said =
            |fleet: &VpaRegistry| fleet.recommend(&vpa("web"), minute(later)).expect("loaded");
        assert_eq!(said(&late), said(&stayed), "until minute {later}");
    }
}

#[test]
fn throttling_is_forgotten_with_the_limit_and_saved_so() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    take(&mut fleet, "web", minute(1));
    let measured = Throttling { throttled: 4.0, periods: 10.0, at: minute(2) };
    fleet.set_throttling(&key("web"), measured, minute(2));
    let known = |fleet: &VpaRegistry| {
        let history = fleet.get(&vpa("web")).and_then(|it| it.history().get("main"));
        history.expect("has one").throttling().copied()
    };
    assert_eq!(known(&fleet), Some(measured));
    save(&mut fleet, "web", minute(3));
    assert_eq!(fleet.unsaved_stats().0, 0);
    fleet.clear_throttling(&key("web"), minute(4));
    assert_eq!((known(&fleet), fleet.unsaved_stats().0), (None, 1));
}

#[test]
fn a_memory_sample_that_is_shown_again_counts_once_and_changes_nothing() {
    let seen = |compat: Compat| {
        let mut fleet = fleet(compat, &["web"]);
        let mut take = |bytes: i64| {
            let (cpu, memory) = (Some(MilliCpu(100)), Some(Bytes(bytes)));
            let (pod, container, at) = ("pod-0", "main", minute(1));
            let usage = UsageSample { pod, container, at, cpu, memory };
            let taken = fleet.add_usage(&vpa("web"), usage, minute(2)).expect("tracked");
            if bytes == 1000 {
                save(&mut fleet, "web", minute(2));
            }
            (taken.memory.expect("is there"), fleet.unsaved_stats().0)
        };
        let taken = [take(1000), take(1000), take(900), take(2000)];
        let history = fleet.get(&vpa("web")).and_then(|it| it.history().get("main"));
        (taken, history.expect("has one").memory_samples().count)
    };
    let repeated = (Err(SampleRejected::Duplicate), 0);
    let (taken, count) = seen(Compat::Plimsoll);
    assert_eq!(taken, [(Ok(()), 0), repeated, repeated, (Ok(()), 1)]);
    assert_eq!(count, 2, "a larger one of the same time is another one");
    // Upstream reports each in its metrics of quality, and counts none of memory.
    assert_eq!(seen(Compat::Upstream).1, 4);
}
