//! Tests of saving: when and in which order VPAs are saved, that no change is lost, and that no VPA starves.

use proptest::prelude::*;

use super::*;

#[test]
fn vpas_with_oom_kills_are_saved_first_and_then_the_least_recently_saved() {
    let mut registry = registry(Compat::Plimsoll, &["killed", "new", "old", "older", "young"]);
    for (name, saved) in [("older", 1), ("old", 2), ("killed", 3), ("young", 9)] {
        take(&mut registry, name, minute(saved - 1));
        save(&mut registry, name, minute(saved));
    }
    for (name, changed) in [("older", 4), ("old", 3), ("young", 9), ("killed", 10)] {
        take(&mut registry, name, minute(changed));
    }
    assert!(matches!(kill(&mut registry, "killed", minute(10), minute(10)), OomResult::Counted(_)));
    take(&mut registry, "new", minute(10));
    assert_eq!(
        due(&mut registry, minute(10)),
        ["killed", "new", "older", "old"],
        "young is too young"
    );
    assert_eq!(
        registry.saves().due_for_save(minute(10), AGE, 2, &HashSet::new()),
        [vpa("killed"), vpa("new")]
    );
    assert_eq!(due(&mut registry, minute(13)).last().map(String::as_str), Some("young"));
    assert_eq!(
        due(&mut registry, minute(1)).len(),
        5,
        "setting the clock back does not delay saves"
    );
    assert_eq!(registry.unsaved_stats(), (5, Some(minute(3))));
}

#[test]
fn a_record_that_cannot_be_saved_blocks_no_other_and_stays_due() {
    let mut registry = registry(Compat::Plimsoll, &["broken", "fine"]);
    take(&mut registry, "broken", minute(0));
    registry.saves().records(&vpa("broken"), minute(0));
    registry.saves().mark_save_failed(&vpa("broken"));
    take(&mut registry, "fine", minute(1));
    save(&mut registry, "fine", minute(1));
    take(&mut registry, "fine", minute(2));
    assert_eq!(due(&mut registry, minute(9)), ["fine", "broken"], "although it was never saved");
    assert!(matches!(kill(&mut registry, "broken", minute(9), minute(9)), OomResult::Counted(_)));
    assert_eq!(due(&mut registry, minute(9)), ["fine", "broken"], "although it was OOM killed");
    let tried = HashSet::from([vpa("broken"), vpa("fine")]);
    assert_eq!(
        registry.saves().due_for_save(minute(9), AGE, 9, &tried),
        [vpa("fine")],
        "one attempt per round"
    );
    save(&mut registry, "fine", minute(9));
    save(&mut registry, "broken", minute(9));
    assert!(due(&mut registry, minute(99)).is_empty());
}

#[test]
fn a_change_during_a_save_is_saved_again() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    take(&mut registry, "web", minute(0));
    registry.saves().records(&vpa("web"), minute(0));
    take(&mut registry, "web", minute(1));
    registry.saves().mark_saved(&vpa("web"), &["main".into()], minute(1));
    assert_eq!(registry.unsaved_stats(), (1, Some(minute(1))));
    registry.saves().records(&vpa("web"), minute(2));
    take(&mut registry, "web", minute(2));
    registry.saves().mark_save_failed(&vpa("web"));
    assert_eq!(registry.unsaved_stats(), (1, Some(minute(1))), "as due as it was");
}

#[test]
fn an_interrupted_save_is_due_again() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    take(&mut registry, "web", minute(0));
    registry.saves().records(&vpa("web"), minute(0));
    assert!(due(&mut registry, minute(9)).is_empty(), "it is being saved");
    assert_eq!(registry.unsaved_stats().0, 1, "and not saved");
    registry.saves().resume_saves();
    assert_eq!(due(&mut registry, minute(9)), ["web"]);
}

#[test]
fn a_memory_window_that_closes_without_samples_is_saved_once_more() {
    let mut registry = registry(Compat::Plimsoll, &["web"]);
    take(&mut registry, "web", minute(0));
    save(&mut registry, "web", minute(1));
    let unsaved = |registry: &mut VpaRegistry, now| {
        registry.retain_pods(&vpa("web"), |_| true, now);
        registry.unsaved_stats().0
    };
    let closes = START.later(DAY);
    assert_eq!(unsaved(&mut registry, closes.earlier(MINUTE)), 0, "its window is open");
    assert_eq!(unsaved(&mut registry, closes), 1, "readers without windows now get its peak");
    save(&mut registry, "web", closes.later(MINUTE));
    assert_eq!(unsaved(&mut registry, closes.later(MINUTE * 2)), 0);
}

