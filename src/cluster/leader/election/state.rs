//! How an election stands, for those who ask: who holds the Lease, and whether this process may write.

use std::sync::Arc;

use tokio::sync::watch;

use crate::cluster::leader::Fence;

/// How a contender stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaderState {
    /// It has not seen the Lease yet.
    Starting,
    /// It holds the Lease.
    Leading,
    /// Another one holds it, or nobody for the moment.
    Standby,
    /// RBAC does not let it; one line that says which rule to add.
    Forbidden(Arc<str>),
    /// The server does not answer as it should; one line that says how.
    Unreachable(Arc<str>),
}

/// How an election stands, for logs, metrics and probes. Clones follow the same election.
#[derive(Clone, Debug)]
pub struct ElectionState {
    pub(super) fence: Fence,
    pub(super) observation: watch::Receiver<LeaseObservation>,
}

/// What was seen last.
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

    /// How this process stands.
    pub fn leader_state(&self) -> LeaderState {
        match self.observation.borrow().leader_state.clone() {
            LeaderState::Leading if !self.fence.is_granted() => {
                LeaderState::Unreachable("the lease was not renewed in time".into())
            }
            standing => standing,
        }
    }

    /// Who holds the Lease, as it was last seen.
    pub fn holder(&self) -> Option<Arc<str>> {
        self.observation.borrow().holder.clone()
    }

    /// How often the Lease went from one to another, as it was last seen.
    pub fn transitions(&self) -> i32 {
        self.observation.borrow().transitions
    }

    /// Waits until the first answer, or the first failure, and says how things stand then.
    pub async fn wait_until_known(&self) -> LeaderState {
        let mut seen = self.observation.clone();
        // An election that is gone decides nothing any more; what it saw last still holds.
        let _ = seen.wait_for(|seen| seen.leader_state != LeaderState::Starting).await;
        self.leader_state()
    }

    /// Waits until holder or standing differ from what they were. `false` when the election has ended.
    pub async fn changed(&mut self) -> bool {
        self.observation.changed().await.is_ok()
    }
}
