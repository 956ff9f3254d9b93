//! Records: what survives, what is stored again, and that the annotation fits.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    coordination::{Resource, State, at_max::Raised, idle::IdleSpan},
    hpa::{
        SharedMemory,
        fixes::Fixes,
        spec::{Policy, PolicyKind, ScalingRules, SelectPolicy},
    },
};

const NOW: Time = Time::from_secs(1_800_000_000);

fn ago(seconds: u64) -> Time {
    NOW.earlier(Duration::from_secs(seconds))
}

fn past(replicas: i32, seconds: u64) -> Recommendation {
    Recommendation { replicas, at: ago(seconds) }
}

fn record(recommendations: Vec<Recommendation>) -> HpaRecord {
    let memory = HpaState { recommendations: Some(recommendations), ..HpaState::default() };
    HpaRecord { memory, ..HpaRecord::default() }
}

fn behavior() -> Behavior {
    let policies = vec![Policy { kind: PolicyKind::Pods, value: 4, period_seconds: 60 }];
    let rules = ScalingRules {
        stabilization_window_seconds: Some(0),
        select_policy: SelectPolicy::Max,
        policies,
        tolerance: None,
    };
    Behavior { scale_up: rules.clone(), scale_down: rules }
}

fn pending() -> HpaRecord {
    let change = ScaleChange { from: 3, to: 6, at: ago(5), reason: "cpu above target".to_owned() };
    HpaRecord { pending: Some(change), ..record(vec![past(6, 5)]) }
}

#[test]
fn a_pending_change_that_was_made_is_a_scale_event() {
    let mut made = pending();
    assert!(made.resolve_pending(6, Some(&behavior())));
    assert_eq!(made.pending, None);
    assert_eq!(made.last_scale, pending().pending);
    let events = &made.memory.scale_up_events;
    assert_eq!(
        events.iter().map(|event| (event.change, event.at)).collect::<Vec<_>>(),
        [(3, ago(5))]
    );
}

#[test]
fn a_pending_change_that_was_not_made_is_forgotten() {
    for replicas in [3, 4, 7] {
        let mut lost = pending();
        assert!(!lost.resolve_pending(replicas, Some(&behavior())));
        assert_eq!(lost, record(vec![past(6, 5)]));
    }
}

#[test]
fn the_last_recommendation_holds_until_the_restart() {
    let record = record(vec![past(9, 200), past(6, 100)]);
    assert_eq!(record.restored_memory(NOW).recommendations(), [past(9, 200), past(6, 0)]);
}

/// A client that can write the annotation cannot hold replicas forever.
#[test]
fn recommendations_of_the_future_are_dropped() {
    let future = Recommendation { replicas: 50, at: NOW.later(Duration::from_hours(9)) };
    let record = record(vec![past(6, 100), future]);
    assert_eq!(record.restored_memory(NOW).recommendations(), [past(6, 0)]);
    let record = HpaRecord {
        memory: HpaState { recommendations: Some(vec![future]), ..HpaState::default() },
        ..record
    };
    assert_eq!(record.restored_memory(NOW).recommendations, None, "it is seeded again");
}

#[test]
fn only_what_changes_a_later_decision_is_stored_again() {
    let stored = record(vec![past(9, 200), past(6, 100)]);
    assert!(
        stored.is_same(&record(vec![past(9, 200), past(6, 0)])),
        "the same recommendation again"
    );
    let later = record(vec![past(9, 100), past(6, 0)]);
    assert!(!stored.is_same(&later));
    assert_eq!(stored.without_times(), later.without_times(), "can wait");
    for at_once in [record(vec![past(10, 0)]), record(vec![past(6, 0)]), pending()] {
        assert!(!stored.is_same(&at_once));
        assert_ne!(stored.without_times(), at_once.without_times());
    }
}

/// What is stored about so many requests, each with all that can be remembered.
fn shared_requests(count: usize) -> SharedStates {
    let mut memory = SharedMemory::default();
    memory.ensure_object(Some("1"), ("Deployment", &"w".repeat(63)));
    for index in 0..count {
        let container = format!("{index:063}");
        let state = State {
            first_requests: Some(i64::MAX),
            lacks_replicas_since: Some(ago(3600)),
            raised: Some(Raised { request: i64::MAX, base: 1, since: ago(9999), needed: ago(9) }),
            idle: Some(IdleSpan { since: ago(999_999), last: ago(7) }),
        };
        memory.change((Resource::Memory, Some(&container)), |_| state);
    }
    memory.to_store(NOW)
}

#[test]
fn a_record_without_shared_requests_is_read_and_written_as_before() {
    let text = record(vec![past(6, 100)]).text();
    assert!(!text.contains("shared"), "{text}");
    assert_eq!(HpaRecord::parse(&text), Ok(record(vec![past(6, 100)])));
    let shared = HpaRecord { shared_requests: shared_requests(1), ..record(vec![past(6, 100)]) };
    assert_eq!(HpaRecord::parse(&shared.text()), Ok(shared.clone()));
    let broken = shared.text().replace("\"base\":1", "\"base\":\"x\"");
    assert!(HpaRecord::parse(&broken).is_err(), "{broken}");
}

