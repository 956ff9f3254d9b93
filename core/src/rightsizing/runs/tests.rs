//! Targets of runs, computed by hand, and what holds for all runs.

use proptest::prelude::*;

use super::*;
use crate::rightsizing::testing::MI;

const RULES: RunRules = RunRules {
    goal: RunGoal::Work,
    margin: 0.15,
    oom_ratio: 1.2,
    oom_min_bump: 100.0 * 1_048_576.0,
};

/// A run so many hours before the newest one, with a peak in mebibytes.
fn run(age: i64, peak: i64) -> Run {
    Run {
        at: Time::from_secs(-age * 3600),
        memory_peak: Some(Bytes(peak * MI)),
        cpu_seconds: None,
        cpu_p95: None,
        length: None,
        outcome: RunOutcome::Succeeded,
        memory_limit: None,
    }
}

fn unseen(age: i64) -> Run {
    Run { memory_peak: None, ..run(age, 0) }
}

fn killed(age: i64, peak: i64, limit: i64) -> Run {
    let outcome = RunOutcome::OomKilled;
    Run { outcome, memory_limit: Some(Bytes(limit * MI)), ..run(age, peak) }
}

fn work(age: i64, cpu_seconds: f64, seconds: u64) -> Run {
    let length = Some(Duration::from_secs(seconds));
    Run { cpu_seconds: Some(cpu_seconds), length, ..run(age, 100) }
}

fn targets_of(runs: &[Run]) -> Result<RunTargets, EvidenceGap> {
    targets(runs, &RULES, &UnsaidThresholds::default()).1
}

fn memory_of(runs: &[Run]) -> f64 {
    let memory = targets_of(runs).expect("targets").memory.expect("memory");
    memory.as_f64() / MI as f64
}

#[test]
fn the_defaults_of_jobs_are_those_of_the_model() {
    assert_eq!(RunRules::new(RunGoal::Work, &Settings::default()), RULES);
}

/// 28 runs weigh (1 - 2^-2) / (1 - 2^(-1/14)) = 15.526 together. The one at index 23 weighs 2^(-23/14) =
/// 0.3202, 2.06 %, so 98 % of the weight are not reached without it; the one at index 24 weighs 0.3048, 1.96
/// %.
#[test]
fn golden_vectors_of_memory() {
    let outlier_at = |index: i64| -> Vec<Run> {
        (0..28).map(|age| run(age, if age == index { 800 } else { 200 })).collect()
    };
    let three = [run(0, 100), run(1, 200), run(2, 300)];
    for (name, runs, expected) in [
        ("the largest of three", three.to_vec(), 345.0),
        ("an outlier of 2.06 %", outlier_at(23), 920.0),
        ("an outlier of 1.96 %", outlier_at(24), 230.0),
        ("an outlier among the last 14", outlier_at(13), 920.0),
        (
            "a kill that 3 runs followed",
            vec![run(0, 300), run(1, 300), run(2, 300), killed(3, 500, 512)],
            575.0,
        ),
        // 512 x 1.2 = 614.4 is more than 512 + 100; x 1.15.
        (
            "a kill that 2 runs followed",
            vec![run(0, 300), run(1, 300), killed(2, 500, 512)],
            706.56,
        ),
        // 64 + 100 is more than 64 x 1.2; x 1.15.
        ("a kill at a small limit", vec![killed(0, 64, 64), run(1, 50), run(2, 50)], 188.6),
        // The three later runs needed more than the bump, which is over only when they need less.
        (
            "larger runs after a kill",
            vec![run(0, 700), run(1, 700), run(2, 700), killed(3, 500, 512)],
            805.0,
        ),
        (
            "a kill without a limit",
            vec![Run { memory_limit: None, ..killed(0, 200, 1) }, run(1, 50), run(2, 50)],
            345.0,
        ),
    ] {
        let found = memory_of(&runs);
        assert!((found - expected).abs() < 1e-6, "{name}: {found} instead of {expected}");
    }
}

