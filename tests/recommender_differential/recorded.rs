//! Our recommender alone, in this process, with a stepped clock: it gets the inputs of the recording and must publish
//! the same statuses at each quiet point and save the same checkpoints as upstream did.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll::cluster::clock::Clock;
use plimsoll::controllers::recommender::{PassSummary, RecommenderHandle};
use serde_json::Value;

use super::compare::{self, Comparison, ObjectFields};
use super::generated_cluster::{GeneratedCluster, PATIENCE, ServedSample, TWINS};
use super::{DifferentialRun, FLAGS, NAMESPACES, Recording, STEPS, is_quiet_point};
use crate::recommender::in_process::{start, step, wait_for_passes, wait_until_written};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::bulk_objects::{self, ApiWrite, collection};
use crate::support::captured_log::{self, CapturedLog};
use crate::support::{MetricsServer, Testbed, tier, wait};

/// Interval of our passes on the stepped clock.
const INTERVAL: Duration = Duration::from_secs(1);
/// With `--compat=upstream` checkpoints are saved after every pass, as many as the time allows; the save at the end is
/// compared.
const SHORT_CHECKPOINTS_FLAG: &str = "--checkpoints-timeout=1ms";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Number of recorded workloads that the gate uses.
const WORKLOADS: usize = 12;
/// Changes of pods and objects arrive by watches, possibly one pass late. Additional passes change nothing.
const PASSES_TO_AGREE: usize = 5;
/// Logged by a pass that continues while usage is still being fetched.
const LATE_USAGE_MESSAGE: &str = "usage fetch is still running";

/// A run in progress.
struct ReplayRun {
    bed: Testbed,
    usage: MetricsServer,
    cluster: GeneratedCluster,
    clock: Clock,
    running: RecommenderHandle,
    round: &'static DifferentialRun,
    /// Number of workloads.
    count: usize,
    /// Index of the twin that ours handles.
    twin: usize,
    now: Timestamp,
    fields: usize,
    warnings: CapturedLog,
}

/// Replays a run.
#[expect(clippy::print_stdout, reason = "how much was compared")]
pub async fn replay(round: &'static DifferentialRun) {
    // The first workloads are the same for any number of workloads.
    let count = tier::cases(WORKLOADS, round.recorded);
    let recording = restrict_to_first(round.golden().read(), count);
    let Some(bed) = Testbed::api_server_only().await else { return };
    let (warnings, _guard) = captured_log::capture_filtered("plimsoll=warn");
    create_definitions(&bed).await;
    let usage = MetricsServer::serve(&bed).await;
    for name in NAMESPACES {
        bulk_objects::create_namespace(&bed, name).await;
    }
    bulk_objects::send(&bed.client(), [bulk_objects::create_definition()]).await;
    let cluster = GeneratedCluster::draw(round.seed, count, &NAMESPACES);
    // Upstream handled the other one.
    let twin = 1;
    cluster.create(&bed.client(), &[TWINS[twin]]).await;
    usage.show(recording.start, []);
    let clock = Clock::fake(recording.began.into());
    let running = begin(&bed, &clock, round, twin).await;
    let now = recording.start;
    let fields = 0;
    let mut session = ReplayRun {
        bed,
        usage,
        cluster,
        clock,
        running,
        round,
        count,
        twin,
        now,
        fields,
        warnings,
    };
    session.run_until_all_observed().await;
    let mut quiet = recording.quiet.iter();
    let strides = DifferentialRun::strides(round.seed);
    for (number, stride) in (0..STEPS).zip(&strides) {
        session.step(number, *stride).await;
        if is_quiet_point(number) {
            session.disturb(number).await;
            session.assert_agrees(quiet.next().expect("recorded"), number).await;
        }
    }
    let mut session = session.restart_with_checkpoints(&recording.saved[0]).await;
    session.assert_agrees(quiet.next().expect("recorded"), STEPS).await;
    for (number, stride) in (STEPS..).zip(&strides[STEPS as usize..]) {
        session.step(number, *stride).await;
        session.assert_agrees(quiet.next().expect("recorded"), number).await;
    }
    assert!(quiet.next().is_none(), "the recording has more workloads");
    let ReplayRun { running, bed, count, twin, fields, .. } = session;
    running.stop().await;
    assert_saved(&bed, count, twin, &recording.saved[1]).await;
    println!("{fields} fields compared");
}

async fn begin(
    bed: &Testbed,
    clock: &Clock,
    round: &DifferentialRun,
    twin: usize,
) -> RecommenderHandle {
    let name = format!("--recommender-name={}", TWINS[twin]);
    let interval = format!("--recommender-interval={}s", INTERVAL.as_secs());
    let mut flags = vec!["--compat=upstream", SHORT_CHECKPOINTS_FLAG, &*name, &*interval];
    flags.extend(FLAGS.iter().chain(round.flags));
    let running = start(bed, clock, &flags).await;
    // The first pass. From here on a step is one pass, which reads the samples served before it.
    wait_for_passes(&running, 1).await;
    running
}

