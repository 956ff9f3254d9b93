//! One pass: every VPA with its pods is decided about, and what was decided is done, one step after another.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use plimsoll_core::types::{Time, VpaKey};

use super::{
    Role, Stop,
    acting::{Pace, Then},
    matching::{Found, Workload},
    recollection::Recollection,
    standing::Standing,
};
use crate::metrics::{PassTotals, Tally};
use plimsoll_core::{
    api::vpa::UpdateMode,
    types::compat::Compat,
    updater::{
        self, Action, Decision, Next, Outcome, Pass, Recall, Skip, Verdict, Wanted, World,
        guard::{Charge, Heartbeat, ledger::Sizes},
        turns::{self, Waiting},
    },
};

/// Pods that are skipped before other tasks of the thread have their turn: the one that renews the Lease, and the server
/// that answers probes.
const SKIPPED_AT_ONCE: usize = 64;

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// VPAs that were looked at.
    pub vpas: usize,
    /// Their pods.
    pub pods: usize,
    /// Pods that were evicted.
    pub evicted: usize,
    /// Pods that were resized.
    pub resized: usize,
    /// Whether it ended before all were looked at.
    pub is_cut_off: bool,
    /// Whether it could not begin, because something that it has to know cannot be read.
    pub is_blind: bool,
}

/// What is carried from pass to pass.
#[derive(Debug, Default)]
pub(super) struct Passes {
    pub recollection: Recollection,
    /// Whose turn it is first in the next pass.
    waiting: Waiting,
}

/// What came of one VPA in a pass.
struct Went {
    tally: Tally,
    then: Then,
    /// Whether a pod was left alone because the cluster's budget was spent.
    waits_for_budget: bool,
}

/// What holds for all VPAs of a pass.
#[derive(Clone, Copy)]
struct Common<'a> {
    is_admission_ready: bool,
    can_resize: bool,
    cluster: u32,
    pace: Pace<'a>,
}

impl Role {
    /// Makes a pass. Without the right to act nothing is decided: what is remembered may be old.
    pub(super) async fn pass(&self, passes: &mut Passes, stop: &Stop) -> Summary {
        let began = Instant::now();
        let mut summary = Summary::default();
        if !self.may_act() {
            passes.recollection.forget_stored();
            // What this replica saw when it led is told by whoever leads now.
            if self.told.forget() {
                self.metrics.stand_by();
            }
            return summary;
        }
        let standing = self.watch_admission().await;
        match standing {
            Standing::Ready => {}
            Standing::Stale => self.metrics.count_no_admission("invalid"),
            Standing::Unreadable | Standing::Forbidden => self.metrics.count_no_admission("error"),
        }
        let is_upstream = self.config.settings.compat == Compat::Upstream;
        if is_upstream && standing != Standing::Ready {
            self.metrics.observe_step("total", began.elapsed());
            return summary;
        }
        if let Err(why) = self.read_ledger(&mut passes.recollection).await {
            tracing::warn!(why, "what was changed of late cannot be read: nothing is updated");
            return Summary { is_blind: true, ..summary };
        }
        let mut last = Instant::now();
        let mut observe = |name: &str| {
            self.metrics.observe_step(name, last.elapsed());
            last = Instant::now();
        };
        observe("ListVPAs");
        let Found { mut workloads, unavailable } = self.workloads().await;
        observe("ListPods");
        let known: HashSet<&VpaKey> = workloads.iter().map(|one| &one.key).collect();
        // A VPA whose target cannot be read for a moment is still there, and so is what was done to its pods.
        let there = self.seen.keys();
        passes.recollection.retain(|key| there.contains(key));
        self.told.retain(|key| known.contains(key));
        self.tell_released(&known, &unavailable);
        self.end_left_surges(&mut passes.recollection).await;
        self.metrics.retain(&there);
        observe("FilterPods");
        let waiting = std::mem::take(&mut passes.waiting);
        let guards = &self.config.settings.guards;
        let trials = passes.recollection.ledger().trials(guards, self.clock.now());
        turns::arrange(&mut workloads, |one| &one.key, &waiting, trials);
        // A pod that may be resizable must not be evicted because nobody knows.
        let Some(can_resize) = self.resizes_are_served().await else {
            tracing::warn!(
                "whether the server can resize pods cannot be found out: nothing is updated"
            );
            return Summary { is_blind: true, ..summary };
        };
        let common = Common {
            is_admission_ready: standing == Standing::Ready,
            can_resize,
            cluster: workloads.iter().map(|one| one.pods.len() as u32).sum(),
            // Counted from here: a first look at a large cluster may take longer than a pass may.
            pace: Pace { deadline: Instant::now() + self.config.interval, stop },
        };
        observe("AdmissionInit");
        let mut pods_of: HashMap<Arc<str>, u32> = HashMap::new();
        for one in &workloads {
            *pods_of.entry(Arc::clone(&one.key.namespace)).or_default() += one.pods.len() as u32;
        }
        let mut totals = PassTotals::default();
        for workload in &workloads {
            if summary.is_cut_off || common.pace.is_over() {
                summary.is_cut_off = true;
                passes.waiting.for_time.get_or_insert_with(|| workload.key.clone());
                break;
            }
            let namespace = pods_of.get(&workload.key.namespace).copied().unwrap_or_default();
            let sizes = Sizes { cluster: common.cluster, namespace };
            let went =
                self.update(&mut passes.recollection, workload, common, sizes, &mut totals).await;
            // Most workloads need no step, and then nothing was awaited.
            tokio::task::yield_now().await;
            summary.vpas += 1;
            summary.pods += workload.pods.len();
            summary.evicted += went.tally.evicted;
            summary.resized += went.tally.resized;
            if went.waits_for_budget {
                passes.waiting.for_budget.get_or_insert_with(|| workload.key.clone());
            }
            if went.then == Then::Stop {
                summary.is_cut_off = true;
                passes.waiting.for_time = Some(workload.key.clone());
            }
        }
        observe("EvictPods");
        self.tell_totals(&passes.recollection, &totals, common);
        self.metrics.observe_step("total", began.elapsed());
        summary
    }