/// The three newest runs weigh 1, 0.9517 and 0.9057; three quarters of that are 2.143.
#[test]
fn golden_vectors_of_cpu() {
    let mixed = [work(0, 60.0, 120), work(1, 30.0, 60), work(2, 90.0, 60)];
    let found = targets_of(&mixed).expect("targets");
    // 0.5 cores weigh 1.9517, so 1.5 cores are needed; 90 s of work take 60 s with them.
    assert_eq!(found.cpu, Some(MilliCpu(1500)));
    assert_eq!(found.predicted_seconds, Some(60.0));
    // The largest is the newest: 0.5 cores weigh 1.8574, and 1.5 cores are needed; now the largest is the
    // oldest of five, whose four others weigh 3.7194 of 4.5397, 81.9 %.
    let five = [
        work(0, 60.0, 120),
        work(1, 60.0, 120),
        work(2, 60.0, 120),
        work(3, 60.0, 120),
        work(4, 90.0, 60),
    ];
    let found = targets_of(&five).expect("targets");
    assert_eq!(found.cpu, Some(MilliCpu(500)));
    assert_eq!(found.predicted_seconds, Some(120.0), "60 s of work on half a core");
    // 90 % of 2.8574 need the peak of 3 cores; a run of one scrape has only its mean.
    let latency = RunRules { goal: RunGoal::Latency, ..RULES };
    let peaks =
        [Run { cpu_p95: Some(0.8), ..mixed[0] }, mixed[1], Run { cpu_p95: Some(3.0), ..mixed[2] }];
    let found = targets(&peaks, &latency, &UnsaidThresholds::default()).1.expect("targets");
    assert_eq!(found.cpu, Some(MilliCpu(3000)));
    assert_eq!(found.predicted_seconds, Some(30.0));
}

#[test]
fn nothing_is_said_about_few_runs() {
    for (name, runs, counts, is_said) in [
        ("three", vec![run(0, 1), run(1, 1), run(2, 1)], (3, 3), true),
        ("two", vec![run(0, 1), run(1, 1)], (2, 2), false),
        ("60 % seen", vec![run(0, 1), unseen(1), run(2, 1), unseen(3), run(4, 1)], (5, 3), true),
        (
            "half seen",
            vec![run(0, 1), unseen(1), run(2, 1), unseen(3), run(4, 1), unseen(5)],
            (6, 3),
            false,
        ),
        ("none", vec![], (0, 0), false),
    ] {
        let (found, targets) = targets(&runs, &RULES, &UnsaidThresholds::default());
        assert_eq!((found.total, found.seen), counts, "{name}");
        assert_eq!(targets.is_ok(), is_said, "{name}");
        let gap = targets.err();
        assert_eq!(gap, (!is_said).then_some(EvidenceGap::TooFewRuns), "{name}");
    }
}

#[test]
fn undefined_values_are_ignored() {
    let odd = [f64::NAN, f64::INFINITY, -1.0].map(|seconds| work(9, seconds, 60));
    let no_length = Run { length: Some(Duration::ZERO), ..work(9, 5.0, 1) };
    let mut runs = vec![work(0, 6.0, 60), work(1, 6.0, 60), work(2, 6.0, 60), no_length];
    runs.extend(odd);
    let found = targets_of(&runs).expect("targets");
    assert_eq!(found.cpu, Some(MilliCpu(100)));
    let (counts, _) = targets(&runs, &RULES, &UnsaidThresholds::default());
    assert_eq!(
        counts,
        RunCounts { total: 7, seen: 7, mean_seconds: Some(60), pod_seconds: Some(420) }
    );
}

#[test]
fn only_the_last_200_runs_count() {
    let mut runs: Vec<Run> = (0..200).map(|age| run(age, 100)).collect();
    let expected = targets_of(&runs);
    runs.extend((200..5000).map(|age| run(age, 9000)));
    assert_eq!(targets_of(&runs), expected);
    let (counts, _) = targets(&runs, &RULES, &UnsaidThresholds::default());
    assert_eq!(counts.total, 200);
}

