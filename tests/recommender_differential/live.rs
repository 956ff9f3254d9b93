//! Both run live: upstream's recommender and ours on one control plane, with the same usage and twin objects.
//!
//! `cargo xtask record recommender` records upstream's results. With the seed of the recording, a run also checks that
//! upstream still produces them.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::compare::{self, Comparison, ObjectFields};
use super::generated_cluster::{GeneratedCluster, PATIENCE, ServedSample, TWINS};
use super::{
    DifferentialRun, FLAGS, NAMESPACES, Recording, STEPS, STEPS_A_QUIET_POINT, is_quiet_point,
};
use crate::support::clock::wall_now;
use crate::support::random;
use crate::support::recommender_pair::{Implementation, RecommenderPair, RecommenderProcess};
use crate::support::upstream_recording::is_recording;
use crate::support::{MetricsServer, Testbed, bulk_objects, wait};

/// A list of all checkpoints is megabytes, and upstream saves only a few per pass.
const PASSES_PER_CHECK: usize = 5;
/// Number of passes within which both have to agree, however long a pass takes.
const PASSES_TO_AGREE: usize = 30;
/// With the interval of [`wait::until`] the machine would be idle for most of a step.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Checkpoint writes are cut short, so that a pass is short too; the test waits for them where it compares them.
const FAST_FLAGS: &[&str] = &["--recommender-interval=100ms", "--checkpoints-timeout=20ms"];

/// A run in progress.
struct LiveRun {
    bed: Testbed,
    usage: MetricsServer,
    pair: RecommenderPair,
    recommenders: [RecommenderProcess; 2],
    /// Index of the twin that upstream handles.
    twin: usize,
    cluster: GeneratedCluster,
    round: &'static DifferentialRun,
    seed: u64,
    now: Timestamp,
    fields: usize,
    recommended: usize,
    /// Upstream's statuses of the recorded workloads at each quiet point.
    quiet: Vec<ObjectFields>,
}

/// Runs with this number of workloads. Each has two VPAs, and every VPA is written in every pass, which takes most of
/// the time.
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
pub async fn run(round: &'static DifferentialRun, workloads: usize) {
    let second = match std::env::var("PLIMSOLL_PEER").as_deref() {
        Ok("upstream") => Implementation::Upstream,
        _ => Implementation::Ours,
    };
    let seed = random::seed(round.seed);
    println!("{}={seed}", random::SEED);
    assert!(!is_recording() || seed == round.seed, "the recording has seed {}", round.seed);
    let workloads = if is_recording() { round.recorded } else { workloads };
    let Some(bed) = Testbed::private().await else { return };
    let Some(peers) = RecommenderPair::new(&bed, &[second]).await else { return };
    let strides = DifferentialRun::strides(seed);
    let all: SignedDuration = strides.iter().sum();
    let start = if round.ends_today {
        wall_now() - all - SignedDuration::from_mins(30)
    } else {
        wall_now() - SignedDuration::from_hours(8 * 24)
    };
    let usage = MetricsServer::serve(&bed).await;
    for name in NAMESPACES {
        bulk_objects::create_namespace(&bed, name).await;
    }
    bulk_objects::stop_controllers(&bed).await;
    bulk_objects::send(&bed.client(), [bulk_objects::create_definition()]).await;
    let cluster = GeneratedCluster::draw(seed, workloads, &NAMESPACES);
    let creating = Instant::now();
    cluster.create(&bed.client(), &TWINS).await;
    println!("{workloads} workloads created in {:.1?}", creating.elapsed());

    let started = wall_now();
    let recommenders = start_both(&peers, second, round, false);
    let mut session = LiveRun {
        bed,
        usage,
        pair: peers,
        recommenders,
        twin: 0,
        cluster,
        round,
        seed,
        now: start,
        fields: 0,
        recommended: 0,
        quiet: Vec::new(),
    };
    // The first pass drops history that has expired by the wall clock, so there must not be any yet.
    session.usage.show(start, []);
    session.read_by_both(2).await;
    let mut worst = Duration::ZERO;
    let start_time = Instant::now();
    for (step, stride) in (0..STEPS).zip(&strides) {
        let step_begun = Instant::now();
        session.step(step, *stride).await;
        worst = worst.max(step_begun.elapsed());
        if is_quiet_point(step) {
            session.read_by_both(2).await;
            session.disturb(step).await;
            session.read_by_both(3).await;
            session.wait_until_settled(step).await;
            println!("step {step}: the same after {:.0?}", start_time.elapsed());
        }
    }
    assert_eq!(session.quiet.len() as u64, STEPS / STEPS_A_QUIET_POINT);
    println!("{STEPS} steps in {:.1?}, at most {worst:.1?}", start_time.elapsed());
    let first = session.wait_for_same_checkpoints().await;

    for recommender in &session.recommenders {
        session.pair.stop(recommender).await;
    }
    session.recommenders = start_both(&session.pair, second, round, true);
    session.twin = 1;
    session.usage.show(session.now, []);
    session.read_by_both(2).await;
    session.wait_until_settled(STEPS).await;
    for (step, stride) in (STEPS..).zip(&strides[STEPS as usize..]) {
        session.step(step, *stride).await;
        session.read_by_both(2).await;
        session.wait_until_settled(step).await;
    }
    let second = session.wait_for_same_checkpoints().await;
    println!("{} fields compared, {} recommendations at most", session.fields, session.recommended);
    assert!(session.recommended > workloads * 2 / 3, "{} recommended", session.recommended);
    let live = Recording { began: started, start, quiet: session.quiet, saved: [first, second] };
    if is_recording() {
        round.golden().write(&live);
    }
    if seed == round.seed && workloads >= round.recorded {
        assert_recorded(round, live);
    }
}

