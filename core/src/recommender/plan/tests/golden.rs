//! The plans equal those of the reference to nine digits.

use serde::Deserialize;

use crate::{
    recommender::plan::{
        CpuOutcome, CpuPlan, CpuPlanSettings, PeakWindowSettings, PlanProfile, plan_buckets,
    },
    types::Time,
};

use super::fixture::{DAY_MINUTES, noise, replay, replay_memory, seconds, usage};

#[derive(Deserialize)]
struct Golden {
    bucket_starts: std::collections::BTreeMap<String, f64>,
    bucket_of: std::collections::BTreeMap<String, u8>,
    one_plan: OnePlan,
    replays: Vec<GoldenReplay>,
    memory: Vec<GoldenMemory>,
}

#[derive(Deserialize)]
struct OnePlan {
    t: f64,
    lo: u8,
    hi: u8,
    ask: f64,
    #[serde(rename = "use")]
    used: f64,
    k: f64,
    buckets: std::collections::BTreeMap<String, [f64; 4]>,
    new: f64,
    gain: f64,
    alarm: f64,
}

#[derive(Deserialize)]
struct GoldenReplay {
    series: String,
    days: usize,
    profile: PlanProfile,
    first_request: f64,
    /// Time, old and new request, gain, share of the recent usage above the old one.
    changes: Vec<[f64; 5]>,
    last_request: f64,
    slack: f64,
    shortfall: f64,
    above: f64,
}

#[derive(Deserialize)]
struct GoldenMemory {
    series: String,
    first_request: f64,
    ooms: Vec<[f64; 4]>,
    changes: Vec<[f64; 3]>,
    last_request: f64,
}

fn golden() -> Golden {
    let text = include_str!("../../../../../tests/golden/planned-requests.json");
    serde_json::from_str(text).expect("the golden vectors can be read")
}

fn assert_close(actual: f64, expected: f64, what: &str) {
    let tolerance = 1e-9 * expected.abs().max(1e-3);
    assert!((actual - expected).abs() <= tolerance, "{what}: {actual}, expected {expected}");
}

#[test]
fn buckets_are_those_of_the_reference() {
    let golden = golden();
    assert_eq!((golden.bucket_starts.len(), golden.bucket_of.len()), (11, 9));
    for (index, start) in golden.bucket_starts {
        let index: u8 = index.parse().expect("a number");
        assert_eq!(plan_buckets().starts[usize::from(index)], start, "start of {index}");
    }
    for (cores, bucket) in golden.bucket_of {
        let cores: f64 = cores.parse().expect("a number");
        assert_eq!(plan_buckets().find(cores), bucket, "bucket of {cores}");
    }
}

#[test]
fn one_plan_has_every_number_of_the_reference() {
    let expected = golden().one_plan;
    let settings = CpuPlanSettings::of(PlanProfile::Steady);
    let mut plan = CpuPlan::new(Time::EPOCH);
    for minute in 0..180 {
        let cores = [0.1, 0.2, 0.4][minute % 3];
        assert!(plan.add(&settings, seconds(minute as f64 * 60.0), cores, Some(0.3)));
    }
    assert_eq!(plan.bucket_range(), Some((expected.lo, expected.hi)));
    assert_close(plan.requested, expected.ask, "requested");
    assert_close(plan.used, expected.used, "used");
    assert_eq!(expected.buckets.len(), 3);
    for (bucket, [start, end, weight, recent]) in expected.buckets {
        let bucket: u8 = bucket.parse().expect("a number");
        assert_eq!(plan_buckets().starts[usize::from(bucket)], start);
        assert_eq!(plan_buckets().end(bucket), end);
        let in_hours: f64 = (0..24)
            .flat_map(|hour| plan.hours.slot(hour))
            .filter(|(known, _)| *known == bucket)
            .map(|(_, weight)| weight)
            .sum();
        assert_close(in_hours, weight, "weight");
        let in_recent = plan.recent.slot(0).find(|(known, _)| *known == bucket);
        assert_close(in_recent.map_or(0.0, |(_, weight)| weight), recent, "recent weight");
    }
    let decision = plan.decide(&settings, seconds(expected.t), 0.3);
    let made = decision.plan.expect("the first plan is due");
    assert_close(made.fill, expected.k, "fill");
    assert_close(made.best, expected.new, "best");
    assert_close(made.gain, expected.gain, "gain");
    assert_close(decision.alarm, expected.alarm, "alarm");
    assert_eq!(decision.outcome, CpuOutcome::Changed { out_of_turn: false });
}

#[test]
fn replays_are_those_of_the_reference() {
    let replays = golden().replays;
    assert_eq!(replays.len(), 21);
    let noise = noise(35 * DAY_MINUTES);
    for expected in replays {
        let what = format!("{} {}", expected.series, expected.profile);
        let samples: Vec<(f64, f64)> = (0..expected.days * DAY_MINUTES)
            .filter_map(|minute| {
                Some((minute as f64 * 60.0, usage(&expected.series, minute, noise[minute])?))
            })
            .collect();
        let (actual, _) = replay(&CpuPlanSettings::of(expected.profile), &samples);
        assert_eq!(actual.first_request, expected.first_request, "{what}: first request");
        let times: Vec<f64> = actual.changes.iter().map(|(at, _)| *at).collect();
        let expected_times: Vec<f64> = expected.changes.iter().map(|change| change[0]).collect();
        assert_eq!(times, expected_times, "{what}: times of changes");
        for ((at, decision), [_, old, new, gain, alarm]) in
            actual.changes.iter().zip(&expected.changes)
        {
            let what = format!("{what} at {at}");
            let plan = decision.plan.expect("a change has a plan");
            assert_close(decision.request, *old, &format!("{what}: old request"));
            assert_close(decision.target, *new, &format!("{what}: new request"));
            assert_close(plan.gain, *gain, &format!("{what}: gain"));
            assert_close(decision.alarm, *alarm, &format!("{what}: alarm"));
        }
        assert_close(actual.last_request, expected.last_request, &format!("{what}: last request"));
        assert_close(actual.slack, expected.slack, &format!("{what}: slack"));
        assert_close(actual.shortfall, expected.shortfall, &format!("{what}: shortfall"));
        assert_close(actual.above, expected.above, &format!("{what}: time above"));
    }
}

#[test]
fn memory_replays_are_those_of_the_reference() {
    let replays = golden().memory;
    assert_eq!(replays.len(), 4);
    // The vectors are in MiB.
    let settings = PeakWindowSettings { floor_bytes: 1.0, ..PeakWindowSettings::default() };
    for expected in replays {
        let actual = replay_memory(&settings, &expected.series);
        let what = &expected.series;
        assert_close(actual.first_request, expected.first_request, what);
        assert_eq!(actual.kills.len(), expected.ooms.len(), "{what}: kills");
        for (actual, expected) in actual.kills.iter().zip(&expected.ooms) {
            for (actual, expected) in actual.iter().zip(expected) {
                assert_close(*actual, *expected, what);
            }
        }
        assert_eq!(actual.changes.len(), expected.changes.len(), "{what}: changes");
        for (actual, expected) in actual.changes.iter().zip(&expected.changes) {
            for (actual, expected) in actual.iter().zip(expected) {
                assert_close(*actual, *expected, what);
            }
        }
        assert_close(actual.last_request, expected.last_request, what);
    }
}
