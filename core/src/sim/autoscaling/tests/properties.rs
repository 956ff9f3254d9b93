//! What the rules have to hold to, for workloads of many shapes; and that it does not hold without them.

use std::time::Duration;

use crate::{
    coordination::change_timing::MIN_CHANGE_INTERVAL,
    sim::{
        autoscaling::{LoadCurve, Mode, Outcome, Scenario, run},
        noise::Noise,
    },
};

/// A workload of a seed. Every fourth one has the same shape of load.
fn workload(seed: u64) -> Scenario {
    let noise = Noise::new(seed).for_name("workload");
    let pick = |stream: &str, choices: &[i64]| {
        let bits = noise.for_name(stream).bits(0);
        choices[usize::try_from(bits % choices.len() as u64).expect("a small index")]
    };
    let template_request = pick("request", &[200, 300, 500, 1000]);
    // Above about 80 %, the margin of the VPA alone asks for more than the template.
    let target_percent = i32::try_from(pick("target", &[50, 55, 60, 65, 70, 75])).expect("fits");
    let scale_point = (template_request * i64::from(target_percent)) as f64 / 100.0;
    let peak = scale_point * pick("peak", &[8, 12, 20, 30]) as f64;
    let curve = match seed % 4 {
        0 => LoadCurve::Daily { night: 0.15 * peak, peak, weekend: 0.7 },
        1 => LoadCurve::Stepped { low: 0.2 * peak, high: peak, hours: 4 },
        2 => LoadCurve::Bursty { night: 0.3 * peak, peak: 0.7 * peak, burst: 0.6 * peak },
        _ => LoadCurve::Daily { night: 0.1 * scale_point, peak: 0.7 * scale_point, weekend: 1.0 },
    };
    Scenario {
        curve,
        template_request,
        target_percent,
        min_replicas: 2,
        max_replicas: 100,
        down_window: Duration::from_mins(u64::try_from(pick("window", &[3, 5, 10])).expect("fits")),
        startup_steps: u64::try_from(pick("startup", &[1, 2, 4])).expect("fits"),
        in_place: pick("resize", &[0, 1]) == 1,
        ..Scenario::daily(seed)
    }
}

fn is_idle(seed: u64) -> bool {
    seed % 4 == 3
}

/// How far two weeks are apart, as a fraction.
fn drift(outcome: &Outcome) -> f64 {
    let weeks = &outcome.weekly_replicas;
    weeks[3] / weeks[1] - 1.0
}

/// Turns a day without a VPA, and with one in each mode.
type Turns = (f64, [f64; 2]);

/// Checks all properties of one seed; returns what does not hold, and the turns.
fn violations(seed: u64) -> (Vec<String>, Turns) {
    let scenario = workload(seed);
    let alone = run(&Scenario { mode: Mode::MemoryOnly, ..scenario });
    let mut violations = Vec::new();
    let modes = [Mode::Coordinated, Mode::Retargeted];
    let outcomes = modes.map(|mode| run(&Scenario { mode, ..scenario }));
    for (mode, both) in modes.into_iter().zip(&outcomes) {
        let mut check = |holds: bool, what: String| {
            if !holds {
                violations.push(format!("seed {seed}, {mode:?}: {what}"));
            }
        };
        let (n, without) = (both.mean_replicas, alone.mean_replicas);
        check((n / without - 1.0).abs() < 0.05, format!("{n:.2} replicas, {without:.2} without"));
        let (cores, without) = (both.requested_cores, alone.requested_cores);
        check(cores <= without, format!("{cores:.2} cores requested, {without:.2} without"));
        check(drift(both).abs() < 0.03, format!("weeks {:?}", both.weekly_replicas));
        // A target in whole percent moves the scale point by up to 1 %, and with it the loads at which replicas turn.
        let (turns, without) = (both.turns_per_day, alone.turns_per_day);
        let chance = if mode == Mode::Retargeted { 1.1 } else { 1.02 };
        let is_calm = turns <= without * chance + 0.1;
        check(is_calm, format!("{turns:.2} turns a day, {without:.2} without"));
        let caused = both.scale_ups_by_waves;
        check(caused == 0, format!("{caused} scale-ups caused by waves"));
        let shortest = both.shortest_interval.unwrap_or(MIN_CHANGE_INTERVAL);
        check(shortest >= MIN_CHANGE_INTERVAL, format!("changed again after {shortest:?}"));
        let lowest = both.lowest_above_floor.unwrap_or(1.0);
        check(lowest >= 1.0, format!("a request of {lowest:.3} of the floor"));
        check(both.raises == 0, "raised the scale point below the maximum".to_owned());
        if mode == Mode::Coordinated {
            check(both.removed_in_waves == 0, "removed replicas in a wave".to_owned());
        }
        if is_idle(seed) {
            check(both.share_at_min == 1.0, format!("at min {:.3}", both.share_at_min));
            let (end, template) = (both.request_at_end, scenario.template_request);
            check(end < template, format!("request {end}m of {template}m at the end"));
        }
    }
    (violations, (alone.turns_per_day, outcomes.map(|outcome| outcome.turns_per_day)))
}

