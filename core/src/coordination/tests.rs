//! Each rule in a table, and what holds for any input.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    at_max::{AT_MAX_FOR, OUTLASTS_NEED, Raised},
    change_timing::{MIN_CHANGE_INTERVAL, Replicas},
    decide::Recommended,
    idle::{IDLE_AFTER, IdleSpan},
    request_range::Floor,
    *,
};
use crate::types::Time;

const NOW: Time = Time::from_secs(1_000_000);
const MINUTE: Duration = Duration::from_mins(1);

/// Ten pods of 500m with a target of 60 %, at the scale point, with a recommendation of 350m.
fn observed() -> Observed {
    Observed {
        resource: Resource::Cpu,
        writer: ReplicaWriter::Plimsoll,
        target_percent: 60,
        follows_requests: false,
        template_request: Some(500),
        mean_request: Some(500),
        recommended: Some(Recommended { target: 350, lower: 200, upper: 600 }),
        last_hour_target: Some(460),
        usage_per_pod: Some(usage(300)),
        replicas: Replicas {
            current: 10,
            min: 2,
            max: 40,
            proposed: Some(10),
            changed: None,
            down_window: Duration::from_mins(5),
        },
        tolerance: 0.1,
        readiness: Duration::from_secs(30),
        wave: None,
        request_changed: None,
        update_threshold: 0.1,
        can_raise_in_place: true,
        now: NOW,
    }
}

/// The usage of pods that all count.
fn usage(mean: i64) -> UsagePerPod {
    UsagePerPod::of_all(mean, 10)
}

fn decide(observed: &Observed) -> Coordination {
    coordinate(observed, &State::default())
}

fn hold(decision: &Coordination) -> Option<Hold> {
    match decision.change {
        RequestChange::Held { by, .. } => Some(by),
        _ => None,
    }
}

#[test]
fn the_scale_point_is_the_target_utilization_of_the_template() {
    for (template, mean, percent, expected) in [
        (Some(500), Some(500), 60, Some((300, ScalePointSource::Template))),
        // The VPA has changed the pods, and the scale point stays.
        (Some(500), Some(320), 60, Some((300, ScalePointSource::Template))),
        // A user edits the template or the target.
        (Some(1000), Some(500), 60, Some((600, ScalePointSource::Template))),
        (Some(500), Some(500), 80, Some((400, ScalePointSource::Template))),
        (Some(333), Some(333), 50, Some((167, ScalePointSource::Template))),
        (None, Some(400), 60, Some((240, ScalePointSource::FirstRequests))),
        (Some(0), None, 60, None),
        (None, None, 60, None),
    ] {
        let decision = decide(&Observed {
            template_request: template,
            mean_request: mean,
            target_percent: percent,
            ..observed()
        });
        let point = decision.scale_point.map(|point| (point.milli, point.source));
        assert_eq!(point, expected, "{template:?} {mean:?} {percent}");
        let has_finding = decision.findings.contains(&Finding::NoRequest);
        assert_eq!(has_finding, expected.is_none());
    }
}

#[test]
fn without_a_template_request_the_first_requests_are_remembered() {
    let without = Observed { template_request: None, ..observed() };
    let first = decide(&without);
    let later = coordinate(&Observed { mean_request: Some(200), ..without }, &first.state);
    assert_eq!(later.scale_point.map(|point| point.milli), Some(300));
    let json = serde_json::to_string(&first.state).expect("serializes");
    let restored: State = serde_json::from_str(&json).expect("parses");
    assert_eq!(restored, first.state);
}