    /// Decides about one VPA, and does it.
    async fn update(
        &self,
        recollection: &mut Recollection,
        workload: &Workload,
        common: Common<'_>,
        sizes: Sizes,
        totals: &mut PassTotals,
    ) -> Went {
        let (recall, ignored) = recollection.of(workload);
        if let Some(why) = ignored {
            self.metrics.count_unreadable();
            let parts = workload.parts();
            tracing::warn!(namespace = parts.namespace, name = parts.name, %why, "what was done to a workload before, as its VPA tells it, does not count");
        }
        let now = self.clock.now();
        let heartbeat = self.heartbeats.of(&workload.vpa, &workload.key.namespace);
        totals.heartbeat(word(heartbeat));
        let ground = self.ground(workload, now);
        let wanted =
            |owner: &updater::Owner| workload.wanted.get(owner).copied().unwrap_or(Wanted::Unknown);
        let world = World {
            wanted: &wanted,
            sizes,
            heartbeat,
            is_admission_ready: common.is_admission_ready,
            can_resize: common.can_resize,
            now,
        };
        let subject = self.subject(workload, &ground);
        let mut pass =
            Pass::begin(subject, world, &self.config.settings, recall).without_unboosts();
        let mut then = Then::Go;
        loop {
            let step = match pass.next_within(SKIPPED_AT_ONCE) {
                Next::Step(step) => step,
                // A pod that is skipped waits for nothing, so the thread would do nothing else meanwhile.
                Next::More => {
                    self.pulse.beat();
                    tokio::task::yield_now().await;
                    if common.pace.is_over() {
                        then = Then::Stop;
                        break;
                    }
                    continue;
                }
                Next::End => break,
            };
            let recall: Recall = pass.recall().clone();
            let (outcome, next) =
                self.make(recollection, workload, &step, &recall, common.pace).await;
            pass.note(outcome);
            if next != Then::Go {
                then = next;
                break;
            }
        }
        let decision = pass.end();
        self.remember(recollection, workload, &decision, now).await;
        self.count(workload, &decision, totals, now);
        self.tell_held(workload, &decision, now);
        let no_budget = Verdict::Skipped(Skip::ClusterBudget);
        let waits_for_budget = decision.verdicts.contains(&no_budget);
        Went { tally: tally(workload, &decision), then, waits_for_budget }
    }

