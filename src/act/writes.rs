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
    Memory,
    /// What was changed in the cluster, on the updater's Lease.
    Ledger,
    /// Replicas of a workload.
    Replicas,
    /// The spec or metadata of a WatermarkPodAutoscaler.
    Object,
    /// An event.
    Event,
    /// The registration of the webhook.
    Registration,
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
            Self::Memory => "memory",
            Self::Ledger => "ledger",
            Self::Replicas => "replicas",
            Self::Object => "object",
            Self::Event => "event",
            Self::Registration => "registration",
            Self::Certificate => "certificate",
            Self::WebhookLease => "webhook_lease",
        }
    }
}

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Answer {
    /// The server's status code.
    Code(u16),
    /// No answer: the server is away, or too slow.
    None,
    /// It was not sent, because the fence is closed.
    Fenced,
}

impl Answer {
    /// What a request came to.
    pub fn of<T>(answer: &kube::Result<T>) -> Self {
        match answer {
            Ok(_) => Self::Code(200),
            Err(kube::Error::Api(status)) => Self::Code(status.code),
            Err(_) => Self::None,
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => code.fmt(f),
            Self::None => f.write_str("none"),
            Self::Fenced => f.write_str("fenced"),
        }
    }
}

/// How often something was written with one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of writes.
    pub writes: u64,
    /// Time that they took together, from sending to the answer.
    pub took: Duration,
}

/// Counts by kind and answer, since the start of the process.
#[derive(Debug, Default)]
pub struct WriteStats {
    counts: Mutex<BTreeMap<(WriteKind, Answer), Count>>,
}

impl WriteStats {
    /// Counts one write.
    pub fn count(&self, kind: WriteKind, answer: Answer, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry((kind, answer)).or_default();
        count.writes += 1;
        count.took += took;
    }

    /// All counts, in order of kind and answer.
    pub fn counts(&self) -> Vec<(WriteKind, Answer, Count)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(&(kind, answer), &count)| (kind, answer, count)).collect()
    }

    /// How often one kind was written with one answer.
    pub fn of(&self, kind: WriteKind, answer: Answer) -> Count {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&(kind, answer)).copied().unwrap_or_default()
    }
}