#[test]
fn our_replicas_follow_usage_and_those_of_others_follow_a_target_that_moves_with_the_request() {
    let ours = decide(&observed());
    assert_eq!(ours.ratio_rule, RatioRule::Usage { average_milli: 300 });
    assert_eq!(ours.target_percent, None);
    let others = |may_retarget, mean| {
        let writer = ReplicaWriter::Other { may_retarget };
        decide(&Observed { writer, mean_request: Some(mean), ..observed() })
    };
    for (mean, percent) in [(500, 60), (400, 75), (316, 95), (600, 50), (100, 95), (2000, 50)] {
        let moved = others(true, mean);
        assert_eq!(moved.target_percent, Some(percent), "{mean}");
        assert_eq!(moved.ratio_rule, RatioRule::Utilization { percent });
    }
    let fixed = others(false, 500);
    assert_eq!(fixed.target_percent, None);
    assert_eq!(fixed.ratio_rule, RatioRule::Utilization { percent: 60 });
    assert_eq!(hold(&fixed), Some(Hold::HpaSameResource));
}

#[test]
fn upstreams_rule_on_request_holds_the_request_and_is_reported() {
    let decision = decide(&Observed { follows_requests: true, ..observed() });
    assert_eq!(decision.ratio_rule, RatioRule::Utilization { percent: 60 });
    assert_eq!(hold(&decision), Some(Hold::HpaSameResource));
    assert!(decision.findings.contains(&Finding::FollowsRequests));
}

#[test]
fn a_request_stays_in_the_range_of_the_scale_point() {
    let with = |writer| decide(&Observed { writer, ..observed() }).range;
    let ours = with(ReplicaWriter::Plimsoll);
    assert_eq!((ours.min, ours.max, ours.floor), (Some(316), None, Some(Floor::ScalePoint)));
    let others = with(ReplicaWriter::Other { may_retarget: true });
    assert_eq!((others.min, others.max), (Some(316), Some(600)));
    let too_low = Recommended { target: 100, lower: 50, upper: 150 };
    let due = decide(&Observed { recommended: Some(too_low), ..observed() });
    assert_eq!(due.change, RequestChange::Due { to: 316, reason: ChangeReason::AboveBounds });
    let too_high = Recommended { target: 900, lower: 800, upper: 1000 };
    let writer = ReplicaWriter::Other { may_retarget: true };
    let due = decide(&Observed { recommended: Some(too_high), writer, ..observed() });
    assert_eq!(due.change, RequestChange::Due { to: 600, reason: ChangeReason::BelowBounds });
    // Within the range, the bounds of the recommendation no longer demand a change.
    let at_floor = Observed { recommended: Some(too_low), mean_request: Some(316), ..observed() };
    assert_eq!(decide(&at_floor).change, RequestChange::NotNeeded);
}

#[test]
fn the_requests_of_containers_are_fitted_in_proportion() {
    let range = RequestRange { min: Some(316), max: Some(600), floor: None };
    for (containers, fixed, expected) in [
        (&[100, 50][..], 0, &[211, 106][..]),
        (&[300, 100], 0, &[300, 100]),
        (&[900, 300], 0, &[450, 150]),
        // A container that the VPA does not control keeps its request.
        (&[100], 200, &[116]),
        (&[500], 300, &[300]),
        (&[0, 0], 0, &[0, 0]),
        (&[], 0, &[]),
    ] {
        assert_eq!(range.fit(containers, fixed), expected, "{containers:?} + {fixed}");
    }
}

