//! Samples added as a run, compared with the same samples one by one.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    history::{Resource, SampleBatch, Snapshot},
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

/// The samples of one pod and resource.
#[derive(Clone, Debug)]
struct PodSamples {
    pod: Arc<str>,
    gauge: Resource,
    covers: Option<Duration>,
    points: Vec<(Time, f64)>,
}

/// How the samples are read.
#[derive(Clone, Copy, Debug)]
struct BatchCase {
    weighting: HistoryWeighting,
    /// When a pod was first observed live.
    live: Option<u32>,
    /// A gap in the history.
    gap: Option<(u32, u32)>,
    /// End of the stored history that the load continues.
    stored: Option<u32>,
    /// Sampling interval in seconds.
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
    let gauge = prop_oneof![Just((Resource::Cpu, 1.0)), Just((Resource::Memory, 1e9))];
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

/// The resulting snapshot, and the counters of the load.
fn read(case: BatchCase, all: &[PodSamples], as_runs: bool) -> (Option<Snapshot>, String) {
    let now = minute(9000);
    let mut registry = waiting(case);
    let mut bootstrap = HistoryBootstrap::new(&registry.settings, now);
    if let Some(until) = case.stored {
        let mut live_run = waiting(BatchCase { live: None, ..case });
        take_live(&mut live_run, until);
        let snapshot = snapshot(&live_run, now).expect("has history");
        let history = registry.read_snapshot(&key(), &snapshot, now).expect("valid");
        let history = history.expect("belongs to this VPA");
        bootstrap.resume_from(&key(), history, |vpa| registry.start_history(vpa));
    }
    for PodSamples { pod, gauge, covers, points } in all {
        let begin = |vpa: &ObjectKey| {
            let builder = registry.start_history(vpa)?;
            Some(match case.gap {
                Some((after, before)) => builder.for_gap(minute(after), minute(before)),
                None => builder,
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
    let stats = format!("{:?}", bootstrap.counts);
    for (key, builder) in bootstrap.finish() {
        registry.merge_history(&key, builder, now);
    }
    (snapshot(&registry, now), stats)
}

fn waiting(case: BatchCase) -> VpaRegistry {
    let sampling_interval = Duration::from_secs(case.every);
    let history_weighting = case.weighting;
    let settings = Settings { history_weighting, sampling_interval, ..Settings::default() };
    let mut registry = VpaRegistry::new(settings, Compat::Plimsoll);
    registry.track(&key().vpa, VpaSettings::default(), START);
    if let Some(live) = case.live {
        take_live(&mut registry, live);
    }
    registry
}

fn take_live(registry: &mut VpaRegistry, until: u32) {
    for at in [minute(until).earlier(MINUTE), minute(until)] {
        let (cpu, memory) = (Some(MilliCpu(250)), Some(Bytes(1 << 28)));
        let usage = UsageSample { pod: "web-1", container: "app", at, cpu, memory };
        registry.ingest().add_usage(&key().vpa, usage, at);
    }
}

fn snapshot(registry: &VpaRegistry, now: Time) -> Option<Snapshot> {
    let history = registry.get(&key().vpa)?.history.get("app")?;
    Some(history.to_snapshot(now, &registry.rules(&key().vpa, "app")?))
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn a_batch_of_samples_counts_like_the_single_samples(
        case in case(),
        all in prop::collection::vec(values(), 1..12),
    ) {
        let (one_by_one, counted) = read(case, &all, false);
        let (at_once, tallied) = read(case, &all, true);
        prop_assert_eq!(at_once, one_by_one);
        prop_assert_eq!(tallied, counted);
    }
}
