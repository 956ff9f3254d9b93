//! The differential of the updaters: what upstream's did with the same pods is compared with what ours does. Whatever they
//! do differently outside of a list fails.
//!
//! In the gate upstream is a recording, which `cargo xtask record updater` renews, and ours has the API server that upstream
//! had, as it was recorded. In deep ([`deep`]) both live: `PLIMSOLL_SEED=n` replays a run, `PLIMSOLL_PEER=upstream` puts a
//! second process of upstream's in the place of ours: what then differs is the fault of this test.

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
/// Of the recording.
const SEED: u64 = 6;

/// What both are told, beside what every run needs, and how long they go on.
#[derive(Debug)]
struct DifferentialPart {
    flags: &'static [&'static str],
    passes: PassCounts,
    /// Whether boosts are taken back.
    unboosts: bool,
}

static PARTS: [DifferentialPart; 2] = [
    DifferentialPart {
        flags: &["--feature-gates=CPUStartupBoost=true,InPlace=true"],
        // The second one knows which resizes were impossible in the first.
        passes: PassCounts { idle: 1, made: 2 },
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
        passes: PassCounts { idle: 0, made: 1 },
        unboosts: false,
    },
];

/// What one updater did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct UpdaterActions {
    /// What it asked about pods, in order.
    asked: Vec<RecordedWrite>,
    /// What it wanted to write beside pods and events.
    elsewhere: Vec<String>,
    /// Its own metrics.
    metrics: String,
    /// How urgent it finds pods, if it says so.
    urgencies: Urgencies,
}

#[tokio::test]
async fn ours_touches_the_pods_that_upstreams_updater_touched_and_tells_prometheus_the_same() {
    let recording: Arc<Recording> = Arc::new(golden(SEED).read());
    let scenario = Scenario::draw(SEED, WORKLOADS, &NAMESPACES, Timestamp::UNIX_EPOCH);
    let deeds = Arc::new(ActionNames::of(&scenario));
    let mut done = Vec::new();
    for part in PARTS.iter().enumerate() {
        done.push(replay::replay_recording(&recording, &deeds, part).await);
    }
    let sides = recording.parts.iter().zip(&done);
    let sides: Vec<_> = sides.map(|(recorded, ours)| [&recorded.theirs, ours]).collect();
    let against = ComparedPair { who: "recorded", is_ours: true, is_usual: true };
    against.assert_same(&scenario, &sides);
}