#[test]
fn an_idle_workload_has_no_floor_after_a_whole_history() {
    let idle = Observed {
        usage_per_pod: Some(usage(40)),
        replicas: Replicas { current: 2, proposed: Some(2), ..observed().replicas },
        recommended: Some(Recommended { target: 50, lower: 25, upper: 80 }),
        ..observed()
    };
    let after = |span: Duration, change: &dyn Fn(&mut Observed, Duration)| {
        let mut state = State::default();
        let mut passed = Duration::ZERO;
        loop {
            let mut observed = Observed { now: NOW.later(passed), ..idle };
            change(&mut observed, passed);
            let decision = coordinate(&observed, &state);
            state = decision.state;
            if passed >= span {
                return decision;
            }
            passed += 10 * MINUTE;
        }
    };
    let whole = after(IDLE_AFTER, &|_, _| {});
    assert!(whole.is_idle);
    assert_eq!(whole.change, RequestChange::Due { to: 50, reason: ChangeReason::AboveBounds });
    let shorter = after(IDLE_AFTER.saturating_sub(10 * MINUTE), &|_, _| {});
    assert!(!shorter.is_idle);
    assert_eq!(shorter.range.min, Some(316));
    let busy_at = |at: Duration| {
        move |observed: &mut Observed, passed: Duration| {
            if passed == at {
                observed.usage_per_pod = Some(usage(150));
            }
        }
    };
    assert!(!after(IDLE_AFTER, &busy_at(100 * MINUTE)).is_idle, "busy once");
    let unknown = |observed: &mut Observed, passed: Duration| {
        if (100 * MINUTE..130 * MINUTE).contains(&passed) {
            observed.usage_per_pod = None;
        }
    };
    assert!(!after(IDLE_AFTER, &unknown).is_idle, "unknown for half an hour");
    let above_min = |observed: &mut Observed, passed: Duration| {
        if passed == 100 * MINUTE {
            observed.replicas.current = 3;
        }
    };
    assert!(!after(IDLE_AFTER, &above_min).is_idle, "above the minimum once");
    // The floor of a target that follows the request is its highest value.
    let retargeted = after(IDLE_AFTER, &|observed, _| {
        observed.writer = ReplicaWriter::Other { may_retarget: true };
    });
    assert_eq!(retargeted.range.min, Some(316));
}

#[test]
fn a_request_changes_at_most_every_twelve_hours_unless_it_is_too_low() {
    let changed = Some(NOW.earlier(Duration::from_hours(11)));
    let recent = Observed { request_changed: changed, ..observed() };
    let until = NOW.later(Duration::from_hours(1));
    assert_eq!(hold(&decide(&recent)), Some(Hold::ChangedRecently { until }));
    let old = Observed { request_changed: Some(NOW.earlier(MIN_CHANGE_INTERVAL)), ..observed() };
    assert_eq!(decide(&old).change, RequestChange::Due { to: 350, reason: ChangeReason::Drift });
    let too_low = Recommended { target: 700, lower: 550, upper: 900 };
    let urgent = Observed { recommended: Some(too_low), ..recent };
    assert_eq!(
        decide(&urgent).change,
        RequestChange::Due { to: 700, reason: ChangeReason::BelowBounds }
    );
    let within_bounds = Recommended { target: 700, lower: 400, upper: 900 };
    let raise = Observed { recommended: Some(within_bounds), ..recent };
    assert_eq!(hold(&decide(&raise)), Some(Hold::ChangedRecently { until }));
    let near = Recommended { target: 460, lower: 200, upper: 600 };
    let near = Observed { recommended: Some(near), ..observed() };
    assert_eq!(decide(&near).change, RequestChange::NotNeeded);
}

#[test]
fn a_request_does_not_change_while_replicas_do() {
    let with = |change: &dyn Fn(&mut Replicas)| {
        let mut observed = observed();
        change(&mut observed.replicas);
        hold(&decide(&observed))
    };
    let at = NOW.earlier(4 * MINUTE);
    let until = NOW.later(MINUTE);
    assert_eq!(with(&|r| r.changed = Some(at)), Some(Hold::ReplicasChanged { until }));
    assert_eq!(with(&|r| r.changed = Some(NOW.earlier(5 * MINUTE))), None);
    let moving = Hold::ReplicasWillChange { proposed: 11 };
    assert_eq!(with(&|r| r.proposed = Some(11)), Some(moving));
    assert_eq!(with(&|r| r.proposed = None), Some(Hold::ProposalUnknown));
    // A proposal below the minimum changes nothing.
    let at_min = |r: &mut Replicas| (r.current, r.proposed) = (2, Some(1));
    assert_eq!(with(&at_min), None);
    // A request that is too low does not wait for a proposal that never comes.
    let too_low = Recommended { target: 700, lower: 550, upper: 900 };
    let replicas = Replicas { proposed: None, ..observed().replicas };
    let urgent = Observed { recommended: Some(too_low), replicas, ..observed() };
    assert!(matches!(decide(&urgent).change, RequestChange::Due { .. }));
}