prop_compose! {
    fn any_run()(
        age in 0..500_i64,
        peak in prop::option::of(1..4096_i64),
        cpu_seconds in prop::option::of(0.0..1e5_f64),
        seconds in prop::option::of(0..100_000_u64),
        limit in prop::option::of(1..4096_i64),
        outcome in prop::sample::select(&[RunOutcome::Succeeded, RunOutcome::Other, RunOutcome::OomKilled][..]),
    ) -> Run {
        Run {
            memory_peak: peak.map(|peak| Bytes(peak * MI)),
            cpu_seconds,
            cpu_p95: cpu_seconds.map(|seconds| seconds / 1e4),
            length: seconds.map(Duration::from_secs),
            outcome,
            memory_limit: limit.map(|limit| Bytes(limit * MI)),
            ..run(age, 0)
        }
    }
}

proptest! {
    #[test]
    fn the_order_of_runs_does_not_matter(runs in prop::collection::vec(any_run(), 0..40), seed: u64) {
        let mut shuffled = runs.clone();
        let mut state = seed;
        for index in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(index, (state >> 33) as usize % (index + 1));
        }
        // Runs of one time that differ only in their outcome have no order.
        let mut times: Vec<Time> = runs.iter().map(|run| run.at).collect();
        times.sort();
        times.dedup();
        prop_assume!(times.len() == runs.len());
        prop_assert_eq!(targets_of(&shuffled), targets_of(&runs));
    }

    /// Memory covers each of the last 14 runs that was not killed.
    #[test]
    fn memory_covers_the_last_runs(runs in prop::collection::vec(any_run(), 3..60)) {
        let mut runs = runs;
        runs.sort_by_key(|run| std::cmp::Reverse(run.at));
        runs.dedup_by_key(|run| run.at);
        if let Ok(RunTargets { memory: Some(memory), .. }) = targets_of(&runs) {
            let last = runs.iter().take(LAST_RUNS).filter_map(|run| run.memory_peak).max();
            prop_assert!(last.is_none_or(|last| memory.0 >= last.0));
            let needs = runs.iter().map(|run| {
                let known = run.memory_peak.max(run.memory_limit).unwrap_or_default();
                known.as_f64() * RULES.oom_ratio + RULES.oom_min_bump
            });
            let largest = needs.fold(0.0, f64::max);
            prop_assert!(memory.as_f64() <= largest * 1.15 + 1.0, "{memory:?} of {largest}");
        }
    }

    /// With the target as its request, nearly every further run of the same kind fits.
    #[test]
    fn targets_hold_the_next_runs(seed: u64, base in 50.0..2000.0_f64, spread in 0.0..0.5_f64) {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut peak = || base * (1.0 + spread * (next() + next() + next()) / 3.0);
        let history: Vec<Run> = (0..44).map(|age| {
            Run { memory_peak: Some(Bytes::from_f64(peak() * MI as f64)), ..run(age, 0) }
        }).collect();
        let target = memory_of(&history);
        let held = (0..50).filter(|_| peak() <= target).count();
        prop_assert!(held >= 49, "{held} of 50 held");
    }

    #[test]
    fn a_larger_peak_never_lowers_memory(runs in prop::collection::vec(any_run(), 3..30), index: prop::sample::Index, more in 1..4096_i64) {
        let mut larger = runs.clone();
        let changed = &mut larger[index.index(runs.len())];
        prop_assume!(changed.memory_peak.is_some() && changed.outcome != RunOutcome::OomKilled);
        // A run that needs more can keep an older OOM kill from being over, which raises the target too.
        changed.memory_peak = changed.memory_peak.map(|peak| Bytes(peak.0 + more * MI));
        let mut times: Vec<Time> = runs.iter().map(|run| run.at).collect();
        times.sort();
        times.dedup();
        prop_assume!(times.len() == runs.len());
        if let (Ok(before), Ok(after)) = (targets_of(&runs), targets_of(&larger)) {
            prop_assert!(after.memory >= before.memory);
        }
    }
}