/// Asserts that upstream's results in this run are the recorded ones.
fn assert_recorded(round: &DifferentialRun, live: Recording) {
    let recorded: Recording = round.golden().read();
    assert_eq!(recorded.quiet.len(), live.quiet.len());
    let pairs = recorded.quiet.into_iter().zip(live.quiet);
    let weights = |saved: &[Value]| {
        // Timestamps are of another day, and totals are relative to another reference time.
        let mut twins = compare::fields_by_twin(saved, compare::checkpoint);
        for fields in twins.iter_mut().flat_map(|objects| objects.values_mut()) {
            fields
                .retain(|name, _| name.contains(".bucketWeights.") || name == "totalSamplesCount");
        }
        twins
    };
    let saved = recorded
        .saved
        .iter()
        .zip(&live.saved)
        .flat_map(|(recorded, live)| weights(recorded).into_iter().zip(weights(live)));
    for (number, (recorded, live)) in pairs.chain(saved).enumerate() {
        let found = Comparison::of(recorded, live);
        let [left, right] = TWINS;
        assert!(
            found.differences.is_empty(),
            "{}, {number}: {left} is the recorded upstream, {right} the current one: {}",
            round.name,
            found.report()
        );
    }
}

/// Starts upstream's recommender and then its peer; `swapped` gives each the other's name, and with it the other's
/// checkpoints.
fn start_both(
    peers: &RecommenderPair,
    second: Implementation,
    round: &DifferentialRun,
    swapped: bool,
) -> [RecommenderProcess; 2] {
    let mut names = TWINS.map(|name| format!("--recommender-name={name}"));
    if swapped {
        names.reverse();
    }
    let [first_name, second_name] = names;
    let flags = |name, side| {
        let mut flags: Vec<&str> =
            FAST_FLAGS.iter().chain(FLAGS).chain(round.flags).copied().collect();
        flags.push(name);
        if side == Implementation::Ours {
            flags.push("--compat=upstream");
        }
        flags
    };
    [
        peers.start(
            Implementation::Upstream,
            "upstream",
            &flags(&first_name, Implementation::Upstream),
        ),
        peers.start(second, "peer", &flags(&second_name, second)),
    ]
}

// === impl Play ===

impl LiveRun {
    /// Serves the next samples until both have read them.
    async fn step(&mut self, step: u64, stride: SignedDuration) {
        self.now += stride;
        let shown = self.cluster.step(step);
        self.usage.show(self.now, shown.iter().map(ServedSample::sample));
        self.read_by_both(1).await;
    }

    /// Waits until each has fetched the served usage `times` more times.
    async fn read_by_both(&self, times: usize) {
        let before: Vec<_> = self
            .recommenders
            .iter()
            .map(|recommender| self.usage.read_count(&recommender.user_agent))
            .collect();
        let wanted = async || {
            for recommender in &self.recommenders {
                self.pair.assert_running(recommender);
            }
            let reads = self
                .recommenders
                .iter()
                .map(|recommender| self.usage.read_count(&recommender.user_agent));
            if reads.zip(&before).all(|(now, before)| now >= before + times) {
                return Ok(());
            }
            Err(format!("{before:?} before, now {:?}", self.usage.readers()))
        };
        let description = format!("{times} more readings by both");
        wait::often(POLL_INTERVAL, PATIENCE, &description, wanted).await;
    }