#[test]
fn what_is_unknown_changes_no_request() {
    for unknown in [
        Observed { mean_request: None, ..observed() },
        Observed { recommended: None, ..observed() },
    ] {
        assert_eq!(decide(&unknown).change, RequestChange::NotNeeded);
    }
}

#[test]
fn a_wave_holds_removals_until_its_pods_count() {
    let started = NOW.earlier(10 * MINUTE);
    let with = |ended| {
        let wave = Some(UpdateWave { started, ended });
        decide(&Observed { wave, ..observed() }).removal_hold
    };
    assert_eq!(decide(&observed()).removal_hold, None);
    assert!(with(None).is_some_and(|hold| hold.until.is_none()));
    let ended = NOW.earlier(Duration::from_secs(29));
    let until = Some(NOW.later(Duration::from_secs(1)));
    assert!(with(Some(ended)).is_some_and(|hold| hold.until == until));
    assert_eq!(with(Some(NOW.earlier(Duration::from_secs(30)))), None);
}

#[test]
fn at_the_maximum_requests_and_scale_point_rise_together() {
    let at_max = Observed {
        usage_per_pod: Some(usage(400)),
        mean_request: Some(350),
        replicas: Replicas { current: 40, proposed: Some(54), ..observed().replicas },
        ..observed()
    };
    let mut state = coordinate(&at_max, &State::default()).state;
    let early = Observed { now: NOW.later(AT_MAX_FOR).earlier(MINUTE), ..at_max };
    let decision = coordinate(&early, &state);
    assert_eq!(decision.change, RequestChange::NotNeeded);
    assert!(decision.findings.is_empty());
    // A moment within tolerance starts the time again.
    let within = Observed { usage_per_pod: Some(usage(320)), ..early };
    assert_eq!(coordinate(&within, &state).state.lacks_replicas_since, None);

    let due = NOW.later(AT_MAX_FOR);
    let decision = coordinate(&Observed { now: due, ..at_max }, &state);
    let reason = ChangeReason::AtMaxReplicas;
    assert_eq!(decision.change, RequestChange::Due { to: 460, reason });
    let finding = Finding::ScalePointTooLowForMaxReplicas { since: NOW };
    assert_eq!(decision.findings, [finding]);
    let replaced = Observed { can_raise_in_place: false, now: due, ..at_max };
    let held = coordinate(&replaced, &state);
    assert_eq!(hold(&held), Some(Hold::AtMaxReplicas));
    assert_eq!(held.state.raised, None);
    // Pods that are large enough need no change.
    let large = coordinate(
        &Observed { can_raise_in_place: false, mean_request: Some(600), now: due, ..at_max },
        &state,
    );
    assert_eq!(large.state.raised.map(|raised| raised.request), Some(460));
    assert_eq!(hold(&large), Some(Hold::AtMaxReplicas), "a lower request, by an eviction");
    // Without measurements of the whole time, nothing is raised.
    let unknown = Observed { last_hour_target: None, now: due, ..at_max };
    assert_eq!(coordinate(&unknown, &state).state.raised, None);
    state = decision.state;

    let raised =
        |observed: &Observed| coordinate(observed, &state).scale_point.map(|point| point.milli);
    let after = Observed { now: due.later(MINUTE), mean_request: Some(460), ..at_max };
    assert_eq!(raised(&after), Some(414));
    // Until the pods have the request, the scale point is only as high as theirs allows, and it is not raised without any.
    for (mean_request, expected) in
        [(Some(400), 360), (Some(350), 315), (Some(320), 300), (None, 300)]
    {
        assert_eq!(raised(&Observed { mean_request, ..after }), Some(expected));
    }
    assert_eq!(coordinate(&after, &state).range.min, Some(460));
    assert_eq!(coordinate(&after, &state).range.floor, Some(Floor::AtMaxReplicas));
    let decision = coordinate(&after, &state);
    assert_eq!(decision.ratio_rule, RatioRule::Usage { average_milli: 414 });
    assert_eq!(decision.change, RequestChange::NotNeeded, "the ratio is within tolerance now");
    // Fewer pods with more usage each need the raised scale point as well.
    let fewer = Replicas { current: 39, proposed: Some(39), ..at_max.replicas };
    let later = due.later(OUTLASTS_NEED).earlier(MINUTE);
    let fewer = Observed { now: later, usage_per_pod: Some(usage(410)), replicas: fewer, ..after };
    assert_eq!(raised(&fewer), Some(414));
    state = coordinate(&fewer, &state).state;
    // A low load ends it a day after it was last needed, an unknown one does not.
    let low = Observed { usage_per_pod: Some(usage(200)), ..fewer };
    let raised =
        |observed: &Observed| coordinate(observed, &state).scale_point.map(|point| point.milli);
    assert_eq!(
        raised(&Observed { now: later.later(OUTLASTS_NEED).earlier(MINUTE), ..low }),
        Some(414)
    );
    assert_eq!(raised(&Observed { now: later.later(OUTLASTS_NEED), ..low }), Some(300));
    let unknown = Observed { now: later.later(OUTLASTS_NEED), usage_per_pod: None, ..low };
    assert_eq!(raised(&unknown), Some(414));
    // A user who edits the template ends it.
    assert_eq!(raised(&Observed { template_request: Some(800), ..fewer }), Some(480));
}

