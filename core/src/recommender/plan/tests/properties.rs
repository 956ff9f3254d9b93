//! What holds for all inputs.

use proptest::prelude::*;

use crate::{
    recommender::plan::{
        CpuOutcome, CpuPlan, CpuPlanSettings, KeptBecause, MemoryOutcome, PeakWindow,
        PeakWindowSettings, PlanProfile, plan_buckets,
    },
    types::Time,
};

use super::fixture::{DAY_MINUTES, noise, replay, seconds};

const MINUTE: f64 = 60.0;
const DAY: f64 = 86_400.0;

fn profile() -> impl Strategy<Value = PlanProfile> {
    prop::sample::select(vec![PlanProfile::Steady, PlanProfile::Balanced, PlanProfile::Tide])
}

proptest! {
    #[test]
    fn a_request_is_never_above_the_highest_usage_that_counts(
        steps in prop::collection::vec((30.0..7200.0_f64, 0.0..64.0_f64), 1..150),
        request in 0.01..100.0_f64,
        profile in profile(),
    ) {
        let settings = CpuPlanSettings::of(profile);
        let (mut plan, mut at, mut request) = (CpuPlan::new(Time::EPOCH), 0.0, request);
        let mut samples: Vec<(f64, f64)> = Vec::new();
        for (step, used) in steps {
            at += step;
            samples.push((at, used));
            prop_assert!(plan.add(&settings, seconds(at), used, Some(request)));
            let decision = plan.decide(&settings, seconds(at), request);
            if decision.outcome.is_change() {
                let since = (at / DAY).floor() * DAY - 2.0 * DAY;
                let peak = samples
                    .iter()
                    .filter(|(at, _)| *at >= since)
                    .fold(0.0_f64, |peak, (_, used)| peak.max(*used));
                let limit = plan_buckets().end(plan_buckets().find(peak));
                prop_assert!(decision.target <= limit.max(settings.floor_cores) * (1.0 + 1e-12));
                let made = decision.plan.expect("a change has a plan");
                prop_assert!(made.gain > made.price);
                prop_assert!(made.lower <= made.best && made.best <= made.upper);
                request = decision.target;
            } else {
                prop_assert_eq!(decision.target, request);
            }
        }
    }

    #[test]
    fn missing_samples_never_lower_a_request(
        steps in prop::collection::vec(0.05..8.0_f64, 10..300),
        request in 0.01..64.0_f64,
        silence in prop::collection::vec(901.0..40_000.0_f64, 1..20),
        profile in profile(),
    ) {
        let settings = CpuPlanSettings::of(profile);
        let memory_settings = PeakWindowSettings::default();
        let mut plan = CpuPlan::new(Time::EPOCH);
        let mut window = PeakWindow::new(Time::EPOCH);
        let mut at = 0.0;
        for used in steps {
            at += 10.0 * MINUTE;
            plan.add(&settings, seconds(at), used, Some(request));
            window.add(&memory_settings, seconds(at), used * 1e8);
        }
        let (mut cpu, mut memory) = (request, request * 1e9);
        for silence in silence {
            at += silence;
            let decision = plan.decide(&settings, seconds(at), cpu);
            prop_assert!(decision.target >= cpu, "CPU lowered from {cpu}: {decision:?}");
            cpu = decision.target;
            let decision = window.decide(&memory_settings, seconds(at), memory).expect("samples");
            prop_assert!(decision.target >= memory, "memory lowered: {decision:?}");
            memory = decision.target;
        }
    }

    #[test]
    fn memory_is_the_highest_usage_and_the_margin_at_most(
        steps in prop::collection::vec((60.0..90_000.0_f64, 2e6..1e10_f64), 1..100),
        request in 1e6..2e10_f64,
    ) {
        let settings = PeakWindowSettings::default();
        let (mut window, mut at, mut request) = (PeakWindow::new(Time::EPOCH), 0.0, request);
        let mut highest = 0.0_f64;
        for (step, used) in steps {
            at += step;
            highest = highest.max(used);
            window.add(&settings, seconds(at), used);
            let decision = window.decide(&settings, seconds(at), request).expect("has samples");
            if decision.target != request {
                prop_assert!(decision.target <= highest * (1.0 + settings.margin));
                prop_assert!(decision.target >= used * (1.0 + settings.margin) - 1.0);
            }
            request = decision.target;
        }
    }

    /// Within three days: the days of both parts begin at other times, so peaks may be left out a day later after that.
    #[test]
    fn a_plan_continues_after_a_merge_as_if_it_had_never_been_split(
        used in prop::collection::vec(0.05..4.0_f64, 50..200),
        split in 0.1..0.9_f64,
        profile in profile(),
    ) {
        let settings = CpuPlanSettings::of(profile);
        let mut whole = CpuPlan::new(Time::EPOCH);
        let split = (used.len() as f64 * split) as usize;
        let at = |index: usize| seconds(index as f64 * 1200.0);
        let (mut first, mut second) = (CpuPlan::new(Time::EPOCH), CpuPlan::new(at(split)));
        for (index, used) in used.iter().enumerate() {
            whole.add(&settings, at(index), *used, Some(1.0));
            let part = if index < split { &mut first } else { &mut second };
            part.add(&settings, at(index), *used, Some(1.0));
        }
        second.merge(first, &settings);
        let now = at(used.len());
        let (whole, merged) =
            (whole.decide(&settings, now, 0.01), second.decide(&settings, now, 0.01));
        let (whole, merged) = (whole.plan.expect("due"), merged.plan.expect("due"));
        let tolerance = 1e-9 * whole.gain.abs().max(1.0);
        prop_assert!((whole.gain - merged.gain).abs() < tolerance, "{whole:?}, {merged:?}");
        prop_assert_eq!(whole.best, merged.best);
    }
}

