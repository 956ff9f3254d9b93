//! What checkpoints remember, on its way into histories that single samples go on from.

use std::collections::{HashMap, HashSet};

use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};

use crate::controllers::recommender::Recommender;
use plimsoll_core::recommender::HistoryBootstrap;

/// Takes checkpoints that are worth going on from: all that series could tell of the time before them is part of them.
pub(super) struct CheckpointSink<'a> {
    role: &'a Recommender,
    bootstrap: &'a mut HistoryBootstrap,
    now: Time,
    /// From here on series are asked for.
    query_start: Time,
    last_alive: LastAlive,
    /// VPAs of which one container's record is worth nothing: all of their series are read.
    rejected: HashSet<ObjectKey>,
}

/// Until when all containers of a VPA were seen.
#[derive(Debug, Default)]
struct LastAlive(HashMap<ObjectKey, Time>);

impl LastAlive {
    fn record(&mut self, vpa: ObjectKey, last: Time) {
        let since = self.0.entry(vpa).or_insert(last);
        *since = last.min(*since);
    }
}

impl<'a> CheckpointSink<'a> {
    pub(super) fn new(
        role: &'a Recommender,
        bootstrap: &'a mut HistoryBootstrap,
        now: Time,
        begin: Time,
    ) -> Self {
        Self {
            role,
            bootstrap,
            now,
            query_start: begin,
            last_alive: LastAlive::default(),
            rejected: HashSet::new(),
        }
    }

    /// Until when the VPAs were seen that need no more than what came since.
    pub(super) fn into_last_alive(mut self) -> HashMap<ObjectKey, Time> {
        self.last_alive.0.retain(|key, _| !self.rejected.contains(key));
        self.last_alive.0
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
        let reaches_back = snapshot.bootstrapped || seen.first <= Some(self.query_start);
        let Some(last) = seen.last.filter(|_| reaches_back) else { return self.reject(&key.vpa) };
        let recalled = self.role.state.lock().vpa_registry.read_snapshot(&key, &snapshot, self.now);
        match recalled {
            Ok(Some(history)) => {
                let begin =
                    |vpa: &ObjectKey| self.role.state.lock().vpa_registry.start_history(vpa);
                self.bootstrap.resume_from(&key, history, begin);
                self.last_alive.record(key.vpa, last);
            }
            Ok(None) => self.reject(&key.vpa),
            Err(bad) => {
                tracing::warn!(%key, %bad, "a checkpoint was passed over; its history is read from the server");
                self.reject(&key.vpa);
            }
        }
    }

    fn sample(&mut self, _: &ContainerKey, _: Sample) {}

    fn may_inherit_from(&self, vpa: &ObjectKey) -> bool {
        !self.role.state.lock().index.belongs_to_other_recommender(vpa)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_read_from_where_the_container_ends_that_was_seen_least() {
        let (one, two) = (ObjectKey::new("shop", "one"), ObjectKey::new("shop", "two"));
        let at = |seconds| Time::EPOCH.later(std::time::Duration::from_secs(seconds));
        let mut since = LastAlive::default();
        for (vpa, last) in [(&one, 500), (&one, 300), (&one, 400), (&two, 900)] {
            since.record(vpa.clone(), at(last));
        }
        assert_eq!(since.0, [(one, at(300)), (two, at(900))].into());
    }
}
