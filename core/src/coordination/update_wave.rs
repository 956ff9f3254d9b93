//! A wave: the updater replaces or resizes the pods of a workload. Meanwhile, and until they are ready, no replica is removed.

use std::time::Duration;

use serde::Serialize;

use crate::types::Time;

/// A wave of updates.
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
    /// The start of the wave.
    pub wave_started: Time,
    /// When replicas may be removed again; `None` while the wave is under way.
    pub until: Option<Time>,
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