#[test]
fn what_cannot_be_is_not_restored() {
    let later = NOW.later(MINUTE);
    let raised = Raised { request: 460, base: 300, since: later, needed: later };
    let restored = |state: State| state.restored(NOW);
    let kept = restored(State { raised: Some(raised), ..State::default() });
    assert_eq!(kept.raised, Some(Raised { since: NOW, needed: NOW, ..raised }));
    for raised in [
        Raised { request: 330, ..raised },
        Raised { base: 0, ..raised },
        Raised { request: -1, ..raised },
    ] {
        assert_eq!(restored(State { raised: Some(raised), ..State::default() }), State::default());
    }
    for state in [
        State { first_requests: Some(0), ..State::default() },
        State { lacks_replicas_since: Some(later), ..State::default() },
        State { idle: Some(IdleSpan { since: NOW, last: later }), ..State::default() },
        State {
            idle: Some(IdleSpan { since: NOW, last: NOW.earlier(MINUTE) }),
            ..State::default()
        },
    ] {
        assert_eq!(restored(state), State::default(), "{state:?}");
    }
}

/// How often the stored state changes in six hours of passes every 15 seconds.
fn writes(observed: &Observed, mut state: State) -> u32 {
    let (mut writes, mut stored) = (0, state.to_store(NOW));
    for pass in 0..6 * 60 * 4 {
        let now = NOW.later(Duration::from_secs(15) * pass);
        state = coordinate(&Observed { now, ..*observed }, &state).state;
        let next = state.to_store(now);
        writes += u32::from(next != stored);
        stored = next;
    }
    writes
}

#[test]
fn the_stored_state_changes_every_ten_minutes_at_most() {
    let at_min = Replicas { current: 2, proposed: Some(2), ..observed().replicas };
    let idle = Observed { usage_per_pod: Some(usage(40)), replicas: at_min, ..observed() };
    // The first hour is not stored.
    assert_eq!(writes(&idle, State::default()), 5 * 6);
    let at_max = Replicas { current: 40, proposed: Some(60), ..observed().replicas };
    let lacking = Observed {
        usage_per_pod: Some(usage(500)),
        last_hour_target: None,
        replicas: at_max,
        ..observed()
    };
    assert_eq!(writes(&lacking, State::default()), 1);
    let raised = Raised { request: 460, base: 300, since: NOW, needed: NOW };
    let state = State { raised: Some(raised), ..State::default() };
    let needing = Observed { usage_per_pod: Some(usage(400)), mean_request: Some(460), ..lacking };
    assert!((30..=36).contains(&writes(&needing, state)));
    assert_eq!(writes(&observed(), State::default()), 0);
}

