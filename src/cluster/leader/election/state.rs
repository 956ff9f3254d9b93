//! The state of an election, for logs, metrics and probes: the holder, and whether this process may write.

use std::sync::Arc;

use tokio::sync::watch;

use crate::cluster::leader::Fence;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderState {
    /// The Lease has not been read yet.
    Starting,
    Leading,
    /// Another process holds the Lease, or none does.
    Standby,
    /// RBAC denies access; with a message that names the missing rules.
    Forbidden(Arc<str>),
    /// Requests fail; with a message that says why.
    Unreachable(Arc<str>),
}

/// A handle to the state of an election. Clones refer to the same election.
#[derive(Clone, Debug)]
pub struct ElectionState {
    pub(super) fence: Fence,
    pub(super) observation: watch::Receiver<LeaseObservation>,
}

#[derive(Clone, Debug)]
pub(super) struct LeaseObservation {
    pub leader_state: LeaderState,
    pub holder: Option<Arc<str>>,
    pub transitions: i32,
}

impl ElectionState {
    /// Whether this process may write now.
    pub fn is_leader(&self) -> bool {
        self.fence.is_granted()
    }

    pub fn leader_state(&self) -> LeaderState {
        match self.observation.borrow().leader_state.clone() {
            LeaderState::Leading if !self.fence.is_granted() => {
                LeaderState::Unreachable("failed to renew leader Lease in time".into())
            }
            state => state,
        }
    }

    pub fn holder(&self) -> Option<Arc<str>> {
        self.observation.borrow().holder.clone()
    }

    /// The last observed number of leader transitions.
    pub fn transitions(&self) -> i32 {
        self.observation.borrow().transitions
    }

    /// Waits until the holder or the state changes. `false` when the election has ended.
    pub async fn changed(&mut self) -> bool {
        self.observation.changed().await.is_ok()
    }
}