#[test]
fn invalid_samples_are_not_added() {
    let settings = CpuPlanSettings::of(PlanProfile::Tide);
    let (mut plan, mut window) = (CpuPlan::new(Time::EPOCH), PeakWindow::new(Time::EPOCH));
    let untouched = (plan.clone(), window.clone());
    for invalid in [f64::NAN, f64::INFINITY, -0.1] {
        assert!(!plan.add(&settings, Time::EPOCH, invalid, Some(1.0)));
        assert!(!window.add(&PeakWindowSettings::default(), Time::EPOCH, invalid));
    }
    assert_eq!((&plan, &window), (&untouched.0, &untouched.1));
    let decision = plan.decide(&settings, Time::EPOCH, 0.3);
    assert_eq!(decision.outcome, CpuOutcome::Kept(KeptBecause::NoSamples));
    assert_eq!(window.decide(&PeakWindowSettings::default(), Time::EPOCH, 3e8), None);
}

/// A level shift up by a factor of four, with noise of 5 %: `steady` follows within an hour, the others within half of
/// one and no profile stays below it.
#[test]
fn a_level_shift_up_is_followed_in_time() {
    let noise = noise(6 * DAY_MINUTES);
    let shift = 4 * DAY_MINUTES;
    for (profile, minutes) in
        [(PlanProfile::Steady, 60.0), (PlanProfile::Balanced, 30.0), (PlanProfile::Tide, 20.0)]
    {
        let samples: Vec<(f64, f64)> = noise
            .iter()
            .enumerate()
            .map(|(minute, noise)| {
                let level = if minute < shift { 0.5 } else { 2.0 };
                (minute as f64 * MINUTE, level * (0.95 + 0.1 * noise))
            })
            .collect();
        let (replayed, _) = replay(&CpuPlanSettings::of(profile), &samples);
        let followed = replayed
            .changes
            .iter()
            .find(|(at, decision)| *at >= 4.0 * DAY && decision.target > 1.9)
            .expect("it is followed");
        let after = (followed.0 - 4.0 * DAY) / MINUTE;
        assert!(after <= minutes, "{profile}: {after} minutes");
        assert_eq!(followed.1.outcome, CpuOutcome::Changed { out_of_turn: true });
    }
}

#[test]
fn lowered_memory_waits_after_a_change() {
    let settings = PeakWindowSettings::default();
    let mut window = PeakWindow::new(Time::EPOCH);
    window.add(&settings, seconds(0.0), 1e9);
    let decide = |window: &mut PeakWindow, at: f64| {
        window.add(&settings, seconds(at), 1e8);
        window.decide(&settings, seconds(at), 3e9).expect("has samples").outcome
    };
    assert_eq!(decide(&mut window, DAY), MemoryOutcome::RecentlyChanged);
    assert_eq!(decide(&mut window, DAY * 1.3), MemoryOutcome::Lowered);
    let raised = window.add_oom(&settings, seconds(DAY * 1.4), 2e9);
    assert_eq!(raised, 2.4e9);
    let decision = window.decide(&settings, seconds(DAY * 1.4), raised).expect("has samples");
    assert_eq!(decision.outcome, MemoryOutcome::CloseEnough);
    assert_eq!(decision.oom_at, Some(seconds(DAY * 1.4)));
}
