//! Counts writes by kind and outcome.

use std::collections::BTreeMap;

use parking_lot::Mutex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteKind {
    /// The status of an autoscaler.
    Status,
    /// Annotations of a VerticalPodAutoscaler, written together with its status.
    Annotations,
    /// The Lease of the leader election.
    Lease,
    /// The Lease with the recommender's heartbeat.
    Heartbeat,
    /// The eviction of a pod.
    Eviction,
    /// New resources of a running pod.
    Resize,
    PodAnnotations,
    /// The updater's state of a workload, on its VerticalPodAutoscaler.
    UpdaterState,
    /// The disruption ledger, on the updater's Lease.
    DisruptionLedger,
    /// Replicas of a workload.
    Replicas,
    /// The spec or metadata of an autoscaler of replicas.
    Object,
    Event,
    /// The webhook configuration.
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

    /// The label value of this kind in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Annotations => "annotations",
            Self::Lease => "lease",
            Self::Heartbeat => "heartbeat",
            Self::Eviction => "eviction",
            Self::Resize => "resize",
            Self::PodAnnotations => "pod_annotations",
            Self::UpdaterState => "memory",
            Self::DisruptionLedger => "ledger",
            Self::Replicas => "replicas",
            Self::Object => "object",
            Self::Event => "event",
            Self::WebhookConfig => "registration",
            Self::Certificate => "certificate",
            Self::WebhookLease => "webhook_lease",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteOutcome {
    /// The HTTP status code of the response.
    Code(u16),
    /// No response: the server is down, or too slow.
    NoResponse,
    /// Not sent, because the fence is closed.
    NotLeader,
}

impl std::fmt::Display for WriteOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => code.fmt(f),
            Self::NoResponse => f.write_str("none"),
            Self::NotLeader => f.write_str("fenced"),
        }
    }
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

    /// All counts, ordered by kind and outcome.
    pub fn counts(&self) -> BTreeMap<(WriteKind, WriteOutcome), u64> {
        self.counts.lock().clone()
    }
}