/// A VPA that wants another request all the time: every change that is allowed is made.
fn stepped_violations(seed: u64) -> Vec<String> {
    let scenario = Scenario { alternates: true, days: 8, ..workload(seed) };
    let alone = run(&Scenario { mode: Mode::MemoryOnly, ..scenario });
    let mut violations = Vec::new();
    for (mode, in_place) in [
        (Mode::Coordinated, false),
        (Mode::Coordinated, true),
        (Mode::Retargeted, false),
        (Mode::Retargeted, true),
    ] {
        let both = run(&Scenario { mode, in_place, ..scenario });
        let (n, without) = (both.mean_replicas, alone.mean_replicas);
        let (caused, waves) = (both.scale_ups_by_waves, both.request_changes);
        let has_removed = mode == Mode::Coordinated && both.removed_in_waves > 0;
        let is_disturbed = (n / without - 1.0).abs() >= 0.05;
        if caused > 0 || waves < 6 || has_removed || is_disturbed {
            violations.push(format!(
                "seed {seed}, {mode:?}, in place {in_place}: {waves} waves caused {caused} scale-ups, {} removals, {n:.2} \
                 replicas, {without:.2} without",
                both.removed_in_waves
            ));
        }
    }
    violations
}

/// Scale-ups that the same VPA causes without the rules.
fn stepped_scale_ups_without_rules(seed: u64) -> u64 {
    let mode = Mode::Unaware;
    run(&Scenario { alternates: true, days: 8, mode, ..workload(seed) }).scale_ups_by_waves
}

/// What the two autoscalers do without the rules; returns what is not worse than with them.
fn drifts(seed: u64) -> Result<(), String> {
    let scenario = workload(seed);
    let unaware = run(&Scenario { mode: Mode::Unaware, max_replicas: 400, ..scenario });
    let alone = run(&Scenario { mode: Mode::MemoryOnly, ..scenario });
    let growth = unaware.mean_replicas / alone.mean_replicas;
    let is_drifting = growth > 1.25 || drift(&unaware) > 0.03;
    let message =
        format!("seed {seed}: weeks {:?}, {growth:.2} times the replicas", unaware.weekly_replicas);
    if is_drifting { Ok(()) } else { Err(message) }
}

#[test]
fn replicas_stay_as_without_a_vpa_and_requests_fall() {
    let violations: Vec<String> = (0..4).flat_map(|seed| violations(seed).0).collect();
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn a_change_of_requests_every_twelve_hours_adds_no_replicas() {
    let violations: Vec<String> = (0..4).flat_map(stepped_violations).collect();
    assert!(violations.is_empty(), "{violations:#?}");
    for seed in (0..4).filter(|seed| !is_idle(*seed)) {
        assert!(stepped_scale_ups_without_rules(seed) > 0, "seed {seed} without the rules");
    }
}

#[test]
fn without_the_rules_replicas_drift() {
    for seed in [0, 3] {
        assert_eq!(drifts(seed), Ok(()));
    }
}

mod deep {
    use super::*;

    #[test]
    fn fifty_workloads_hold_every_property() {
        let checked: Vec<_> = (0..50).map(violations).collect();
        let violations: Vec<_> = checked.iter().flat_map(|(violations, _)| violations).collect();
        assert!(violations.is_empty(), "{violations:#?}");
        // Chance aside, there are no more turns than without a VPA.
        let without: f64 = checked.iter().map(|(_, (without, _))| without).sum();
        for mode in 0..2 {
            let with: f64 = checked.iter().map(|(_, (_, with))| with[mode]).sum();
            assert!(with <= without * 1.01, "{with:.1} turns a day, {without:.1} without");
        }
    }

    #[test]
    fn fifty_workloads_are_not_disturbed_by_waves() {
        let violations: Vec<String> = (0..50).flat_map(stepped_violations).collect();
        assert!(violations.is_empty(), "{violations:#?}");
        // Without the rules most are: some steps meet a load that hides them.
        let busy = (0..50).filter(|seed| !is_idle(*seed));
        let disturbed = busy.clone().filter(|seed| stepped_scale_ups_without_rules(*seed) > 0);
        let (disturbed, busy) = (disturbed.count(), busy.count());
        assert!(disturbed * 4 > busy * 3, "{disturbed} of {busy}");
    }

    #[test]
    fn fifty_workloads_drift_without_the_rules() {
        let stable: Vec<String> = (0..50).filter_map(|seed| drifts(seed).err()).collect();
        assert!(stable.is_empty(), "{stable:#?}");
    }
}
