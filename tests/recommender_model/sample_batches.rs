//! Samples that come as a run, against the same samples one by one.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    history::{SampleBatch, Snapshot, UsageMetric},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_core::{
    recommender::{
        HistoryBootstrap, HistoryWeighting, Settings, VpaRegistry, VpaSettings,
        registry::UsageSample,
    },
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};
use proptest::prelude::*;

use super::{MINUTE, START, minute};
use crate::support::tier;

/// Of one pod and gauge.
#[derive(Clone, Debug)]
struct PodSamples {
    pod: Arc<str>,
    gauge: UsageMetric,
    covers: Option<Duration>,
    points: Vec<(Time, f64)>,
}

/// How they are read.
#[derive(Clone, Copy, Debug)]
struct BatchCase {
    weighting: HistoryWeighting,
    /// When a pod was first seen live.
    live: Option<u32>,
    /// What a history lacks.
    gap: Option<(u32, u32)>,
    /// Until when a stored history was lived that it goes on from.
    stored: Option<u32>,
    /// How often samples are taken, in seconds.
    every: u64,
}

fn key() -> ContainerKey {
    ContainerKey::new(ObjectKey::new("team", "web"), "app")
}

fn values() -> impl Strategy<Value = PodSamples> {
    let value = prop_oneof![
        20 => 0.0..3.0_f64,
        5 => (0..40_i64).prop_map(|millicores| millicores as f64 / 1000.0),
        1 => prop_oneof![Just(f64::NAN), Just(-1.0), Just(f64::INFINITY)],
    ];
    let gauge = prop_oneof![Just((UsageMetric::Cpu, 1.0)), Just((UsageMetric::Memory, 1e9))];
    let step = prop_oneof![8 => Just(60_u64), 2 => 0..900_u64, 1 => Just(90_000)];
    let covers =
        prop_oneof![Just(None), (0..5_u64).prop_map(|it| Some(Duration::from_secs(it * 75)))];
    let points = prop::collection::vec((step, value), 0..60);
    (0..3_u8, gauge, 0..5000_u32, covers, points).prop_map(
        |(pod, (gauge, unit), from, covers, points)| {
            let mut at = minute(from);
            let next = |(step, value)| {
                at = at.later(Duration::from_secs(step));
                (at, value * unit)
            };
            let points = points.into_iter().map(next).collect();
            PodSamples { pod: format!("web-{pod}").into(), gauge, covers, points }
        },
    )
}

fn case() -> impl Strategy<Value = BatchCase> {
    let weighting = prop_oneof![Just(HistoryWeighting::Duration), Just(HistoryWeighting::Upstream)];
    let time = || prop::option::of(0..6000_u32);
    let gap = prop::option::of((0..3000_u32, 3000..6000_u32));
    let every = prop_oneof![Just(60_u64), 1..200_u64];
    (weighting, time(), gap, time(), every).prop_map(|(weighting, live, gap, stored, every)| {
        BatchCase { weighting, live, gap, stored, every }
    })
}

/// What comes of it, and what was counted.
fn read(case: BatchCase, all: &[PodSamples], as_runs: bool) -> (Option<Snapshot>, String) {
    let now = minute(9000);
    let mut fleet = waiting(case);
    let mut bootstrap = HistoryBootstrap::new(fleet.settings(), now);
    if let Some(until) = case.stored {
        let mut lived = waiting(BatchCase { live: None, ..case });
        take_live(&mut lived, until);
        let snapshot = snapshot(&lived, now).expect("it was lived");
        let history = fleet.read_snapshot(&key(), &snapshot, now).expect("is sound");
        let history = history.expect("is of this VPA");
        bootstrap.resume_from(&key(), history, |vpa| fleet.start_history(vpa));
    }
    for PodSamples { pod, gauge, covers, points } in all {
        let begin = |vpa: &ObjectKey| {
            let folding = fleet.start_history(vpa)?;
            Some(match case.gap {
                Some((after, before)) => folding.for_gap(minute(after), minute(before)),
                None => folding,
            })
        };
        let run = SampleBatch { replica: pod, gauge: *gauge, covers: *covers, points };
        if as_runs {
            bootstrap.add_batch(&key(), run, begin);
        } else {
            for sample in run.samples() {
                bootstrap.add_sample(&key(), &sample, begin);
            }
        }
    }
    let tally = format!("{:?}", bootstrap.counts());
    for (key, folding) in bootstrap.finish() {
        fleet.merge_history(&key, folding, now);
    }
    (snapshot(&fleet, now), tally)
}

fn waiting(case: BatchCase) -> VpaRegistry {
    let sampling_interval = Duration::from_secs(case.every);
    let history_weighting = case.weighting;
    let settings = Settings { history_weighting, sampling_interval, ..Settings::default() };
    let mut fleet = VpaRegistry::new(settings, Compat::Plimsoll);
    fleet.track(&key().vpa, VpaSettings::default(), START);
    if let Some(live) = case.live {
        take_live(&mut fleet, live);
    }
    fleet
}

fn take_live(fleet: &mut VpaRegistry, until: u32) {
    for at in [minute(until).earlier(MINUTE), minute(until)] {
        let (cpu, memory) = (Some(MilliCpu(250)), Some(Bytes(1 << 28)));
        let usage = UsageSample { pod: "web-1", container: "app", at, cpu, memory };
        fleet.add_usage(&key().vpa, usage, at);
    }
}

fn snapshot(fleet: &VpaRegistry, now: Time) -> Option<Snapshot> {
    let history = fleet.get(&key().vpa)?.history().get("app")?;
    Some(history.to_snapshot(now, &fleet.rules(&key().vpa, "app")?))
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn a_run_counts_as_its_samples_one_by_one(
        case in case(),
        all in prop::collection::vec(values(), 1..12),
    ) {
        let (one_by_one, counted) = read(case, &all, false);
        let (at_once, tallied) = read(case, &all, true);
        prop_assert_eq!(at_once, one_by_one);
        prop_assert_eq!(tallied, counted);
    }
}
