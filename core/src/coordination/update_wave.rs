//! A wave: the updater replaces or resizes the pods of a workload. Meanwhile, and until they are ready, no replica is removed.

use std::time::Duration;

use serde::Serialize;

use crate::types::Time;

/// After this time without a change of a pod a wave is over, whatever the state of the pods: one that does not become ready
/// must not hold all the others.
const MAX_WAVE_PAUSE: Duration = Duration::from_mins(10);

/// The last updates of pods, as the updater records them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodUpdates {
    /// When the first pod of the wave was changed.
    pub began: Time,
    /// When the last pod was changed.
    pub last: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateWave {
    /// When the first pod was changed.
    pub started: Time,
    /// When the last changed pod became ready; `None` while pods are left.
    pub ended: Option<Time>,
}

/// Why replicas are not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovalHold {
    pub wave_started: Time,
    /// When replicas may be removed again; `None` while the wave is under way.
    pub until: Option<Time>,
}

impl PodUpdates {
    /// The wave of these updates. `ready_since` has an item for each pod of the workload: since when it has been ready;
    /// `None` while it is not ready, or is being resized.
    pub fn wave(
        self,
        ready_since: impl IntoIterator<Item = Option<Time>>,
        now: Time,
    ) -> UpdateWave {
        let latest = self.last.later(MAX_WAVE_PAUSE);
        let ended = if latest <= now {
            Some(latest)
        } else {
            let mut ready_since = ready_since.into_iter();
            ready_since.try_fold(self.last, |ended, since| Some(ended.max(since?)))
        };
        UpdateWave { started: self.began, ended }
    }
}

impl UpdateWave {
    /// Whether replicas must not be removed. `readiness` is how long a pod counts as starting after it became ready: its
    /// first samples are of a time in which it did not have its share of the load.
    pub fn holds_removal(self, readiness: Duration, now: Time) -> Option<RemovalHold> {
        let until = self.ended.map(|ended| ended.later(readiness));
        let is_over = until.is_some_and(|until| until <= now);
        (!is_over).then_some(RemovalHold { wave_started: self.started, until })
    }
}