    /// Changes pods and waits until both have observed the last change.
    async fn disturb(&mut self, step: u64) {
        let client = self.bed.client();
        for writes in self.cluster.change_pods(step, self.now) {
            bulk_objects::send(&client, writes).await;
        }
        let say_so = || async {
            for twin in TWINS {
                if !self.cluster.is_marked(&client, twin).await {
                    return None;
                }
            }
            Some(())
        };
        wait::within(PATIENCE, "both have observed the marker's pod", say_so).await;
    }

    /// Waits until both agree, and still agree one pass later.
    async fn wait_until_settled(&mut self, step: u64) {
        let begun = Instant::now();
        let (mut agreed, mut passes) = (0, 0);
        while agreed < 2 {
            let vpas = compare::list(&self.bed.client(), compare::VPAS).await;
            let [left, right] = compare::fields_by_twin(&vpas, compare::status);
            let mut theirs = if self.twin == 0 { left.clone() } else { right.clone() };
            let found = Comparison::of(left, right);
            agreed = if found.differences.is_empty() { agreed + 1 } else { 0 };
            assert!(
                begun.elapsed() < PATIENCE || passes < PASSES_TO_AGREE || agreed > 0,
                "seed {}, step {step}, {}: {}",
                self.seed,
                self.now,
                found.report()
            );
            if agreed == 2 {
                self.fields += found.fields;
                self.recommended = self.recommended.max(found.recommended());
                theirs.retain(|object, _| self.is_recorded(object));
                self.quiet.push(theirs);
            }
            self.read_by_both(1).await;
            passes += 1;
        }
    }

    fn is_recorded(&self, object: &str) -> bool {
        GeneratedCluster::is_among_first(object, self.round.recorded)
    }

    /// Waits until both have saved the same history, up to the last served sample, as long as the number of missing
    /// checkpoints decreases: upstream saves only a few per pass, and the time this takes depends on the machine.
    /// Returns upstream's checkpoints of the recorded workloads.
    #[expect(clippy::print_stdout, reason = "progress of a long wait")]
    async fn wait_for_same_checkpoints(&self) -> Vec<Value> {
        let begun = Instant::now();
        let (mut least, mut since) = (usize::MAX, begun);
        loop {
            let all = compare::list(&self.bed.client(), compare::CHECKPOINTS).await;
            let [left, right] = compare::fields_by_twin(&all, compare::checkpoint);
            let found = Comparison::of(left, right);
            let missing: Vec<_> = self
                .cluster
                .shown
                .iter()
                .filter_map(|((namespace, workload, container), count)| {
                    let name = format!("{namespace}/{workload}/{container}");
                    let saved = found.left.get(&name)?.get("totalSamplesCount").cloned();
                    let saved = saved.unwrap_or_else(|| "nothing".to_owned());
                    (saved != count.to_string()).then(|| format!("{name}: {saved} of {count}"))
                })
                .collect();
            let known = self.cluster.shown.keys().filter(|(namespace, workload, container)| {
                found.left.contains_key(&format!("{namespace}/{workload}/{container}"))
            });
            let unknown = self.cluster.shown.len() - known.count();
            let left = unknown + missing.len() + found.differences.len();
            if left < least {
                (least, since) = (left, Instant::now());
            }
            if left == 0 {
                println!("{} checkpoints the same after {:.0?}", found.left.len(), begun.elapsed());
                return all.iter().filter_map(|one| self.recorded_checkpoint(one)).collect();
            }
            assert!(
                since.elapsed() < PATIENCE,
                "seed {}: {} checkpoints of {}, samples missing: {:?}, {}",
                self.seed,
                found.left.len(),
                self.cluster.shown.len(),
                &missing[..missing.len().min(10)],
                found.report()
            );
            self.read_by_both(PASSES_PER_CHECK).await;
        }
    }

    /// Upstream's checkpoint as a new object, if its workload is recorded.
    fn recorded_checkpoint(&self, object: &Value) -> Option<Value> {
        let twins = compare::fields_by_twin(std::slice::from_ref(object), compare::checkpoint);
        twins[self.twin].keys().find(|name| self.is_recorded(name))?;
        let metadata = &object["metadata"];
        Some(json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": { "name": metadata["name"], "namespace": metadata["namespace"] },
            "spec": object["spec"], "status": object["status"],
        }))
    }
}
