//! Ours alone, in this process, with the clock of a test: it is shown what upstream was shown when that was recorded, and
//! has to say the same at each quiet point, and to save the same.

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

/// From pass to pass, on the clock of ours.
const INTERVAL: Duration = Duration::from_secs(1);
/// With `--compat=upstream` all is saved after every pass, in as much time as there is; what counts is saved at the end.
const SHORT_CHECKPOINTS_FLAG: &str = "--checkpoints-timeout=1ms";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// So many of those that are recorded, in the gate.
const WORKLOADS: usize = 12;
/// What pods and objects are like is seen by watches, and may be said a pass later. More passes change nothing.
const PASSES_TO_AGREE: usize = 5;
/// Logged by a pass that goes on although usage is still being read.
const LATE_USAGE_MESSAGE: &str = "usage is late";

/// A round under way.
struct ReplayRun {
    bed: Testbed,
    usage: MetricsServer,
    cluster: GeneratedCluster,
    clock: Clock,
    running: RecommenderHandle,
    round: &'static DifferentialRun,
    /// Workloads.
    count: usize,
    /// Which of the twins ours looks after.
    twin: usize,
    now: Timestamp,
    fields: usize,
    warnings: CapturedLog,
}

/// Plays a round.
#[expect(clippy::print_stdout, reason = "how much was compared")]
pub async fn replay(round: &'static DifferentialRun) {
    // Workloads are drawn the same, however many there are.
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
    // Upstream looked after the other one.
    let twin = 1;
    cluster.create(&bed.client(), &[TWINS[twin]]).await;
    usage.show(recording.start, []);
    let clock = Clock::fake(recording.began.into());
    let running = begin(&bed, &clock, round, twin).await;
    let now = recording.start;
    let fields = 0;
    let mut play = ReplayRun {
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
    play.has_seen_all().await;
    let mut quiet = recording.quiet.iter();
    let strides = DifferentialRun::strides(round.seed);
    for (number, stride) in (0..STEPS).zip(&strides) {
        play.step(number, *stride).await;
        if is_quiet_point(number) {
            play.disturb(number).await;
            play.assert_agrees(quiet.next().expect("it is recorded"), number).await;
        }
    }
    let mut play = play.restart_with_checkpoints(&recording.saved[0]).await;
    play.assert_agrees(quiet.next().expect("it is recorded"), STEPS).await;
    for (number, stride) in (STEPS..).zip(&strides[STEPS as usize..]) {
        play.step(number, *stride).await;
        play.assert_agrees(quiet.next().expect("it is recorded"), number).await;
    }
    assert!(quiet.next().is_none(), "more is recorded");
    let ReplayRun { running, bed, count, twin, fields, .. } = play;
    running.stop().await;
    has_saved(&bed, count, twin, &recording.saved[1]).await;
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
    // The pass that it begins with: from here on a step is one pass, and what is shown before it is read in it.
    wait_for_passes(&running, 1).await;
    running
}

/// Panics unless ours has saved what upstream did.
async fn has_saved(bed: &Testbed, count: usize, twin: usize, recorded: &[Value]) {
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

/// What is recorded of so many workloads, and not of the marker.
fn restrict_to_first(mut recording: Recording, count: usize) -> Recording {
    for said in &mut recording.quiet {
        said.retain(|object, _| GeneratedCluster::is_among_first(object, count));
    }
    for saved in &mut recording.saved {
        saved.retain(|checkpoint| {
            let said =
                compare::fields_by_twin(std::slice::from_ref(checkpoint), compare::checkpoint);
            said.iter()
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
    /// Makes a pass. On a busy machine one goes on without usage, and then others until it is read: a read that is still
    /// under way when more is shown would be taken for a read of that.
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

    /// Shows the next samples, and makes passes until one has taken them.
    async fn step(&mut self, number: u64, stride: SignedDuration) {
        self.now += stride;
        let shown = self.cluster.step(number);
        self.usage.show(self.now, shown.iter().map(ServedSample::sample));
        let taken = || async { (self.pass().await.samples > 0).then_some(()) };
        wait::within(PATIENCE, "ours has taken the samples that are shown", taken).await;
    }

    async fn statuses(&self) -> ObjectFields {
        let vpas = compare::list(&self.bed.client(), compare::VPAS).await;
        compare::fields_by_twin(&vpas, compare::status)[self.twin].clone()
    }

    /// Makes passes until something is said of every VPA.
    async fn has_seen_all(&self) {
        wait::often(POLL_INTERVAL, PATIENCE, "ours says something of every VPA", || async {
            self.pass().await;
            wait_until_written(&self.running).await;
            let said = self.statuses().await;
            let silent: Vec<&String> =
                said.iter().filter(|(_, fields)| fields.is_empty()).map(|(name, _)| name).collect();
            let is_all = silent.is_empty() && !said.is_empty();
            if is_all { Ok(()) } else { Err(format!("nothing of {silent:?}")) }
        })
        .await;
    }

    /// Changes pods, and makes passes until ours has seen the last change.
    async fn disturb(&mut self, number: u64) {
        let client = self.bed.client();
        for writes in self.cluster.change_pods(number, self.now) {
            bulk_objects::send(&client, writes).await;
        }
        wait::often(POLL_INTERVAL, PATIENCE, "ours has seen the pod of the marker", || async {
            self.pass().await;
            wait_until_written(&self.running).await;
            let seen = self.cluster.is_marked(&client, TWINS[self.twin]).await;
            if seen { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
    }

    /// Panics unless ours says what upstream said.
    async fn assert_agrees(&mut self, recorded: &ObjectFields, number: u64) {
        let mut found = Comparison::default();
        for _ in 0..PASSES_TO_AGREE {
            self.pass().await;
            wait_until_written(&self.running).await;
            // Those of the recording, and no others.
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

    /// Stops ours, and starts it again as the recommender of the other twins, with the checkpoints that upstream saved.
    async fn restart_with_checkpoints(self, saved: &[Value]) -> Self {
        let Self { bed, usage, cluster, clock, running, round, count, twin, now, fields, warnings } =
            self;
        running.stop().await;
        has_saved(&bed, count, twin, saved).await;
        let twin = 1 - twin;
        let client = bed.client();
        bulk_objects::send(&client, cluster.vpas(&[TWINS[twin]])).await;
        bulk_objects::send(&client, saved.iter().map(checkpoint)).await;
        usage.show(now, []);
        let running = begin(&bed, &clock, round, twin).await;
        let play =
            Self { bed, usage, cluster, clock, running, round, count, twin, now, fields, warnings };
        play.has_seen_all().await;
        play
    }
}

fn checkpoint(recorded: &Value) -> ApiWrite {
    let namespace = recorded["metadata"]["namespace"].as_str().expect("it is in one");
    let path = collection("autoscaling.k8s.io/v1", namespace, compare::CHECKPOINTS);
    ApiWrite::create(path, recorded)
}