#[test]
fn times_of_shared_requests_may_be_stored_later_and_amounts_may_not() {
    let with = |change: &dyn Fn(State) -> State| {
        let raised = Raised { request: 460, base: 300, since: ago(900), needed: ago(900) };
        let idle = IdleSpan { since: ago(9000), last: ago(900) };
        let state = State { raised: Some(raised), idle: Some(idle), ..State::default() };
        let mut memory = SharedMemory::default();
        memory.ensure_object(Some("1"), ("Deployment", "web"));
        memory.change((Resource::Cpu, None), |_| change(state));
        HpaRecord { shared_requests: memory.to_store(NOW), ..record(vec![past(6, 0)]) }
    };
    let stored = with(&|state| state);
    let raised = |state: State, change: &dyn Fn(&mut Raised)| {
        let mut raised = state.raised.expect("raised");
        change(&mut raised);
        State { raised: Some(raised), ..state }
    };
    for (changed, is_urgent) in [
        (with(&|state| raised(state, &|one| one.needed = NOW)), false),
        (
            with(&|state| State { idle: Some(IdleSpan { since: ago(9000), last: NOW }), ..state }),
            false,
        ),
        (with(&|state| raised(state, &|one| one.request = 500)), true),
        (with(&|state| State { first_requests: Some(400), ..state }), true),
        (with(&|state| State { raised: None, ..state }), true),
    ] {
        assert!(!stored.is_same(&changed), "{changed:?}");
        assert_eq!(stored.without_times() != changed.without_times(), is_urgent, "{changed:?}");
        let kept = changed.clone().unless_recent(Some(&stored), Duration::from_mins(1), NOW);
        assert_eq!(kept == stored, !is_urgent);
    }
}

#[test]
fn a_broken_annotation_is_an_error() {
    for (text, expected) in [
        ("", "EOF while parsing"),
        ("3", "invalid type"),
        (r#"{"memory": {"recommendations": [{"replicas": "x"}]}}"#, "invalid type"),
    ] {
        let error = HpaRecord::parse(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let error = HpaRecord::parse(&" ".repeat(MAX_BYTES + 1)).expect_err("too long");
    assert_eq!(error, "it has 32769 bytes, more than 32768");
}

proptest! {
    /// However many recommendations and events there are, the annotation fits, and reads back as it was.
    #[test]
    fn the_annotation_fits(
        recommendations in prop::collection::vec((i32::MIN..i32::MAX, 0_u64..3600), 0..900),
        events in prop::collection::vec((i32::MIN..i32::MAX, 0_u64..1800), 0..300),
    ) {
        let mut times = events;
        times.sort_by_key(|(_, seconds)| std::cmp::Reverse(*seconds));
        let events: Vec<_> = times.iter().map(|(change, seconds)| ScaleEvent {
            change: change.saturating_abs(), at: ago(*seconds), outdated: false,
        }).collect();
        let mut past: Vec<_> =
            recommendations.iter().map(|(replicas, seconds)| past(*replicas, *seconds)).collect();
        past.sort_by_key(|past| past.at);
        let memory = HpaState {
            uid: Some("5a4bb7c4-7b6c-4e0f-9ad5-6a6f2c8f5a11".to_owned()),
            recommendations: Some(past.clone()),
            scale_up_events: events.clone(),
            scale_down_events: events,
            failing_since: Some(ago(100)),
            ..HpaState::default()
        };
        let hour = Duration::from_hours(1);
        let windows = Windows { up: hour, down: hour, period: hour };
        let stored = HpaRecord {
            memory: bounded(memory.compact(windows, NOW)),
            shared_requests: shared_requests(60),
            ..pending()
        };
        let text = stored.text();
        prop_assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
        prop_assert_eq!(HpaRecord::parse(&text), Ok(stored.clone()));
        // What holds replicas from now on holds them at any later time.
        for later in [0, 600, 1800, 3500] {
            let since = ago(3600 - later);
            let most = |all: &[Recommendation]| {
                all.iter().filter(|past| past.at >= since).map(|past| past.replicas).max()
            };
            prop_assert!(most(stored.memory.recommendations()) >= most(&past));
        }
        prop_assert_eq!(stored.memory.of_object(memory.uid.as_deref(), Fixes::ALL).uid, memory.uid);
    }
}

#[test]
fn a_record_that_differs_in_times_alone_is_stored_once_in_an_interval() {
    let minute = Duration::from_mins(1);
    let kept = |new: &HpaRecord, stored: &HpaRecord| {
        new.clone().unless_recent(Some(stored), minute, NOW) == *stored
    };
    let made = |seconds| record(vec![past(6, seconds + 30), past(4, seconds)]);
    let new = record(vec![past(6, 20), past(4, 0)]);
    assert!(kept(&new, &made(59)), "the times of what is held");
    assert!(!kept(&new, &made(60)), "it is due");
    // A new process continues the same with the stored record.
    assert!(kept(&record(vec![past(4, 0)]), &record(vec![past(4, 900)])));
    for changed in [
        record(vec![past(7, 20), past(4, 0)]),
        HpaRecord { desired_replicas: Some(5), ..new.clone() },
        HpaRecord { restrictions: vec!["max".to_owned()], ..new.clone() },
    ] {
        assert!(!kept(&changed, &made(1)), "{changed:?}");
    }
    assert!(!kept(&record(vec![past(6, 5)]), &pending()), "the change is not pending any more");
    assert_eq!(new.clone().unless_recent(None, minute, NOW), new);
}
