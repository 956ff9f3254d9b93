//! Loads checkpoints as the starting point of histories that Prometheus samples continue.

use std::collections::{HashMap, HashSet};

use plimsoll_core::{
    history::{Sink, Snapshot},
    recommender::HistoryBootstrap,
    types::{ContainerKey, ObjectKey, Time},
};

use crate::controllers::recommender::state::SharedState;

/// Accepts checkpoints that cover everything Prometheus could return for the time before them.
pub(super) struct CheckpointSink<'a> {
    state: &'a SharedState,
    bootstrap: &'a mut HistoryBootstrap,
    now: Time,
    /// Start of the time range that Prometheus is queried for.
    query_start: Time,
    last_alive: HashMap<ObjectKey, Time>,
    /// VPAs with an unusable record: all of their series are read.
    rejected: HashSet<ObjectKey>,
}

/// Records when a container was last seen, for the last time at which all containers of a VPA were.
pub(in crate::controllers::recommender) fn record_last_alive(
    last_alive: &mut HashMap<ObjectKey, Time>,
    vpa: ObjectKey,
    last: Time,
) {
    let earliest = last_alive.entry(vpa).or_insert(last);
    *earliest = last.min(*earliest);
}

impl<'a> CheckpointSink<'a> {
    pub(super) fn new(
        state: &'a SharedState,
        bootstrap: &'a mut HistoryBootstrap,
        now: Time,
        query_start: Time,
    ) -> Self {
        let (last_alive, rejected) = (HashMap::new(), HashSet::new());
        Self { state, bootstrap, now, query_start, last_alive, rejected }
    }

    /// The last time at which VPAs with usable checkpoints were seen. They only need the samples since.
    pub(super) fn into_last_alive(mut self) -> HashMap<ObjectKey, Time> {
        self.last_alive.retain(|key, _| !self.rejected.contains(key));
        self.last_alive
    }

    fn reject(&mut self, vpa: &ObjectKey) {
        if self.rejected.insert(vpa.clone()) {
            self.bootstrap.restart(vpa);
        }
    }
}

impl Sink for CheckpointSink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        if self.rejected.contains(&key.vpa) {
            return;
        }
        let seen = snapshot.cpu_seen;
        let is_complete = snapshot.bootstrapped || seen.first <= Some(self.query_start);
        let Some(last) = seen.last.filter(|_| is_complete) else { return self.reject(&key.vpa) };
        let history = self.state.lock().vpa_registry.read_snapshot(&key, &snapshot, self.now);
        match history {
            Ok(Some(history)) => {
                let start_history =
                    |vpa: &ObjectKey| self.state.lock().vpa_registry.start_history(vpa);
                self.bootstrap.resume_from(&key, history, start_history);
                record_last_alive(&mut self.last_alive, key.vpa, last);
            }
            Ok(None) => self.reject(&key.vpa),
            Err(error) => {
                tracing::warn!(%key, %error, "ignoring checkpoint; reading its history from Prometheus");
                self.reject(&key.vpa);
            }
        }
    }

    fn may_inherit_from(&self, vpa: &ObjectKey) -> bool {
        !self.state.lock().index.belongs_to_other_recommender(vpa)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_read_from_the_earliest_last_sample_of_the_containers() {
        let (one, two) = (ObjectKey::new("shop", "one"), ObjectKey::new("shop", "two"));
        let at = |seconds| Time::EPOCH.later(std::time::Duration::from_secs(seconds));
        let mut last_alive = HashMap::new();
        for (vpa, last) in [(&one, 500), (&one, 300), (&one, 400), (&two, 900)] {
            record_last_alive(&mut last_alive, vpa.clone(), at(last));
        }
        assert_eq!(last_alive, [(one, at(300)), (two, at(900))].into());
    }
}
