//! Takes back what pods were given to start with, as soon as that is over: not in passes, which may be a minute apart.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use kube::ResourceExt as _;
use plimsoll_core::types::Time;
use tokio::sync::Notify;

use super::{Role, Stop, acting::Pace, matching::Workload};
use plimsoll_core::{
    sizing::{Plan, boost},
    updater::{
        self, Action, Outcome, Pass, Recall, Skip, Wanted, World,
        guard::{Heartbeat, ledger::Sizes},
    },
};

/// Pods that change together are looked at together.
const GATHER: Duration = Duration::from_millis(200);
/// What failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(5);
/// At least so often all are looked at.
const LONGEST: Duration = Duration::from_mins(10);

/// Wakes whoever takes boosts back.
#[derive(Debug, Default)]
pub(super) struct Boosts {
    changed: Notify,
    /// What a dry run has said, by the uid of the pod: it changes nothing, and would say so all the time.
    said: Mutex<HashMap<String, Action>>,
}

impl Boosts {
    /// A pod with a boost has changed.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Whether a dry run has not said that yet.
    fn is_news(&self, uid: String, action: &Action) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(uid, action.clone()).as_ref() != Some(action)
    }

    fn forget(&self, is_there: impl Fn(&str) -> bool) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).retain(|uid, _| is_there(uid));
    }
}

impl Role {
    /// Takes boosts back until told to stop.
    pub(super) async fn keep_unboosting(self: Arc<Self>, stop: Stop) {
        if !self.config.settings.startup_boost {
            return;
        }
        tokio::select! {
            () = stop.stopped() => return,
            () = self.feeds.synced() => {}
        }
        loop {
            let wait = if self.may_act() { self.unboost_all(&stop).await } else { AGAIN };
            tokio::select! {
                () = stop.stopped() => return,
                () = self.boosts.changed.notified() => tokio::time::sleep(GATHER).await,
                () = self.clock.sleep_until(self.clock.now().later(wait)) => {}
            }
        }
    }

    /// Looks at all pods with a boost, and says how long until the next one is over.
    async fn unboost_all(&self, stop: &Stop) -> Duration {
        let mut wait = LONGEST;
        let mut boosted: HashSet<String> = HashSet::new();
        for namespace in self.seen.namespaces() {
            let is_boosted = self.seen.pods(&namespace).iter().any(|pod| pod.is_boosted());
            if !is_boosted || !self.config.scope.includes(&namespace) {
                continue;
            }
            let workloads = self.boosted_of(&namespace).await;
            let pods = workloads.iter().flat_map(|one| &one.pods);
            boosted.extend(pods.filter_map(|pod| pod.uid()));
            let workers = self.config.boost_workers;
            let all: Vec<_> = workloads.iter().map(|one| self.unboost(one, stop)).collect();
            let waits: Vec<Duration> = stream::iter(all).buffer_unordered(workers).collect().await;
            wait = waits.into_iter().fold(wait, Duration::min);
        }
        self.boosts.forget(|uid| boosted.contains(uid));
        wait
    }

    async fn unboost(&self, workload: &Workload, stop: &Stop) -> Duration {
        let now = self.clock.now();
        let mut wait = next_end(workload, now);
        let ground = self.ground(workload, now);
        let wanted =
            |owner: &updater::Owner| workload.wanted.get(owner).copied().unwrap_or(Wanted::Unknown);
        let world = World {
            wanted: &wanted,
            sizes: Sizes::default(),
            heartbeat: Heartbeat::Absent,
            is_admission_ready: true,
            can_resize: self.resizes_are_served().await.unwrap_or(false),
            now,
        };
        let subject = self.subject(workload, &ground);
        let settings = &self.config.settings;
        let mut pass = Pass::begin(subject, world, settings, Recall::default()).only_unboosts();
        let pace = Pace { deadline: Instant::now() + LONGEST, stop };
        while let Some(step) = pass.next() {
            let uid = workload.pods[step.pod].uid().unwrap_or_default();
            if self.config.dry_run.is_some() && !self.boosts.is_news(uid, &step.action) {
                pass.note(Outcome::Done);
                continue;
            }
            let recall = Recall::default();
            let mut none = super::recollection::Recollection::default();
            let (outcome, _) = self.make(&mut none, workload, &step, &recall, pace).await;
            if outcome != Outcome::Done {
                wait = wait.min(AGAIN);
            }
            pass.note(outcome);
        }
        let left = pass.end().verdicts;
        let waits = |verdict: &updater::Verdict| {
            matches!(verdict, updater::Verdict::Skipped(Skip::Budget { .. }))
        };
        if left.iter().any(waits) { wait.min(AGAIN) } else { wait }
    }
}

/// How long until the next boost of a workload is over.
fn next_end(workload: &Workload, now: Time) -> Duration {
    let plan = Plan::of(&workload.vpa);
    let ends = workload.pods.iter().map(|pod| boost::standing(&pod.sizes, &plan, now));
    let next = ends.filter_map(|standing| standing.next).min();
    // It is over only after that time.
    next.map_or(LONGEST, |next| next.saturating_add(Duration::from_millis(10)).min(LONGEST))
}
