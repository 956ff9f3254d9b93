//! Counts of writes: what was written, what came of it, and how long it took.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteKind {
    /// The status of an autoscaler.
    Status,
    /// Annotations of a VerticalPodAutoscaler, which go with its status.
    Annotations,
    /// The Lease that says who leads.
    Lease,
    /// The Lease that says that the recommender works.
    Heartbeat,
    /// The eviction of a pod.
    Eviction,
    /// New resources of a running pod.
    Resize,
    /// Annotations of a pod.
    PodAnnotations,
    /// What is remembered of a workload, on its VerticalPodAutoscaler.
    UpdaterState,
    /// What was changed in the cluster, on the updater's Lease.
    DisruptionLedger,
    /// Replicas of a workload.
    Replicas,
    /// The spec or metadata of a WatermarkPodAutoscaler.
    WpaObject,
    /// An event.
    Event,
    /// The registration of the webhook.
    WebhookConfig,
    /// The Secret with the webhook's certificate.
    Certificate,
    /// The Lease that says that the webhook is reachable.
    WebhookLease,
}

impl WriteKind {
    /// One word, for a label.
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
            Self::WpaObject => "object",
            Self::Event => "event",
            Self::WebhookConfig => "registration",
            Self::Certificate => "certificate",
            Self::WebhookLease => "webhook_lease",
        }
    }
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteOutcome {
    /// The server's status code.
    Code(u16),
    /// No answer: the server is away, or too slow.
    NoResponse,
    /// It was not sent, because the fence is closed.
    NotLeader,
}

impl WriteOutcome {
    /// What a request came to.
    pub fn from_result<T>(answer: &kube::Result<T>) -> Self {
        match answer {
            Ok(_) => Self::Code(200),
            Err(kube::Error::Api(status)) => Self::Code(status.code),
            Err(_) => Self::NoResponse,
        }
    }
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

/// How often something was written with one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCount {
    /// Number of writes.
    pub writes: u64,
    /// Time that they took together, from sending to the answer.
    pub total_duration: Duration,
}

/// Counts by kind and answer, since the start of the process.
#[derive(Debug, Default)]
pub struct WriteStats {
    counts: Mutex<BTreeMap<(WriteKind, WriteOutcome), WriteCount>>,
}

impl WriteStats {
    /// Counts one write.
    pub fn count(&self, kind: WriteKind, answer: WriteOutcome, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((kind, answer)).or_default();
        count.writes += 1;
        count.total_duration += took;
    }

    /// All counts, in order of kind and answer.
    pub fn counts(&self) -> Vec<(WriteKind, WriteOutcome, WriteCount)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(&(kind, answer), &count)| (kind, answer, count)).collect()
    }

    /// How often one kind was written with one answer.
    pub fn get(&self, kind: WriteKind, answer: WriteOutcome) -> WriteCount {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(kind, answer)).copied().unwrap_or_default()
    }
}