#[test]
fn a_missing_history_counts_as_stored_after_a_save() {
    let mut registry = registry(Compat::Plimsoll, &["new", "old"]);
    registry.saves().mark_stored(&vpa("old"), START);
    let stored = |registry: &VpaRegistry, name: &str| {
        registry.get(&vpa(name)).is_some_and(VpaState::is_stored)
    };
    assert!(!stored(&registry, "new") && stored(&registry, "old"));
    take(&mut registry, "new", minute(1));
    save(&mut registry, "new", minute(1));
    assert!(stored(&registry, "new"));
}

#[test]
fn expired_records_are_not_replaced_while_the_clock_is_doubted() {
    let key = |name: &str| ContainerKey::new(vpa(name), "main");
    let mut registry = VpaRegistry::new(Settings::for_compat(Compat::Plimsoll), Compat::Plimsoll);
    registry.keep_expired(true);
    // By a clock that is ten days ahead, all stored records have expired.
    let (stored, ahead) = (stored(100, None), START.later(DAY * 10));
    for name in ["web", "db"] {
        registry.track(&vpa(name), VpaSettings::default(), START);
        assert_eq!(registry.restore(&key(name), &stored, ahead, false), Ok(RestoreResult::Expired));
        load(&mut registry, name);
    }
    registry.track(&vpa("new"), VpaSettings::default(), START);
    load(&mut registry, "new");
    for name in ["web", "new"] {
        take(&mut registry, name, ahead);
    }
    let times = registry.stored_times;
    assert_eq!((times.usable, times.expired, times.in_future), (0, 2, 0));
    assert_eq!(due(&mut registry, ahead), ["new"], "it replaces nothing");
    assert_eq!((registry.expired_count(), registry.unsaved_stats().0), (2, 2));
    // The clock is right: the first save replaces the richer record.
    let mut trusted = registry.saves().records(&vpa("new"), ahead);
    assert!(!trusted.remove(0).supersede);
    registry.keep_expired(false);
    assert_eq!(due(&mut registry, ahead), ["web"]);
    assert!(registry.saves().records(&vpa("web"), ahead)[0].supersede);
    registry.saves().mark_save_failed(&vpa("web"));
    // The clock was wrong: the richer record stays, and is merged.
    registry.saves().forget_expired_by_clock();
    assert_eq!(due(&mut registry, ahead), ["web"]);
    assert!(!registry.saves().records(&vpa("web"), ahead)[0].supersede);
    let now = minute(101);
    assert_eq!(registry.restore(&key("web"), &stored, now, true), Ok(RestoreResult::Merged));
}

proptest! {
    /// Whatever the order of changes, OOM kills and failures: every due VPA is saved, and none starves.
    #[test]
    fn no_due_save_starves(
        changes in prop::collection::vec((0_usize..12, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let names: Vec<String> = (0..12).map(|number| format!("web-{number:02}")).collect();
        let all_names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut registry = registry(Compat::Plimsoll, &all_names);
        let mut waits = vec![0_u32; names.len()];
        for (round, (changed, killed, fails)) in changes.into_iter().enumerate() {
            let now = minute(u32::try_from(round).unwrap_or(0) + 1);
            // The first two cannot be saved, as if their namespace were terminating.
            for name in names.iter().take(2).chain([&names[changed]]) {
                if killed {
                    kill(&mut registry, name, now, now);
                } else {
                    let usage = UsageSample { pod: "pod-0", container: "main", at: now, cpu: Some(MilliCpu(1)), memory: None };
                    registry.ingest().add_usage(&vpa(name), usage, now);
                }
            }
            let batch = registry.saves().due_for_save(now, Duration::ZERO, 2, &HashSet::new());
            for key in &batch {
                registry.saves().records(key, now);
                let broken = *key == vpa(&names[0]) || *key == vpa(&names[1]);
                if broken || (fails && *key == vpa(&names[2])) {
                    registry.saves().mark_save_failed(key);
                } else {
                    registry.saves().mark_saved(key, &["main".into()], now);
                }
            }
            let left = registry.saves().due_for_save(now, Duration::ZERO, 100, &HashSet::new());
            for (name, wait) in names.iter().zip(&mut waits).skip(3) {
                *wait = if left.contains(&vpa(name)) { *wait + 1 } else { 0 };
                prop_assert!(*wait <= 2, "{name} waits for {wait} rounds");
            }
        }
    }
}
