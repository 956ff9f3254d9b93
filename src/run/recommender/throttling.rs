//! How much containers were kept from the CPU that they wanted, asked for now and then where a Prometheus is read.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::VpaKey;
use plimsoll_storage::prometheus::history::{KnownPods, Throttles};

use super::{Role, Stop, series::Series};
use crate::observe::index::Target;

/// Throttling is told of as a share of a day: by the hour is often enough.
const BETWEEN: Duration = Duration::from_hours(1);
/// The time that a share is of.
const OVER: Duration = Duration::from_hours(24);
/// What a server did not answer is asked again after this.
const AGAIN: Duration = Duration::from_mins(5);

impl Role {
    /// Asks soon after histories were read, and then by the hour. Nothing waits for it: a container without an answer
    /// is not known to be throttled. What was not answered is asked again sooner, by itself.
    pub(super) async fn keep_asking_for_throttling(
        self: Arc<Self>,
        series: Arc<Series>,
        stop: Stop,
    ) {
        let mut unanswered = HashSet::new();
        let mut all_again = Instant::now();
        loop {
            let mut wanted = self.throttled();
            let is_all = unanswered.is_empty() || Instant::now() >= all_again;
            if !is_all {
                wanted.retain(|key, _| unanswered.contains(key));
            }
            let wait = if wanted.is_empty() {
                super::history::LOOK
            } else {
                unanswered = tokio::select! {
                    () = stop.stopped() => return,
                    asked = self.ask_for_throttling(&series, &wanted) => asked,
                };
                if is_all {
                    all_again = Instant::now() + BETWEEN;
                }
                let rest = all_again.saturating_duration_since(Instant::now());
                if unanswered.is_empty() { rest } else { rest.min(AGAIN) }
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// The VPAs whose history is there, with the owner of their pods. None while others wait for theirs: histories
    /// go first.
    fn throttled(&self) -> HashMap<VpaKey, Option<Box<str>>> {
        let core = self.state.lock();
        if core.fleet.waiting().next().is_some() {
            return HashMap::new();
        }
        let found =
            |key: &&VpaKey| core.index.vpa(key).is_some_and(|vpa| *vpa.target() == Target::Found);
        let owner = |key: &VpaKey| core.fleet.get(key)?.owner().map(Into::into);
        core.fleet.keys_after(None).filter(found).map(|key| (key.clone(), owner(key))).collect()
    }

    /// Asks about these, and takes what is answered. Answers which of them nothing could be learned of.
    async fn ask_for_throttling(
        &self,
        series: &Series,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
    ) -> HashSet<VpaKey> {
        let asked = match self.whose(series, wanted.keys(), Some(OVER)).await {
            Ok(whose) => {
                let live = self.live_pods(wanted);
                let pods = KnownPods { labelled: whose.as_ref(), live: Some(&live) };
                let asked = series.history.throttling(wanted, OVER, pods).await;
                asked.map_err(|unknown| series.away(&unknown))
            }
            Err(error) => Err(error),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => {
                tracing::warn!(%error, "throttling cannot be asked about now");
                return wanted.keys().cloned().collect();
            }
        };
        let Throttles { measured, unlimited, unanswered, failure } = asked;
        if let Some((namespace, failure)) = failure {
            let vpas = unanswered.len();
            tracing::warn!(%namespace, %failure, vpas, "throttling cannot be asked about now");
        }
        let now = self.clock.now();
        // One lock each: there may be tens of thousands.
        for (key, throttling) in measured {
            self.state.lock().fleet.note_throttling(&key, throttling, now);
        }
        for key in unlimited {
            self.state.lock().fleet.forget_throttling(&key, now);
        }
        unanswered
    }
}
