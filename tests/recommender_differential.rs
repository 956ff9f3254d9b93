//! Differential test: upstream's recommender and ours on one control plane, with the same usage and twin objects. Any
//! difference that is not on a list of expected ones fails.
//!
//! `PLIMSOLL_SEED=n` replays a run. `PLIMSOLL_PEER=upstream` runs a second upstream process instead of ours: a
//! difference is then a bug of this test. In the deep tier both run live; with the seed of the recording, the test
//! also checks that upstream still produces the recorded results. The gate feeds ours the inputs of the recording and
//! compares with it.

pub mod compare;
mod deep;
mod generated_cluster;
mod generated_policies;
mod live;
mod recorded;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::compare::ObjectFields;
use self::generated_cluster::GeneratedCluster;
use crate::support::bulk_objects::ApiWrite;
use crate::support::random::Random;
use crate::support::upstream_recording::UpstreamRecording;

const NAMESPACES: [&str; 6] = ["team-0", "team-1", "team-2", "team-3", "team-4", "team-5"];
const STEPS: u64 = 60;
/// One step in this many is a quiet point.
const STEPS_A_QUIET_POINT: u64 = 6;
/// Steps after the recommenders have swapped checkpoints.
const STEPS_AFTER: u64 = 6;

/// Flags of both recommenders.
const FLAGS: &[&str] = &[
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
    "--feature-gates=PerVPAConfig=true",
    "--cpu-integer-post-processor-enabled=true",
    "--v=1",
];

/// Parameters of a run.
#[derive(Debug)]
struct DifferentialRun {
    name: &'static str,
    /// Seed of the recording.
    seed: u64,
    /// Number of recorded workloads.
    recorded: usize,
    flags: &'static [&'static str],
    /// Whether the last steps are today, so that memory windows are still open by the wall clock.
    ends_today: bool,
}

/// Days of random workloads.
const DAYS: DifferentialRun = DifferentialRun {
    name: "recommender-days",
    seed: 4,
    recorded: 64,
    flags: &[],
    ends_today: false,
};

/// Short windows and other percentiles.
const SHORT: DifferentialRun = DifferentialRun {
    name: "recommender-short",
    seed: 44,
    recorded: 48,
    flags: &[
        "--memory-aggregation-interval=7h",
        "--memory-aggregation-interval-count=5",
        "--memory-histogram-decay-half-life=5h",
        "--cpu-histogram-decay-half-life=90m",
        "--target-cpu-percentile=0.7",
        "--recommendation-lower-bound-cpu-percentile=0.2",
        "--recommendation-upper-bound-cpu-percentile=0.99",
        "--target-memory-percentile=0.8",
        "--recommendation-lower-bound-memory-percentile=0.35",
        "--recommendation-upper-bound-memory-percentile=1",
        "--confidence-interval-cpu=6h",
        "--confidence-interval-memory=72h",
        "--recommendation-margin-fraction=0.37",
        "--pod-recommendation-min-cpu-millicores=90",
        "--pod-recommendation-min-memory-mb=33.5",
        "--oom-bump-up-ratio=1.61",
        "--oom-min-bump-up-bytes=33333333",
        "--round-cpu-millicores=7",
        "--round-memory-bytes=1048576",
        "--container-recommendation-max-allowed-cpu=3",
        "--container-recommendation-max-allowed-memory=5Gi",
        "--memory-saver=true",
    ],
    ends_today: true,
};

/// What upstream's recommender wrote in a run.
#[derive(Debug, Serialize, Deserialize)]
struct Recording {
    /// Start time of the recommenders.
    began: Timestamp,
    /// Time of the first samples.
    start: Timestamp,
    /// All statuses at each quiet point.
    quiet: Vec<ObjectFields>,
    /// Checkpoints when it was stopped to continue with those of ours, and at the end.
    saved: [Vec<Value>; 2],
}

// === impl Round ===

impl DifferentialRun {
    /// Steps of one to three hours.
    fn strides(seed: u64) -> Vec<SignedDuration> {
        let mut noise = Random::derive(seed, &[5]);
        let mut stride = || SignedDuration::from_secs(noise.between(3600, 3 * 3600) as i64);
        (0..STEPS + STEPS_AFTER).map(|_| stride()).collect()
    }

    /// The recording of this run.
    fn golden(&self) -> UpstreamRecording {
        let mut cluster = GeneratedCluster::draw(self.seed, self.recorded, &NAMESPACES);
        let size = (self.recorded, self.flags, self.ends_today);
        let mut inputs = vec![format!("{size:?} {FLAGS:?}")];
        inputs.extend(cluster.texts());
        let mut now = Timestamp::UNIX_EPOCH;
        for (step, stride) in (0..).zip(Self::strides(self.seed)) {
            now += stride;
            inputs.push(format!("{step} {now} {:?}", cluster.step(step)));
            if is_quiet_point(step) {
                let changes = cluster.change_pods(step, now);
                inputs.extend(changes.iter().flatten().map(ApiWrite::text));
            }
        }
        UpstreamRecording::new(self.name, self.seed, &inputs)
    }
}

/// Whether pods change after a step, followed by a full comparison.
fn is_quiet_point(step: u64) -> bool {
    step < STEPS && step % STEPS_A_QUIET_POINT == STEPS_A_QUIET_POINT - 1
}

#[tokio::test]
async fn recommendations_match_the_recording_of_upstream_for_days_of_random_workloads() {
    recorded::replay(&DAYS).await;
}

#[tokio::test]
async fn recommendations_match_the_recording_of_upstream_with_short_windows() {
    recorded::replay(&SHORT).await;
}
