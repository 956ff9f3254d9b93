//! What is saved, when and in which order: nothing is lost, and nothing starves.

use proptest::prelude::*;

use super::*;

#[test]
fn kills_are_saved_first_and_then_what_was_saved_longest_ago() {
    let mut fleet = fleet(Compat::Plimsoll, &["killed", "new", "old", "older", "young"]);
    for (name, saved) in [("older", 1), ("old", 2), ("killed", 3), ("young", 9)] {
        take(&mut fleet, name, minute(saved - 1));
        save(&mut fleet, name, minute(saved));
    }
    for (name, changed) in [("older", 4), ("old", 3), ("young", 9), ("killed", 10)] {
        take(&mut fleet, name, minute(changed));
    }
    assert!(matches!(kill(&mut fleet, "killed", minute(10), minute(10)), OomResult::Counted(_)));
    take(&mut fleet, "new", minute(10));
    assert_eq!(due(&fleet, minute(10)), ["killed", "new", "older", "old"], "young is too young");
    assert_eq!(
        fleet.due_for_save(minute(10), AGE, 2, &HashSet::new()),
        [vpa("killed"), vpa("new")]
    );
    assert_eq!(due(&fleet, minute(13)).last().map(String::as_str), Some("young"));
    assert_eq!(due(&fleet, minute(1)).len(), 5, "a clock that was set back puts nothing off");
    assert_eq!(fleet.unsaved_stats(), (5, Some(minute(3))));
}

#[test]
fn what_cannot_be_saved_holds_nobody_up_and_stays_due() {
    let mut fleet = fleet(Compat::Plimsoll, &["broken", "fine"]);
    take(&mut fleet, "broken", minute(0));
    fleet.records(&vpa("broken"), minute(0));
    fleet.mark_save_failed(&vpa("broken"));
    take(&mut fleet, "fine", minute(1));
    save(&mut fleet, "fine", minute(1));
    take(&mut fleet, "fine", minute(2));
    assert_eq!(due(&fleet, minute(9)), ["fine", "broken"], "though it was never saved");
    assert!(matches!(kill(&mut fleet, "broken", minute(9), minute(9)), OomResult::Counted(_)));
    assert_eq!(due(&fleet, minute(9)), ["fine", "broken"], "though it was killed");
    let tried = HashSet::from([vpa("broken"), vpa("fine")]);
    assert_eq!(
        fleet.due_for_save(minute(9), AGE, 9, &tried),
        [vpa("fine")],
        "once a round is enough"
    );
    save(&mut fleet, "fine", minute(9));
    save(&mut fleet, "broken", minute(9));
    assert!(due(&fleet, minute(99)).is_empty());
}

#[test]
fn a_change_during_a_save_is_saved_another_time() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    take(&mut fleet, "web", minute(0));
    fleet.records(&vpa("web"), minute(0));
    take(&mut fleet, "web", minute(1));
    fleet.mark_saved(&vpa("web"), &["main".into()], minute(1));
    assert_eq!(fleet.unsaved_stats(), (1, Some(minute(1))));
    fleet.records(&vpa("web"), minute(2));
    take(&mut fleet, "web", minute(2));
    fleet.mark_save_failed(&vpa("web"));
    assert_eq!(fleet.unsaved_stats(), (1, Some(minute(1))), "as due as it was");
}

#[test]
fn a_save_that_was_cut_off_is_due_again() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    take(&mut fleet, "web", minute(0));
    fleet.records(&vpa("web"), minute(0));
    assert!(due(&fleet, minute(9)).is_empty(), "it is under way");
    assert_eq!(fleet.unsaved_stats().0, 1, "and not saved");
    fleet.resume_saves();
    assert_eq!(due(&fleet, minute(9)), ["web"]);
}

#[test]
fn a_window_that_closes_with_time_alone_is_saved_once_more() {
    let mut fleet = fleet(Compat::Plimsoll, &["web"]);
    take(&mut fleet, "web", minute(0));
    save(&mut fleet, "web", minute(1));
    let look = |fleet: &mut VpaRegistry, now| {
        fleet.retain_pods(&vpa("web"), |_| true, now);
        fleet.unsaved_stats().0
    };
    let closes = START.later(DAY);
    assert_eq!(look(&mut fleet, closes.earlier(MINUTE)), 0, "its window is open");
    assert_eq!(look(&mut fleet, closes), 1, "a reader without windows is now told of its peak");
    save(&mut fleet, "web", closes.later(MINUTE));
    assert_eq!(look(&mut fleet, closes.later(MINUTE * 2)), 0);
}

