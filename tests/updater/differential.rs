//! Differential test of the updaters: compares what upstream's updater does to the same pods with what Plimsoll's does. Any
//! difference that is not in the list of expected differences fails the test.
//!
//! By default upstream's side is a recording, which `cargo xtask record updater` renews, and Plimsoll runs against the
//! recorded API server. In a deep run ([`deep`]) both run live: `PLIMSOLL_SEED=n` replays a run, and
//! `PLIMSOLL_PEER=upstream` replaces Plimsoll with a second upstream process, so that any difference is an error of this
//! test.

mod assertions;
mod compare;
mod deep;
mod dry_run_proxy;
mod exported_metrics;
mod generated_pods;
mod generated_restrictions;
mod generated_vpas;
mod recording;
mod replay;
mod scenario;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::assertions::ComparedPair;
use self::compare::Urgencies;
use self::dry_run_proxy::{PassCounts, RecordedWrite};
use self::recording::{ActionNames, Recording, golden};
use self::scenario::Scenario;

const NAMESPACES: [&str; 8] =
    ["team-0", "team-1", "team-2", "team-3", "team-4", "team-5", "team-6", "team-7"];
const WORKLOADS: usize = 112;
/// Seed of the recording.
const SEED: u64 = 6;

/// Flags of both updaters in addition to the common ones, and the number of passes.
#[derive(Debug)]
struct DifferentialPart {
    flags: &'static [&'static str],
    passes: PassCounts,
    /// Whether startup boosts are removed.
    unboosts: bool,
}

static PARTS: [DifferentialPart; 2] = [
    DifferentialPart {
        flags: &["--feature-gates=CPUStartupBoost=true,InPlace=true"],
        // The second pass knows which resizes were infeasible in the first.
        passes: PassCounts { idle: 1, recorded: 2 },
        unboosts: true,
    },
    DifferentialPart {
        flags: &[
            "--feature-gates=PerVPAConfig=true",
            "--eviction-tolerance=1",
            "--in-place-skip-disruption-budget=true",
            "--min-replicas=1",
            "--pod-update-threshold=0.3",
            "--in-recommendation-bounds-eviction-lifetime-threshold=1h",
            "--evict-after-oom-threshold=30m",
        ],
        passes: PassCounts { idle: 0, recorded: 1 },
        unboosts: false,
    },
];

/// Everything that one updater did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct UpdaterActions {
    /// Requests about pods, in order.
    asked: Vec<RecordedWrite>,
    /// Writes to anything but pods and events.
    elsewhere: Vec<String>,
    /// Its own metrics page.
    metrics: String,
    /// Update priorities of pods, if the updater logs them.
    urgencies: Urgencies,
}

#[tokio::test]
async fn evictions_and_metrics_match_the_recording_of_upstreams_updater() {
    let recording: Arc<Recording> = Arc::new(golden(SEED).read());
    let scenario = Scenario::draw(SEED, WORKLOADS, &NAMESPACES, Timestamp::UNIX_EPOCH);
    let names = Arc::new(ActionNames::of(&scenario));
    let mut replayed = Vec::new();
    for part in PARTS.iter().enumerate() {
        replayed.push(replay::replay_recording(&recording, &names, part).await);
    }
    let sides = recording.parts.iter().zip(&replayed);
    let sides: Vec<_> = sides.map(|(recorded, ours)| [&recorded.theirs, ours]).collect();
    let pair = ComparedPair { label: "recorded", is_ours: true, is_usual: true };
    pair.assert_same(&scenario, &sides);
}
