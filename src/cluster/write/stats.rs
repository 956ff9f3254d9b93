//! Counts writes by kind and outcome, with their duration.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The kind of a write.
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
    /// Annotations of a pod.
    PodAnnotations,
    /// The updater's state of a workload, on its VerticalPodAutoscaler.
    UpdaterState,
    /// The disruption ledger, on the updater's Lease.
    DisruptionLedger,
    /// Replicas of a workload.
    Replicas,
    /// The spec or metadata of an autoscaler of replicas.
    Object,
    /// An event.
    Event,
    /// The webhook configuration.
    WebhookConfig,
    /// The Secret with the webhook's certificate.
    Certificate,
    /// The Lease that shows that the webhook is reachable.
    WebhookLease,
}

impl WriteKind {
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

/// The outcome of a write.
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

/// Counts of one kind with one outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCount {
    /// Number of writes.
    pub writes: u64,
    /// Their total duration, from sending to the response.
    pub total_duration: Duration,
}

/// Counts by kind and outcome, since the start of the process.
#[derive(Debug, Default)]
pub struct WriteStats {
    counts: Mutex<BTreeMap<(WriteKind, WriteOutcome), WriteCount>>,
}

impl WriteStats {
    /// Counts one write.
    pub fn count(&self, kind: WriteKind, outcome: WriteOutcome, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((kind, outcome)).or_default();
        count.writes += 1;
        count.total_duration += took;
    }

    /// All counts, ordered by kind and outcome.
    pub fn counts(&self) -> Vec<(WriteKind, WriteOutcome, WriteCount)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(&(kind, outcome), &count)| (kind, outcome, count)).collect()
    }

    /// The counts of one kind with one outcome.
    pub fn get(&self, kind: WriteKind, outcome: WriteOutcome) -> WriteCount {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(kind, outcome)).copied().unwrap_or_default()
    }
}