/// Asserts that ours has saved the same checkpoints as upstream.
async fn assert_saved(bed: &Testbed, count: usize, twin: usize, recorded: &[Value]) {
    let saved = compare::list(&bed.client(), compare::CHECKPOINTS).await;
    let mut ours = compare::fields_by_twin(&saved, compare::checkpoint)[twin].clone();
    ours.retain(|object, _| GeneratedCluster::is_among_first(object, count));
    let [left, right] = compare::fields_by_twin(recorded, compare::checkpoint);
    // Upstream had the other twin's.
    let theirs = if twin == 0 { right } else { left };
    let found = Comparison::of(theirs, ours);
    assert!(found.differences.is_empty(), "checkpoints: {}", report(&found));
    assert!(found.left.len() > count, "only {} checkpoints", found.left.len());
}

/// The recording, restricted to the first `count` workloads and without the marker.
fn restrict_to_first(mut recording: Recording, count: usize) -> Recording {
    for statuses in &mut recording.quiet {
        statuses.retain(|object, _| GeneratedCluster::is_among_first(object, count));
    }
    for saved in &mut recording.saved {
        saved.retain(|checkpoint| {
            let statuses =
                compare::fields_by_twin(std::slice::from_ref(checkpoint), compare::checkpoint);
            statuses
                .iter()
                .flat_map(ObjectFields::keys)
                .any(|object| GeneratedCluster::is_among_first(object, count))
        });
    }
    recording
}

fn report(found: &Comparison) -> String {
    let [recorded, ours] = TWINS;
    format!("{recorded} is upstream as recorded, {ours} is ours: {}", found.report())
}

// === impl Play ===

impl ReplayRun {
    /// Runs a pass. On a busy machine a pass may continue without usage; further passes run until it is read, because
    /// a fetch that is still running could be mistaken for one of the next samples.
    async fn pass(&self) -> PassSummary {
        let mut all = PassSummary::default();
        loop {
            let late = self.warnings.lines(&[LATE_USAGE_MESSAGE]).len();
            let summary = step(&self.running, &self.clock, INTERVAL).await;
            all.samples += summary.samples;
            if self.warnings.lines(&[LATE_USAGE_MESSAGE]).len() == late {
                return all;
            }
        }
    }

    /// Serves the next samples and runs passes until they are ingested.
    async fn step(&mut self, number: u64, stride: SignedDuration) {
        self.now += stride;
        let shown = self.cluster.step(number);
        self.usage.show(self.now, shown.iter().map(ServedSample::sample));
        let taken = || async { (self.pass().await.samples > 0).then_some(()) };
        wait::within(PATIENCE, "ours has ingested the served samples", taken).await;
    }

    async fn statuses(&self) -> ObjectFields {
        let vpas = compare::list(&self.bed.client(), compare::VPAS).await;
        compare::fields_by_twin(&vpas, compare::status)[self.twin].clone()
    }

    /// Runs passes until every VPA has a status.
    async fn run_until_all_observed(&self) {
        wait::often(POLL_INTERVAL, PATIENCE, "ours says something of every VPA", || async {
            self.pass().await;
            wait_until_written(&self.running).await;
            let statuses = self.statuses().await;
            let silent: Vec<&String> = statuses
                .iter()
                .filter(|(_, fields)| fields.is_empty())
                .map(|(name, _)| name)
                .collect();
            let is_all = silent.is_empty() && !statuses.is_empty();
            if is_all { Ok(()) } else { Err(format!("nothing of {silent:?}")) }
        })
        .await;
    }

    /// Changes pods and runs passes until ours has observed the last change.
    async fn disturb(&mut self, number: u64) {
        let client = self.bed.client();
        for writes in self.cluster.change_pods(number, self.now) {
            bulk_objects::send(&client, writes).await;
        }
        wait::often(POLL_INTERVAL, PATIENCE, "ours has observed the marker's pod", || async {
            self.pass().await;
            wait_until_written(&self.running).await;
            let seen = self.cluster.is_marked(&client, TWINS[self.twin]).await;
            if seen { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
    }

    /// Asserts that our statuses are upstream's.
    async fn assert_agrees(&mut self, recorded: &ObjectFields, number: u64) {
        let mut found = Comparison::default();
        for _ in 0..PASSES_TO_AGREE {
            self.pass().await;
            wait_until_written(&self.running).await;
            // Only the recorded workloads.
            let mut ours = self.statuses().await;
            ours.retain(|object, _| GeneratedCluster::is_among_first(object, self.count));
            found = Comparison::of(recorded.clone(), ours);
            if found.differences.is_empty() {
                self.fields += found.fields;
                return;
            }
        }
        panic!("step {number}, {}: {}", self.now, report(&found));
    }

    /// Restarts ours as the recommender of the other twins, with the checkpoints that upstream saved.
    async fn restart_with_checkpoints(self, saved: &[Value]) -> Self {
        let Self { bed, usage, cluster, clock, running, round, count, twin, now, fields, warnings } =
            self;
        running.stop().await;
        assert_saved(&bed, count, twin, saved).await;
        let twin = 1 - twin;
        let client = bed.client();
        bulk_objects::send(&client, cluster.vpas(&[TWINS[twin]])).await;
        bulk_objects::send(&client, saved.iter().map(checkpoint)).await;
        usage.show(now, []);
        let running = begin(&bed, &clock, round, twin).await;
        let session =
            Self { bed, usage, cluster, clock, running, round, count, twin, now, fields, warnings };
        session.run_until_all_observed().await;
        session
    }
}

fn checkpoint(recorded: &Value) -> ApiWrite {
    let namespace = recorded["metadata"]["namespace"].as_str().expect("found");
    let path = collection("autoscaling.k8s.io/v1", namespace, compare::CHECKPOINTS);
    ApiWrite::create(path, recorded)
}