#[test]
fn an_idle_workload_stays_idle_until_a_measurement_shows_otherwise() {
    let base = ScalePoint { milli: 300, source: ScalePointSource::Template };
    let idle = State {
        idle: Some(IdleSpan { since: NOW.earlier(IDLE_AFTER), last: NOW }),
        ..State::default()
    };
    let nearly = State {
        idle: Some(IdleSpan { since: NOW.earlier(IDLE_AFTER).later(MINUTE), last: NOW }),
        ..State::default()
    };
    let partly = |mean| Some(UsagePerPod { mean, counted: 1, uncounted: 1 });
    let day = 24 * 60 * MINUTE;
    for (state, usage, replicas, after, is_idle) in [
        (idle, Some(usage(40)), 2, MINUTE, true),
        (idle, None, 2, MINUTE, true),
        (idle, None, 2, day, true),
        (idle, Some(usage(40)), 2, day, true),
        (idle, partly(40), 2, day, true),
        (idle, Some(usage(150)), 2, MINUTE, false),
        (idle, partly(150), 2, MINUTE, false),
        (idle, None, 3, MINUTE, false),
        // What is unknown does not make it idle.
        (nearly, None, 2, 11 * MINUTE, false),
        (nearly, partly(40), 2, 11 * MINUTE, false),
        (nearly, Some(usage(40)), 2, 16 * MINUTE, false),
        (nearly, Some(usage(40)), 2, 11 * MINUTE, true),
    ] {
        let measured = Measurement {
            usage,
            mean_request: Some(500),
            replicas,
            min: 2,
            max: 40,
            tolerance: 0.1,
            now: NOW.later(after),
        };
        let next = state.after(base, &measured);
        assert_eq!(next.is_idle(), is_idle, "{usage:?} {replicas} {after:?}");
        assert_eq!(next.range(base).min.is_none(), is_idle);
    }
}

#[test]
fn while_replicas_are_missing_only_raises_in_place_are_allowed() {
    let at_max = Observed {
        usage_per_pod: Some(usage(400)),
        replicas: Replicas { current: 40, proposed: Some(54), ..observed().replicas },
        ..observed()
    };
    assert_eq!(hold(&decide(&at_max)), Some(Hold::AtMaxReplicas), "a lower request");
    let raise = Recommended { target: 700, lower: 550, upper: 900 };
    let raise = Observed { recommended: Some(raise), ..at_max };
    assert!(matches!(decide(&raise).change, RequestChange::Due { to: 700, .. }));
    let replaced = Observed { can_raise_in_place: false, ..raise };
    assert_eq!(hold(&decide(&replaced)), Some(Hold::AtMaxReplicas));
    // Within bounds, it waits for its turn.
    let changed = Some(NOW.earlier(Duration::from_hours(11)));
    let drift = Recommended { target: 700, lower: 450, upper: 900 };
    let drift = Observed { recommended: Some(drift), request_changed: changed, ..at_max };
    let until = NOW.later(Duration::from_hours(1));
    assert_eq!(hold(&decide(&drift)), Some(Hold::ChangedRecently { until }));
}

#[test]
fn memory_that_replicas_follow_is_never_lowered() {
    let memory = Observed { resource: Resource::Memory, ..observed() };
    let decision = decide(&memory);
    assert_eq!(decision.change, RequestChange::NotNeeded);
    assert_eq!(decision.range.floor, Some(Floor::MemoryIsNeverLowered));
    assert!(decision.findings.contains(&Finding::MemoryIsShared));
    let raise = Recommended { target: 700, lower: 550, upper: 900 };
    let raised = decide(&Observed { recommended: Some(raise), ..memory });
    assert!(matches!(raised.change, RequestChange::Due { to: 700, .. }));
    let writer = ReplicaWriter::Other { may_retarget: true };
    let raised = decide(&Observed { recommended: Some(raise), writer, ..memory });
    assert!(matches!(raised.change, RequestChange::Due { to: 600, .. }));
}

