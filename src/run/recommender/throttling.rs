//! How much containers were kept from the CPU that they wanted, asked for now and then where a Prometheus is read.

use std::{collections::HashMap, sync::Arc, time::Duration};

use plimsoll_storage::VpaKey;

use super::{Role, Stop, series::Series};
use crate::observe::index::Target;

/// Throttling is told of as a share of a day: by the hour is often enough.
const BETWEEN: Duration = Duration::from_hours(1);
/// The time that a share is of.
const OVER: Duration = Duration::from_hours(24);
/// A server that did not answer is asked again after this.
const AGAIN: Duration = Duration::from_mins(5);

impl Role {
    /// Asks soon after histories were read, and then by the hour. Nothing waits for it: a container without an answer
    /// is not known to be throttled.
    pub(super) async fn keep_asking_for_throttling(
        self: Arc<Self>,
        series: Arc<Series>,
        stop: Stop,
    ) {
        loop {
            let wanted = self.throttled();
            let wait = if wanted.is_empty() {
                super::history::LOOK
            } else {
                tokio::select! {
                    () = stop.stopped() => return,
                    asked = self.ask_for_throttling(&series, &wanted) => asked,
                }
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

    async fn ask_for_throttling(
        &self,
        series: &Series,
        wanted: &HashMap<VpaKey, Option<Box<str>>>,
    ) -> Duration {
        match series.history.throttling(wanted, OVER).await {
            Ok(measured) => {
                let now = self.clock.now();
                for (key, throttling) in measured {
                    // One lock each: there may be tens of thousands.
                    self.state.lock().fleet.note_throttling(&key, throttling, now);
                }
                BETWEEN
            }
            Err(error) => {
                tracing::warn!(%error, "throttling cannot be asked about now");
                AGAIN
            }
        }
    }
}