    /// Keeps what a pass found out. What is to keep others from acting, too, is written at once.
    async fn remember(
        &self,
        recollection: &mut Recollection,
        workload: &Workload,
        decision: &Decision,
        now: Time,
    ) {
        let given_back = |outcome: &Outcome| !matches!(outcome, Outcome::Done | Outcome::Unsure);
        let was_undone =
            decision.steps.iter().any(|(step, outcome)| step.is_booked && given_back(outcome));
        let is_news = decision.harm.is_some() || decision.rewritten;
        let is_owed = is_news || was_undone || recollection.is_owed(&workload.key);
        recollection.owe(&workload.key, is_owed);
        if is_owed && self.config.dry_run.is_none() && !recollection.was_overtaken() {
            let booked = self.book(recollection, workload, &decision.recall).await;
            recollection.owe(&workload.key, booked.is_err());
            if let Err(why) = booked {
                let parts = workload.parts();
                tracing::warn!(
                    namespace = parts.namespace,
                    name = parts.name,
                    ?why,
                    "what was found out is not written down yet"
                );
            }
        }
        if let Some(harm) = decision.harm {
            self.metrics.count_harm(harm.word());
            let message = format!("Updates are stopped for a while: {harm}.");
            self.tell_vpa(workload, "PodsGotWorse", message, now, true);
        }
        if decision.rewritten {
            self.metrics.count_rewritten();
            let message = "Updates are stopped: somebody else writes other resources to the pods.";
            self.tell_vpa(workload, "ResourcesRewritten", message.to_owned(), now, true);
        }
        recollection.keep(workload, decision.recall.clone());
    }

    fn count(&self, workload: &Workload, decision: &Decision, totals: &mut PassTotals, now: Time) {
        let of = workload.counted();
        let mode = workload.vpa.spec.update_mode();
        if !matches!(mode, UpdateMode::Off | UpdateMode::Initial) {
            self.metrics.show(of);
        }
        totals.add(of, tally(workload, decision));
        for verdict in &decision.verdicts {
            if let Verdict::Skipped(skip) = verdict {
                totals.skip(skip.word());
            }
        }
        self.metrics.count_infeasible(of, decision.known_infeasible);
        if decision.recall.memory.open_until(now).is_some() {
            totals.breaker();
        }
    }

    fn tell_totals(&self, recollection: &Recollection, totals: &PassTotals, common: Common<'_>) {
        self.metrics.tell(totals);
        let (guards, ledger) = (&self.config.settings.guards, recollection.ledger());
        let now = self.clock.now();
        for (word, charge, allowance) in [
            ("disruption", Charge::Disruption, guards.cluster_disruptions),
            ("resize", Charge::Resize, guards.cluster_resizes),
        ] {
            let allowed = allowance.map(|allowance| allowance.of(common.cluster));
            self.metrics.set_budget(word, ledger.in_cluster(charge, now), allowed);
        }
        self.metrics.set_cluster_open(ledger.open_until(now).is_some());
        let objects = self.seen.counts().0 as u64;
        let mut vitals = self.condition.lock();
        (vitals.last_pass, vitals.objects) = (Some(now), objects);
        (vitals.breaker_until, vitals.held_workloads) = (ledger.open_until(now), totals.open());
    }
}

fn tally(workload: &Workload, decision: &Decision) -> Tally {
    let mode = workload.vpa.spec.update_mode();
    let done = |is: fn(&Action) -> bool| {
        let finished = decision.steps.iter().filter(|(_, outcome)| *outcome == Outcome::Done);
        finished.filter(|(step, _)| is(&step.action)).count()
    };
    Tally {
        candidates: decision.candidates,
        evicted: done(|action| matches!(action, Action::Evict { .. })),
        resized: done(|action| matches!(action, Action::Resize { .. })),
        in_place: matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate),
    }
}

const fn word(heartbeat: Heartbeat) -> &'static str {
    match heartbeat {
        Heartbeat::Fresh { history_loaded: true } => "fresh",
        Heartbeat::Fresh { history_loaded: false } => "loading",
        Heartbeat::Stale => "stale",
        Heartbeat::Absent => "absent",
        Heartbeat::Unknown => "unknown",
        Heartbeat::Awaited => "awaited",
    }
}
