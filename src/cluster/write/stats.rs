//! Counts writes by kind and outcome.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use strum::IntoStaticStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum WriteKind {
    Status,
    /// Annotations of a VerticalPodAutoscaler, written together with its status.
    Annotations,
    Lease,
    /// The Lease with the recommender's heartbeat.
    Heartbeat,
    Eviction,
    Resize,
    PodAnnotations,
    /// The updater's state of a workload, on its VerticalPodAutoscaler.
    #[strum(serialize = "memory")]
    UpdaterState,
    /// The disruption ledger, on the updater's Lease.
    #[strum(serialize = "ledger")]
    DisruptionLedger,
    Replicas,
    /// The spec or metadata of an autoscaler of replicas.
    Object,
    Event,
    #[strum(serialize = "registration")]
    WebhookConfig,
    /// The Secret with the webhook's certificate.
    Certificate,
    /// The Lease that shows that the webhook is reachable.
    WebhookLease,
}

impl WriteKind {
    pub(super) fn subresource(self) -> Option<&'static str> {
        match self {
            Self::Status => Some("status"),
            Self::Resize => Some("resize"),
            Self::Replicas => Some("scale"),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display)]
pub enum WriteOutcome {
    #[strum(to_string = "{0}")]
    Code(u16),
    /// No response: the server is down, or too slow.
    #[strum(to_string = "none")]
    NoResponse,
    /// Not sent, because the fence is closed.
    #[strum(to_string = "fenced")]
    NotLeader,
}

/// Numbers of writes by kind and outcome, since the start of the process.
#[derive(Debug, Default)]
pub struct WriteStats {
    counts: Mutex<BTreeMap<(WriteKind, WriteOutcome), u64>>,
}

impl WriteStats {
    pub fn count(&self, kind: WriteKind, outcome: WriteOutcome) {
        *self.counts.lock().entry((kind, outcome)).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<(WriteKind, WriteOutcome), u64> {
        self.counts.lock().clone()
    }
}
