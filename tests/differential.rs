//! The differential: upstream's own recommender and ours on one control plane, with the same usage, about twin objects.
//! Whatever they say differently outside of a list fails.
//!
//! `PLIMSOLL_SEED=n` replays a run, `PLIMSOLL_PEER=upstream` puts a second process of upstream's in the place of ours:
//! what then differs is the fault of this test.

mod cluster;
pub mod compare;
mod policies;

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use self::cluster::{Cluster, PATIENCE, Shown, TWINS};
use self::compare::Comparison;
use crate::support::clock::wall_now;
use crate::support::noise::{self, Noise};
use crate::support::peers::{Peers, Recommender, Side};
use crate::support::{Bed, Usage, fleet, wait};

const NAMESPACES: usize = 6;
/// A list of all checkpoints is megabytes, and upstream saves a handful in a pass.
const PASSES_A_LOOK: usize = 5;
const STEPS: u64 = 60;
/// Of these one is a quiet point.
const STEPS_A_QUIET_POINT: u64 = 6;
/// Steps after each has been given the other's checkpoints.
const STEPS_AFTER: u64 = 6;
/// Both are given so many passes to say the same, however long a pass takes.
const PASSES_TO_AGREE: usize = 30;
/// As often as [`wait::until`] would look, the machine would be idle for most of a step.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// For both. Checkpoints are cut short, so that a pass is short too: they are waited for where they are compared.
const FLAGS: &[&str] = &[
    "--recommender-interval=100ms",
    "--kube-api-qps=5000",
    "--kube-api-burst=5000",
    "--checkpoints-timeout=20ms",
    "--feature-gates=PerVPAConfig=true",
    "--cpu-integer-post-processor-enabled=true",
    "--v=1",
];

/// What one round is like.
struct Round {
    seed: u64,
    /// Each has two VPAs, and every VPA is written in every pass: that is what a round takes its time for.
    workloads: usize,
    flags: &'static [&'static str],
    /// Whether the last steps are today, so that windows of memory are still open by the wall's clock.
    ends_today: bool,
}

#[tokio::test]
async fn upstreams_recommender_and_ours_say_the_same_through_days_of_random_workloads() {
    let round = Round { seed: noise::seed(4), workloads: 310, flags: &[], ends_today: false };
    play(&round).await;
}

#[tokio::test]
async fn upstreams_recommender_and_ours_say_the_same_with_short_windows_and_other_percentiles() {
    let flags = &[
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
    ];
    play(&Round { seed: noise::seed(44), workloads: 120, flags, ends_today: true }).await;
}

/// A round under way.
struct Play {
    bed: Bed,
    usage: Usage,
    peers: Peers,
    racers: [Recommender; 2],
    cluster: Cluster,
    now: Timestamp,
    fields: usize,
    recommended: usize,
}

/// Plays a round.
#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn play(round: &Round) {
    let second = match std::env::var("PLIMSOLL_PEER").as_deref() {
        Ok("upstream") => Side::Upstream,
        _ => Side::Ours,
    };
    println!("{}={}", noise::SEED, round.seed);
    let Some(bed) = Bed::private().await else { return };
    let Some(peers) = Peers::on(&bed, &[second]).await else { return };
    let strides: Vec<_> = strides(round.seed);
    let all: SignedDuration = strides.iter().sum();
    let start = if round.ends_today {
        wall_now() - all - SignedDuration::from_mins(30)
    } else {
        wall_now() - SignedDuration::from_hours(8 * 24)
    };
    let usage = Usage::serve(&bed).await;
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(bed.namespace("team").await);
    }
    fleet::end_controllers(&bed).await;
    fleet::send(&bed.client(), [fleet::create_definition()]).await;
    let cluster = Cluster::draw(round.seed, round.workloads, &namespaces);
    let begun = Instant::now();
    cluster.create(&bed.client()).await;
    println!("{} workloads created in {:.1?}", round.workloads, begun.elapsed());

    let racers = start_both(&peers, second, round, false);
    let mut play =
        Play { bed, usage, peers, racers, cluster, now: start, fields: 0, recommended: 0 };
    // The first pass throws away history that is too old by the wall's clock: it shall find none.
    play.usage.show(start, []);
    play.read_by_both(2).await;
    let (mut quiet, mut worst) = (0, Duration::ZERO);
    let begun = Instant::now();
    for (step, stride) in (0..STEPS).zip(&strides) {
        let step_begun = Instant::now();
        play.step(step, *stride).await;
        worst = worst.max(step_begun.elapsed());
        if step % STEPS_A_QUIET_POINT == STEPS_A_QUIET_POINT - 1 {
            play.read_by_both(2).await;
            play.cluster.disturb(&play.bed.client(), step, play.now).await;
            play.read_by_both(3).await;
            play.settled(round.seed, step).await;
            quiet += 1;
            println!("step {step}: the same after {:.0?}", begun.elapsed());
        }
    }
    println!(
        "{STEPS} steps with {quiet} quiet points in {:.1?}, at most {worst:.1?}",
        begun.elapsed()
    );
    play.have_read_the_same(round.seed).await;

    for racer in &play.racers {
        play.peers.stop(racer).await;
    }
    play.racers = start_both(&play.peers, second, round, true);
    play.usage.show(play.now, []);
    play.read_by_both(2).await;
    play.settled(round.seed, STEPS).await;
    for (step, stride) in (STEPS..).zip(&strides[STEPS as usize..]) {
        play.step(step, *stride).await;
        play.read_by_both(2).await;
        play.settled(round.seed, step).await;
    }
    play.have_read_the_same(round.seed).await;
    println!("{} fields compared, {} recommendations at most", play.fields, play.recommended);
    assert_eq!(quiet, 10);
    assert!(play.recommended > round.workloads * 2 / 3, "{} recommended", play.recommended);
}