prop_compose! {
    fn any_observed()(
        (percent, template, mean) in (1..=200_i32, 1..5_000_i64, 1..5_000_i64),
        (target, lower, upper) in (1..5_000_i64, 0.1..1.0_f64, 1.0..3.0_f64),
        (usage, peak) in (prop::option::of(0..5_000_i64), prop::option::of(0..5_000_i64)),
        (min, span, offset, proposed) in (1..10_i32, 0..40_i32, -2..44_i32, prop::option::of(0..80_i32)),
        (request_age, replicas_age) in (prop::option::of(0..100_000_u64), prop::option::of(0..1_000_u64)),
        (is_memory, writer, in_place) in (any::<bool>(), 0..3_u8, any::<bool>()),
    ) -> Observed {
        Observed {
            resource: if is_memory { Resource::Memory } else { Resource::Cpu },
            writer: match writer {
                0 => ReplicaWriter::Plimsoll,
                1 => ReplicaWriter::Other { may_retarget: true },
                _ => ReplicaWriter::Other { may_retarget: false },
            },
            target_percent: percent,
            template_request: Some(template),
            mean_request: Some(mean),
            recommended: Some(Recommended {
                target,
                lower: (target as f64 * lower) as i64,
                upper: (target as f64 * upper) as i64,
            }),
            last_hour_target: peak,
            usage_per_pod: usage.map(self::usage),
            replicas: Replicas {
                current: (min + offset).max(0),
                min,
                max: min + span,
                proposed,
                changed: replicas_age.map(|age| NOW.earlier(Duration::from_secs(age))),
                down_window: Duration::from_mins(5),
            },
            request_changed: request_age.map(|age| NOW.earlier(Duration::from_secs(age))),
            can_raise_in_place: in_place,
            ..observed()
        }
    }
}

prop_compose! {
    fn any_state()(
        first_requests in prop::option::of(1..5_000_i64),
        since in prop::option::of(0..10_000_u64),
        raised in prop::option::of((1..5_000_i64, 1..5_000_i64, 0..100_000_u64)),
        idle in prop::option::of((0..1_000_000_u64, 0..2_000_u64)),
    ) -> State {
        let ago = |age: u64| NOW.earlier(Duration::from_secs(age));
        State {
            first_requests,
            lacks_replicas_since: since.map(ago),
            raised: raised.map(|(request, base, age)| Raised {
                request, base, since: ago(age), needed: ago(age / 2),
            }),
            idle: idle.map(|(length, age)| IdleSpan { since: ago(age.saturating_add(length)), last: ago(age) }),
        }
    }
}

