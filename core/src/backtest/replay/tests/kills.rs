//! When what happens in a window of memory is seen, and which limit counts.

use crate::{
    backtest::{
        policy::{Estimates, Policy, PolicyRule, RuleContext, RuleState},
        recording::WorkloadRecording,
        replay::{ReplaySettings, facts::Facts, held::Held, replicas::Replicas, usage},
        testing::{
            MIB, MINUTES_PER_DAY, amounts, container, evaluation, minutes_later, pod,
            usage as used, workload,
        },
    },
    types::units::Bytes,
};

/// The first window in which more memory is used, and its first minute.
const WINDOW: u32 = 300;
const FIRST: u32 = 5 * WINDOW;
const REPLACED: u32 = FIRST + 2;
const KILLED: u32 = FIRST + 3;

/// A pod that uses 100 MiB, from a window on 450 MiB, with a limit of 500 MiB.
fn recording(kills: &[u32]) -> WorkloadRecording {
    let minutes = 0..2 * MINUTES_PER_DAY;
    let peak = |window| if window < WINDOW { 100.0 } else { 450.0 };
    let mut usage = used(minutes.clone(), |_| 0.1, peak);
    usage.oom_kills = kills.iter().copied().map(minutes_later).collect();
    let container = container("app", amounts(Some(100), Some(400)), amounts(None, Some(500)));
    workload("web", vec![container], vec![pod("web-1", minutes, vec![usage])])
}

/// Replays until a minute, with a limit of 1,000 MiB from [`REPLACED`] on if the pod is replaced then. Returns the target of
/// memory after each minute from that one on, and how often the container was restarted.
fn run(kills: &[u32], is_replaced: bool, end: u32) -> (Vec<i64>, u32) {
    let recording = recording(kills);
    let evaluation = evaluation(1, 1);
    let facts = Facts::new(&recording, &evaluation);
    let settings = ReplaySettings::default();
    let context = RuleContext { recording: &recording, facts: &facts, settings: &settings };
    let mut rule = RuleState::new(&Policy::new(PolicyRule::Vpa), context);
    let mut replicas = Replicas::new(&recording, &facts, evaluation.from, None);
    let mut targets = Vec::new();
    for minute in 0..=end {
        let now = usage::time_of(&recording, minute);
        replicas.show(minute, &mut rule);
        replicas.follow_recording(now, minute <= MINUTES_PER_DAY);
        replicas.create_born(minute, now, |_| None);
        if minute == REPLACED && is_replaced {
            let mut held: Vec<Held> =
                replicas.pods[0].containers.iter().map(|of| of.held).collect();
            held[0].memory_limit = Some(Bytes(1_000 * MIB));
            replicas.replace(0, held, now);
            replicas.forget_gone(&mut rule);
        }
        if minute >= REPLACED {
            let mut estimates: Vec<Option<Estimates>> = Vec::new();
            assert!(rule.estimates(now, &mut estimates));
            targets.push(estimates[0].expect("there are samples").memory[1]);
        }
        replicas.run_minute(minute, now, &mut rule);
    }
    (targets, replicas.pods[0].containers[0].restarts)
}

#[test]
fn a_peak_is_seen_when_its_window_is_over_even_if_the_pod_is_replaced_before() {
    for is_replaced in [false, true] {
        let (targets, restarts) = run(&[], is_replaced, FIRST + 6);
        let [before @ .., after] = &targets[..] else { panic!("targets") };
        assert_eq!(before, [targets[0]; 4], "replaced: {is_replaced}");
        assert!(*after > targets[0], "replaced: {is_replaced}: {targets:?}");
        assert_eq!(restarts, 0);
    }
}

#[test]
fn a_kill_is_seen_a_minute_after_it_and_the_limit_of_that_time_counts() {
    let (targets, restarts) = run(&[KILLED], false, KILLED + 1);
    assert_eq!((targets[0], restarts), (targets[1], 1));
    // 400 MiB were requested, and 100 MiB were measured: a fifth more is less than 100 MiB more. What the container is
    // assumed to have needed was not measured.
    let seen = targets[2] as f64 / MIB as f64;
    assert!((500.0 * 1.15..500.0 * 1.15 * 1.06).contains(&seen), "{seen}");
    let (targets, restarts) = run(&[KILLED], true, KILLED + 1);
    assert_eq!((targets[2], restarts), (targets[0], 0), "the demand is at least 600 MiB");
}

#[test]
fn a_kill_at_the_end_of_a_window_is_its_own() {
    let recording = recording(&[FIRST, FIRST + 1]);
    let facts = Facts::new(&recording, &evaluation(1, 1));
    let usage = &recording.pods[0].containers[0];
    let killed_at =
        |window| facts.containers[0].demand(usage, 0, window).and_then(|demand| demand.killed_at);
    assert_eq!(killed_at(WINDOW - 1), Some(minutes_later(FIRST)));
    assert_eq!(killed_at(WINDOW), Some(minutes_later(FIRST + 1)));
    assert_eq!(killed_at(WINDOW + 1), None);
}
