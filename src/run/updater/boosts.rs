//! Takes back what pods were given to start with, as soon as that is over: not in passes, which may be a minute apart.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use plimsoll_storage::Time;
use tokio::sync::Notify;

use super::{Role, Stop, acting::Pace, matching::Workload};
use crate::{
    fit::{Plan, boost},
    update::{
        self, Outcome, Pass, Recall, Skip, Wanted, World,
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
pub(super) struct Boosts(Notify);

impl Boosts {
    /// A pod with a boost has changed.
    pub fn wake(&self) {
        self.0.notify_one();
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
                () = self.boosts.0.notified() => tokio::time::sleep(GATHER).await,
                () = self.clock.sleep_until(self.clock.now().later(wait)) => {}
            }
        }
    }

    /// Looks at all pods with a boost, and says how long until the next one is over.
    async fn unboost_all(&self, stop: &Stop) -> Duration {
        let mut wait = LONGEST;
        for namespace in self.seen.namespaces() {
            let is_boosted = self.seen.pods(&namespace).iter().any(|pod| pod.is_boosted());
            if !is_boosted || !self.config.scope.includes(&namespace) {
                continue;
            }
            let workloads = self.boosted_of(&namespace).await;
            let workers = self.config.boost_workers;
            let all: Vec<_> = workloads.iter().map(|one| self.unboost(one, stop)).collect();
            let waits: Vec<Duration> = stream::iter(all).buffer_unordered(workers).collect().await;
            wait = waits.into_iter().fold(wait, Duration::min);
        }
        wait
    }

    async fn unboost(&self, workload: &Workload, stop: &Stop) -> Duration {
        let now = self.clock.now();
        let mut wait = next_end(workload, now);
        let ground = self.ground(workload);
        let wanted =
            |owner: &update::Owner| workload.wanted.get(owner).copied().unwrap_or(Wanted::Unknown);
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
            let recall = Recall::default();
            let mut none = super::recollection::Recollection::default();
            let (outcome, _) = self.make(&mut none, workload, &step, &recall, pace).await;
            if outcome != Outcome::Done {
                wait = wait.min(AGAIN);
            }
            pass.note(outcome);
        }
        let left = pass.end().verdicts;
        let waits = |verdict: &update::Verdict| {
            matches!(verdict, update::Verdict::Skipped(Skip::Budget { .. }))
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