/// The scale point without a raise, of which a state may be about.
fn with_base(mut state: State, base: ScalePoint, is_raised: bool) -> State {
    if let Some(raised) = state.raised.as_mut().filter(|_| is_raised) {
        raised.base = base.milli;
    }
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is remembered: a measurement that says nothing removes no floor and raises no scale point.
    #[test]
    fn unknown_usage_removes_no_floor_and_raises_no_scale_point(
        observed in any_observed(), state in any_state(), is_raised in any::<bool>(), counted in 0..5_usize,
    ) {
        let base = ScalePoint { milli: 300, source: ScalePointSource::Template };
        let state = with_base(state, base, is_raised);
        let Observed { mean_request, replicas, tolerance, .. } = observed;
        // Of few pods with low usage nothing follows either.
        let usage = (counted > 0).then_some(UsagePerPod { mean: 10, counted, uncounted: 7 });
        let Replicas { current, min, max, .. } = replicas;
        let measured = Measurement { usage, mean_request, replicas: current, min, max, tolerance, now: NOW };
        let mut after = state.after(base, &measured);
        let floor = |state: &State| state.range(base).min;
        // Low usage of the pods that count may end a raise after a day, and nothing else.
        let without_raise = State { raised: None, ..state };
        let ends_raise = counted > 0 && floor(&after) == floor(&without_raise);
        prop_assert!(floor(&after) >= floor(&state) || ends_raise, "{:?}", after);
        if let Some(to) = after.needed_request(after.range(base), RecentUsage::default().target(NOW), NOW) {
            after.raise(base, to, NOW);
        }
        let point = |state: &State| state.scale_point(base, mean_request).milli;
        prop_assert!(point(&after) <= point(&state), "{:?}", after);
        prop_assert!(state.scale_point(base, None) == base, "an unknown request");
    }

    /// A process that continues with the stored state has the same floor and scale point, and what is stored settles.
    #[test]
    fn a_stored_state_continues(state in any_state(), is_raised in any::<bool>(), mean in 1..5_000_i64) {
        let base = ScalePoint { milli: 300, source: ScalePointSource::Template };
        let state = with_base(state, base, is_raised).restored(NOW);
        let stored = state.to_store(NOW);
        let text = serde_json::to_string(&stored).expect("serializes");
        let restored = serde_json::from_str::<State>(&text).expect("parses").restored(NOW);
        prop_assert_eq!(restored, stored);
        prop_assert_eq!(restored.range(base), state.range(base));
        prop_assert_eq!(restored.scale_point(base, Some(mean)), state.scale_point(base, Some(mean)));
    }

    #[test]
    fn a_due_change_is_within_its_range_and_in_its_turn(observed in any_observed(), since in prop::option::of(0..2_000_u64)) {
        let state = State {
            lacks_replicas_since: since.map(|age| NOW.earlier(Duration::from_secs(age))),
            ..State::default()
        };
        let decision = coordinate(&observed, &state);
        let RequestChange::Due { to, reason } = decision.change else { return Ok(()) };
        prop_assert_ne!(observed.writer, ReplicaWriter::Other { may_retarget: false });
        prop_assert!(decision.range.min.is_none_or(|min| to >= min));
        prop_assert!(decision.range.max.is_none_or(|max| to <= max));
        let current = observed.mean_request.unwrap_or_default();
        prop_assert!(observed.resource == Resource::Cpu || to >= current);
        if observed.writer != ReplicaWriter::Plimsoll {
            // The target can follow: rounded to whole percent, the scale point is kept.
            let point = decision.scale_point.expect("a scale point");
            let percent = retarget::target_percent(point, to);
            let kept = to as f64 * f64::from(percent) / 100.0;
            let is_memory_kept = observed.resource == Resource::Memory && to == current;
            prop_assert!(is_memory_kept || (kept - point.milli as f64).abs() <= to as f64 * 0.005 + 1.0, "{kept}");
        }
        let is_urgent = matches!(reason, ChangeReason::BelowBounds | ChangeReason::AtMaxReplicas);
        let waited = observed.request_changed.is_none_or(|at| at.later(MIN_CHANGE_INTERVAL) <= NOW);
        prop_assert!(is_urgent || waited);
        prop_assert!(reason != ChangeReason::AtMaxReplicas || (to > current && observed.can_raise_in_place));
    }

    #[test]
    fn fitted_containers_are_within_the_range(
        containers in prop::collection::vec(1..5_000_i64, 1..5),
        min in 1..5_000_i64,
        span in 0..5_000_i64,
    ) {
        let range = RequestRange { min: Some(min), max: Some(min + span), floor: None };
        let fitted = range.fit(&containers, 0);
        let sum: i64 = fitted.iter().sum();
        // Rounding may take one unit per container over or under the bound it was rounded away from.
        let slack = containers.len() as i64;
        prop_assert!(sum >= min.min(min + span - slack) && sum <= (min + span).max(min + slack), "{sum}");
    }

    #[test]
    fn a_step_of_a_wave_never_makes_replicas_scarce(a in 50..2_000_i64, before in 50..4_000_i64, after in 50..4_000_i64) {
        let point = ScalePoint { milli: a, source: ScalePointSource::Template };
        let target = retarget::target_for_step(point, before, after);
        // With the usage of the scale point, neither the old nor the new requests ask for more replicas.
        for mean in [before, after] {
            if retarget::target_percent(point, mean) == retarget::target_percent(point, mean).clamp(51, 94) {
                let utilization = a as f64 / mean as f64 * 100.0;
                prop_assert!(utilization <= f64::from(target) * 1.1, "{utilization} {target}");
            }
        }
    }
}