/// One to three hours each.
fn strides(seed: u64) -> Vec<SignedDuration> {
    let mut noise = Noise::of(seed, &[5]);
    let mut stride = || SignedDuration::from_secs(noise.between(3600, 3 * 3600) as i64);
    (0..STEPS + STEPS_AFTER).map(|_| stride()).collect()
}

/// Upstream's first, then its peer; `swapped` gives each the other's name, and with it the other's checkpoints.
fn start_both(peers: &Peers, second: Side, round: &Round, swapped: bool) -> [Recommender; 2] {
    let mut names = TWINS.map(|name| format!("--recommender-name={name}"));
    if swapped {
        names.reverse();
    }
    let [first_name, second_name] = names;
    let flags = |name, side| {
        let mut flags: Vec<&str> = FLAGS.iter().chain(round.flags).copied().collect();
        flags.push(name);
        if side == Side::Ours {
            flags.push("--compat=upstream");
        }
        flags
    };
    [
        peers.start(Side::Upstream, "upstream", &flags(&first_name, Side::Upstream)),
        peers.start(second, "peer", &flags(&second_name, second)),
    ]
}

// === impl Play ===

impl Play {
    /// Shows the next samples until both have read them.
    async fn step(&mut self, step: u64, stride: SignedDuration) {
        self.now += stride;
        let shown = self.cluster.step(step);
        self.usage.show(self.now, shown.iter().map(Shown::sample));
        self.read_by_both(1).await;
    }

    /// Waits until each has read so many times more what is shown.
    async fn read_by_both(&self, times: usize) {
        let before: Vec<_> =
            self.racers.iter().map(|racer| self.usage.reads(&racer.agent)).collect();
        let wanted = async || {
            for racer in &self.racers {
                self.peers.assert_running(racer);
            }
            let reads = self.racers.iter().map(|racer| self.usage.reads(&racer.agent));
            if reads.zip(&before).all(|(now, before)| now >= before + times) {
                return Ok(());
            }
            Err(format!("{before:?} before, now {:?}", self.usage.readers()))
        };
        let what = format!("{times} more readings by both");
        wait::often(BETWEEN_LOOKS, PATIENCE, &what, wanted).await;
    }

    /// Waits until both say the same, and say it again a pass later.
    async fn settled(&mut self, seed: u64, step: u64) {
        let begun = Instant::now();
        let (mut agreed, mut passes) = (0, 0);
        while agreed < 2 {
            let found = compare::statuses(&self.bed.client()).await;
            agreed = if found.differences.is_empty() { agreed + 1 } else { 0 };
            assert!(
                begun.elapsed() < PATIENCE || passes < PASSES_TO_AGREE || agreed > 0,
                "seed {seed}, step {step}, {}: {}",
                self.now,
                found.report()
            );
            if agreed == 2 {
                self.note(&found);
            }
            self.read_by_both(1).await;
            passes += 1;
        }
    }

    fn note(&mut self, found: &Comparison) {
        self.fields += found.fields;
        self.recommended = self.recommended.max(found.recommended());
    }

    /// Waits until both have saved the same, down to the last sample that was shown, for as long as there is less and
    /// less to wait for: upstream saves a handful in a pass, and how long that takes is the machine's matter.
    #[expect(clippy::print_stdout, reason = "it tells what was waited for")]
    async fn have_read_the_same(&self, seed: u64) {
        let begun = Instant::now();
        let (mut least, mut since) = (usize::MAX, begun);
        loop {
            let found = compare::checkpoints(&self.bed.client()).await;
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
                return;
            }
            assert!(
                since.elapsed() < PATIENCE,
                "seed {seed}: {} checkpoints of {}, samples missing: {:?}, {}",
                found.left.len(),
                self.cluster.shown.len(),
                &missing[..missing.len().min(10)],
                found.report()
            );
            self.read_by_both(PASSES_A_LOOK).await;
        }
    }
}