#[test]
fn a_history_that_was_not_there_is_none_until_one_is_saved() {
    let mut fleet = fleet(Compat::Plimsoll, &["new", "old"]);
    fleet.mark_stored(&vpa("old"), START);
    let stored =
        |fleet: &VpaRegistry, name: &str| fleet.get(&vpa(name)).is_some_and(VpaState::is_stored);
    assert!(!stored(&fleet, "new") && stored(&fleet, "old"));
    take(&mut fleet, "new", minute(1));
    save(&mut fleet, "new", minute(1));
    assert!(stored(&fleet, "new"));
}

#[test]
fn what_looks_expired_is_not_replaced_while_the_clock_may_be_wrong() {
    let key = |name: &str| ContainerKey::new(vpa(name), "main");
    let mut fleet = VpaRegistry::new(Settings::for_compat(Compat::Plimsoll), Compat::Plimsoll);
    fleet.keep_expired(true);
    // By a clock that is ten days ahead all that is stored has expired.
    let (stored, ahead) = (stored(100, None), START.later(DAY * 10));
    for name in ["web", "db"] {
        fleet.track(&vpa(name), VpaSettings::default(), START);
        assert_eq!(fleet.restore(&key(name), &stored, ahead), Ok(RestoreResult::Expired));
        load(&mut fleet, name);
    }
    fleet.track(&vpa("new"), VpaSettings::default(), START);
    load(&mut fleet, "new");
    for name in ["web", "new"] {
        take(&mut fleet, name, ahead);
    }
    let times = fleet.stored_times();
    assert_eq!((times.usable, times.expired, times.in_future), (0, 2, 0));
    assert_eq!(due(&fleet, ahead), ["new"], "it replaces nothing");
    assert_eq!((fleet.expired_count(), fleet.unsaved_stats().0), (2, 2));
    // It is right after all: then the first save replaces what is richer.
    let mut trusted = fleet.records(&vpa("new"), ahead);
    assert!(!trusted.remove(0).supersede);
    fleet.keep_expired(false);
    assert_eq!(due(&fleet, ahead), ["web"]);
    assert!(fleet.records(&vpa("web"), ahead)[0].supersede);
    fleet.mark_save_failed(&vpa("web"));
    // It was wrong: the richer record stays, and is taken over.
    fleet.forget_expired_by_clock();
    assert_eq!(due(&fleet, ahead), ["web"]);
    assert!(!fleet.records(&vpa("web"), ahead)[0].supersede);
    let now = minute(101);
    assert_eq!(fleet.restore_if_richer(&key("web"), &stored, now), Ok(RestoreResult::Merged));
}

proptest! {
    /// However changes, kills and failures are spread: what is due is saved in turn, and nothing starves.
    #[test]
    fn nothing_that_is_due_starves(
        changes in prop::collection::vec((0_usize..12, any::<bool>(), any::<bool>()), 1..80),
    ) {
        let names: Vec<String> = (0..12).map(|number| format!("web-{number:02}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut fleet = fleet(Compat::Plimsoll, &all);
        let mut waits = vec![0_u32; names.len()];
        for (round, (changed, killed, fails)) in changes.into_iter().enumerate() {
            let now = minute(u32::try_from(round).unwrap_or(0) + 1);
            // The first two cannot be saved, as if their namespace were going away.
            for name in names.iter().take(2).chain([&names[changed]]) {
                if killed {
                    kill(&mut fleet, name, now, now);
                } else {
                    let usage = UsageSample { pod: "pod-0", container: "main", at: now, cpu: Some(MilliCpu(1)), memory: None };
                    fleet.add_usage(&vpa(name), usage, now);
                }
            }
            let batch = fleet.due_for_save(now, Duration::ZERO, 2, &HashSet::new());
            for key in &batch {
                fleet.records(key, now);
                let broken = *key == vpa(&names[0]) || *key == vpa(&names[1]);
                if broken || (fails && *key == vpa(&names[2])) {
                    fleet.mark_save_failed(key);
                } else {
                    fleet.mark_saved(key, &["main".into()], now);
                }
            }
            let left = fleet.due_for_save(now, Duration::ZERO, 100, &HashSet::new());
            for (name, wait) in names.iter().zip(&mut waits).skip(3) {
                *wait = if left.contains(&vpa(name)) { *wait + 1 } else { 0 };
                prop_assert!(*wait <= 2, "{name} waits for {wait} rounds");
            }
        }
    }
}
