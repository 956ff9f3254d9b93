//! Both live: upstream's recommender and ours on one control plane, with the same usage, about twin objects.
//!
//! `cargo xtask record recommender` has it write what upstream said. With the seed of the recording it sees that upstream
//! still says that.

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

/// A list of all checkpoints is megabytes, and upstream saves a handful in a pass.
const PASSES_PER_CHECK: usize = 5;
/// Both are given so many passes to say the same, however long a pass takes.
const PASSES_TO_AGREE: usize = 30;
/// As often as [`wait::until`] would look, the machine would be idle for most of a step.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Checkpoints are cut short, so that a pass is short too: they are waited for where they are compared.
const FAST_FLAGS: &[&str] = &["--recommender-interval=100ms", "--checkpoints-timeout=20ms"];

/// A round under way.
struct LiveRun {
    bed: Testbed,
    usage: MetricsServer,
    pair: RecommenderPair,
    recommenders: [RecommenderProcess; 2],
    /// Which of the twins upstream looks after.
    twin: usize,
    cluster: GeneratedCluster,
    round: &'static DifferentialRun,
    seed: u64,
    now: Timestamp,
    fields: usize,
    recommended: usize,
    /// What upstream said at each quiet point about the workloads that are recorded.
    quiet: Vec<ObjectFields>,
}

/// Plays a round with so many workloads, each of which has two VPAs, and every VPA is written in every pass: that is what a
/// round takes its time for.
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
pub async fn run(round: &'static DifferentialRun, workloads: usize) {
    let second = match std::env::var("PLIMSOLL_PEER").as_deref() {
        Ok("upstream") => Implementation::Upstream,
        _ => Implementation::Ours,
    };
    let seed = random::seed(round.seed);
    println!("{}={seed}", random::SEED);
    assert!(!is_recording() || seed == round.seed, "recorded is seed {}", round.seed);
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
    let racers = start_both(&peers, second, round, false);
    let mut play = LiveRun {
        bed,
        usage,
        pair: peers,
        recommenders: racers,
        twin: 0,
        cluster,
        round,
        seed,
        now: start,
        fields: 0,
        recommended: 0,
        quiet: Vec::new(),
    };
    // The first pass throws away history that is too old by the wall's clock: it shall find none.
    play.usage.show(start, []);
    play.read_by_both(2).await;
    let mut worst = Duration::ZERO;
    let begun = Instant::now();
    for (step, stride) in (0..STEPS).zip(&strides) {
        let step_begun = Instant::now();
        play.step(step, *stride).await;
        worst = worst.max(step_begun.elapsed());
        if is_quiet_point(step) {
            play.read_by_both(2).await;
            play.disturb(step).await;
            play.read_by_both(3).await;
            play.settled(step).await;
            println!("step {step}: the same after {:.0?}", begun.elapsed());
        }
    }
    assert_eq!(play.quiet.len() as u64, STEPS / STEPS_A_QUIET_POINT);
    println!("{STEPS} steps in {:.1?}, at most {worst:.1?}", begun.elapsed());
    let first = play.have_read_the_same().await;

    for racer in &play.recommenders {
        play.pair.stop(racer).await;
    }
    play.recommenders = start_both(&play.pair, second, round, true);
    play.twin = 1;
    play.usage.show(play.now, []);
    play.read_by_both(2).await;
    play.settled(STEPS).await;
    for (step, stride) in (STEPS..).zip(&strides[STEPS as usize..]) {
        play.step(step, *stride).await;
        play.read_by_both(2).await;
        play.settled(step).await;
    }
    let second = play.have_read_the_same().await;
    println!("{} fields compared, {} recommendations at most", play.fields, play.recommended);
    assert!(play.recommended > workloads * 2 / 3, "{} recommended", play.recommended);
    let live = Recording { began: started, start, quiet: play.quiet, saved: [first, second] };
    if is_recording() {
        round.golden().write(&live);
    }
    if seed == round.seed && workloads >= round.recorded {
        assert_recorded(round, live);
    }
}

/// Panics unless upstream said in this run what is recorded of it.
fn assert_recorded(round: &DifferentialRun, live: Recording) {
    let recorded: Recording = round.golden().read();
    assert_eq!(recorded.quiet.len(), live.quiet.len());
    let said = recorded.quiet.into_iter().zip(live.quiet);
    let weights = |saved: &[Value]| {
        // Times are of another day, and totals count from another reference.
        let mut said = compare::fields_by_twin(saved, compare::checkpoint);
        for fields in said.iter_mut().flat_map(|said| said.values_mut()) {
            fields
                .retain(|name, _| name.contains(".bucketWeights.") || name == "totalSamplesCount");
        }
        said
    };
    let saved = recorded
        .saved
        .iter()
        .zip(&live.saved)
        .flat_map(|(recorded, live)| weights(recorded).into_iter().zip(weights(live)));
    for (number, (recorded, live)) in said.chain(saved).enumerate() {
        let found = Comparison::of(recorded, live);
        let [left, right] = TWINS;
        assert!(
            found.differences.is_empty(),
            "{}, {number}: {left} is upstream as recorded, {right} is upstream now: {}",
            round.name,
            found.report()
        );
    }
}

/// Upstream's first, then its peer; `swapped` gives each the other's name, and with it the other's checkpoints.
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
    /// Shows the next samples until both have read them.
    async fn step(&mut self, step: u64, stride: SignedDuration) {
        self.now += stride;
        let shown = self.cluster.step(step);
        self.usage.show(self.now, shown.iter().map(ServedSample::sample));
        self.read_by_both(1).await;
    }

    /// Waits until each has read so many times more what is shown.
    async fn read_by_both(&self, times: usize) {
        let before: Vec<_> = self
            .recommenders
            .iter()
            .map(|racer| self.usage.read_count(&racer.user_agent))
            .collect();
        let wanted = async || {
            for racer in &self.recommenders {
                self.pair.assert_running(racer);
            }
            let reads =
                self.recommenders.iter().map(|racer| self.usage.read_count(&racer.user_agent));
            if reads.zip(&before).all(|(now, before)| now >= before + times) {
                return Ok(());
            }
            Err(format!("{before:?} before, now {:?}", self.usage.readers()))
        };
        let what = format!("{times} more readings by both");
        wait::often(POLL_INTERVAL, PATIENCE, &what, wanted).await;
    }

    /// Changes pods, and waits until both have seen the last change.
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
        wait::within(PATIENCE, "both have seen the pod of the marker come or go", say_so).await;
    }

    /// Waits until both say the same, and say it again a pass later.
    async fn settled(&mut self, step: u64) {
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

    /// Waits until both have saved the same, down to the last sample that was shown, for as long as there is less and
    /// less to wait for: upstream saves a handful in a pass, and how long that takes is the machine's matter. The
    /// checkpoints of upstream that are recorded.
    #[expect(clippy::print_stdout, reason = "progress of a long wait")]
    async fn have_read_the_same(&self) -> Vec<Value> {
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

    /// A checkpoint of upstream as it is created again, if it is one of those that are recorded.
    fn recorded_checkpoint(&self, object: &Value) -> Option<Value> {
        let said = compare::fields_by_twin(std::slice::from_ref(object), compare::checkpoint);
        said[self.twin].keys().find(|name| self.is_recorded(name))?;
        let metadata = &object["metadata"];
        Some(json!({
            "apiVersion": object["apiVersion"], "kind": object["kind"],
            "metadata": { "name": metadata["name"], "namespace": metadata["namespace"] },
            "spec": object["spec"], "status": object["status"],
        }))
    }
}
