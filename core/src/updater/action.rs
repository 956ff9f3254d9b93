//! What is to be done to a pod, or to its workload, and what came of it.

use std::sync::Arc;

use super::{acceptance::Need, guard::Charge, skip::Skip};
use crate::sizing::Size;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The pod is evicted, by its uid.
    Evict {
        /// Why it is worth it.
        need: Need,
    },
    /// The pod gets these sizes in place.
    Resize {
        /// Why it is worth it.
        need: Need,
        /// What is written.
        sizes: Vec<Size>,
        /// Containers whose boost is over with it, by their names.
        unboosted: Vec<Arc<str>>,
        /// Whether a container is restarted for it.
        restarts: bool,
    },
    /// These containers lose what they were given to start with.
    Unboost {
        /// Their names.
        containers: Vec<Arc<str>>,
        /// What is written.
        sizes: Vec<Size>,
    },
    /// The workload of the pod gets a second replica, to take its place.
    Surge,
    /// The workload gets back to one replica.
    EndSurge,
}

impl Action {
    /// The word for it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Evict { .. } => "evict",
            Self::Resize { .. } => "resize",
            Self::Unboost { .. } => "unboost",
            Self::Surge => "surge",
            Self::EndSurge => "end_surge",
        }
    }

    /// What it is charged as, if it is.
    pub const fn charge(&self) -> Option<Charge> {
        match self {
            Self::Evict { .. } | Self::Resize { restarts: true, .. } => Some(Charge::Disruption),
            Self::Resize { restarts: false, .. } => Some(Charge::Resize),
            Self::Unboost { .. } | Self::Surge | Self::EndSurge => None,
        }
    }
}

/// One thing to do. It is booked before it is done: whoever cannot write that down leaves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The pod, by its place among those of the pass.
    pub pod: usize,
    /// What is done.
    pub action: Action,
    /// Whether the memory of the workload, or the ledger of the cluster, has to be written first.
    pub is_booked: bool,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The server refused an eviction for the disruption it would be (429).
    Disallowed,
    /// The API server did not take a resize, because the node has no such room.
    NoCapacity,
    /// The pod changed since it was looked at: what was decided about it does not hold any more, and nothing was done.
    Changed,
    /// It failed for another reason.
    Failed,
    /// Nobody knows whether it was done, or the pod is gone already: it costs what it would have cost.
    Unsure,
    /// It could not be booked, and was not tried.
    NotBooked,
}

/// What became of a pod in a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It was changed.
    Changed(&'static str),
    /// It was left as it is.
    Skipped(Skip),
}
