//! What checkpoints remember, on its way into histories that single samples go on from.

use std::collections::{HashMap, HashSet};

use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{Key, Time, VpaKey},
};

use crate::run::recommender::Role;
use plimsoll_core::recommender::Bootstrap;

/// Takes checkpoints that are worth going on from: all that series could tell of the time before them is part of them.
pub(super) struct Recalled<'a> {
    role: &'a Role,
    bootstrap: &'a mut Bootstrap,
    now: Time,
    /// From here on series are asked for.
    begin: Time,
    since: Since,
    /// VPAs of which one container's record is worth nothing: all of their series are read.
    unfit: HashSet<VpaKey>,
}

/// Until when all containers of a VPA were seen.
#[derive(Debug, Default)]
struct Since(HashMap<VpaKey, Time>);

impl Since {
    fn note(&mut self, vpa: VpaKey, last: Time) {
        let since = self.0.entry(vpa).or_insert(last);
        *since = last.min(*since);
    }
}

impl<'a> Recalled<'a> {
    pub(super) fn new(
        role: &'a Role,
        bootstrap: &'a mut Bootstrap,
        now: Time,
        begin: Time,
    ) -> Self {
        Self { role, bootstrap, now, begin, since: Since::default(), unfit: HashSet::new() }
    }

    /// Until when the VPAs were seen that need no more than what came since.
    pub(super) fn since(mut self) -> HashMap<VpaKey, Time> {
        self.since.0.retain(|key, _| !self.unfit.contains(key));
        self.since.0
    }

    fn leave(&mut self, vpa: &VpaKey) {
        if self.unfit.insert(vpa.clone()) {
            self.bootstrap.begin_anew(vpa);
        }
    }
}

impl Sink for Recalled<'_> {
    fn snapshot(&mut self, key: Key, snapshot: Snapshot) {
        if self.unfit.contains(&key.vpa) {
            return;
        }
        let seen = snapshot.cpu_seen;
        let reaches_back = snapshot.bootstrapped || seen.first <= Some(self.begin);
        let Some(last) = seen.last.filter(|_| reaches_back) else { return self.leave(&key.vpa) };
        let recalled = self.role.state.lock().fleet.recall(&key, &snapshot, self.now);
        match recalled {
            Ok(Some(history)) => {
                let begin = |vpa: &VpaKey| self.role.state.lock().fleet.begin_folding(vpa);
                self.bootstrap.go_on_from(&key, history, begin);
                self.since.note(key.vpa, last);
            }
            Ok(None) => self.leave(&key.vpa),
            Err(bad) => {
                tracing::warn!(%key, %bad, "a checkpoint was passed over; its history is read from the server");
                self.leave(&key.vpa);
            }
        }
    }

    fn sample(&mut self, _: &Key, _: Sample) {}

    fn may_inherit_from(&self, vpa: &VpaKey) -> bool {
        !self.role.state.lock().index.is_of_others(vpa)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_read_from_where_the_container_ends_that_was_seen_least() {
        let (one, two) = (VpaKey::new("shop", "one"), VpaKey::new("shop", "two"));
        let at = |seconds| Time::EPOCH.later(std::time::Duration::from_secs(seconds));
        let mut since = Since::default();
        for (vpa, last) in [(&one, 500), (&one, 300), (&one, 400), (&two, 900)] {
            since.note(vpa.clone(), at(last));
        }
        assert_eq!(since.0, [(one, at(300)), (two, at(900))].into());
    }
}
