//! Samples that come as a run, against the same samples one by one.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    history::{Gauge, Run, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_core::{
    recommender::{Bootstrap, Directives, Fleet, HistoryWeighting, Settings, fleet::Usage},
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
struct Values {
    pod: Arc<str>,
    gauge: Gauge,
    covers: Option<Duration>,
    points: Vec<(Time, f64)>,
}

/// How they are read.
#[derive(Clone, Copy, Debug)]
struct Case {
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

fn key() -> Key {
    Key::new(VpaKey::new("team", "web"), "app")
}

fn values() -> impl Strategy<Value = Values> {
    let value = prop_oneof![
        20 => 0.0..3.0_f64,
        5 => (0..40_i64).prop_map(|millicores| millicores as f64 / 1000.0),
        1 => prop_oneof![Just(f64::NAN), Just(-1.0), Just(f64::INFINITY)],
    ];
    let gauge = prop_oneof![Just((Gauge::Cpu, 1.0)), Just((Gauge::Memory, 1e9))];
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
            Values { pod: format!("web-{pod}").into(), gauge, covers, points }
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let weighting = prop_oneof![Just(HistoryWeighting::Duration), Just(HistoryWeighting::Upstream)];
    let time = || prop::option::of(0..6000_u32);
    let gap = prop::option::of((0..3000_u32, 3000..6000_u32));
    let every = prop_oneof![Just(60_u64), 1..200_u64];
    (weighting, time(), gap, time(), every).prop_map(|(weighting, live, gap, stored, every)| Case {
        weighting,
        live,
        gap,
        stored,
        every,
    })
}

/// What comes of it, and what was counted.
fn read(case: Case, all: &[Values], as_runs: bool) -> (Option<Snapshot>, String) {
    let now = minute(9000);
    let mut fleet = waiting(case);
    let mut bootstrap = Bootstrap::new(fleet.settings(), now);
    if let Some(until) = case.stored {
        let mut lived = waiting(Case { live: None, ..case });
        take_live(&mut lived, until);
        let snapshot = snapshot(&lived, now).expect("it was lived");
        let history = fleet.recall(&key(), &snapshot, now).expect("is sound");
        let history = history.expect("is of this VPA");
        bootstrap.go_on_from(&key(), history, |vpa| fleet.begin_folding(vpa));
    }
    for Values { pod, gauge, covers, points } in all {
        let begin = |vpa: &VpaKey| {
            let folding = fleet.begin_folding(vpa)?;
            Some(match case.gap {
                Some((after, before)) => folding.between(minute(after), minute(before)),
                None => folding,
            })
        };
        let run = Run { replica: pod, gauge: *gauge, covers: *covers, points };
        if as_runs {
            bootstrap.take_run(&key(), run, begin);
        } else {
            for sample in run.samples() {
                bootstrap.take(&key(), &sample, begin);
            }
        }
    }
    let tally = format!("{:?}", bootstrap.tally());
    for (key, folding) in bootstrap.finish() {
        fleet.take_folded(&key, folding, now);
    }
    (snapshot(&fleet, now), tally)
}

fn waiting(case: Case) -> Fleet {
    let sampling_interval = Duration::from_secs(case.every);
    let history_weighting = case.weighting;
    let settings = Settings { history_weighting, sampling_interval, ..Settings::default() };
    let mut fleet = Fleet::new(settings, Compat::Plimsoll);
    fleet.track(&key().vpa, Directives::default(), START);
    if let Some(live) = case.live {
        take_live(&mut fleet, live);
    }
    fleet
}

fn take_live(fleet: &mut Fleet, until: u32) {
    for at in [minute(until).earlier(MINUTE), minute(until)] {
        let (cpu, memory) = (Some(MilliCpu(250)), Some(Bytes(1 << 28)));
        let usage = Usage { pod: "web-1", container: "app", at, cpu, memory };
        fleet.take_usage(&key().vpa, usage, at);
    }
}

fn snapshot(fleet: &Fleet, now: Time) -> Option<Snapshot> {
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
