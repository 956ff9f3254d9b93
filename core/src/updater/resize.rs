//! The progress of a pod's resize, derived from its conditions and their transition times, so that it survives restarts
//! and leader changes.

use crate::types::Time;

use super::{
    pod_status::{PodStatus, ResizeCondition},
    skip_reason::SkipReason,
};

/// The resize status by the conditions of a pod. `PodResizePending` takes precedence over `PodResizeInProgress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeStatus {
    /// No resize is in progress.
    None,
    /// The node has no capacity for it at present.
    Deferred,
    /// It exceeds the capacity of the node.
    Infeasible,
    /// The kubelet is applying it.
    InProgress,
    /// It failed on the node. The kubelet retries.
    Error,
    /// The condition has an unknown reason.
    Unknown,
}

impl ResizeStatus {
    /// Reads the conditions of a pod.
    pub fn from_pod_status(status: &PodStatus) -> Self {
        match (&status.resize_pending, &status.resize_in_progress) {
            (Some(pending), _) => match &*pending.reason {
                "Deferred" => Self::Deferred,
                "Infeasible" => Self::Infeasible,
                _ => Self::Unknown,
            },
            (None, Some(progress)) if is_empty(progress) => Self::InProgress,
            (None, Some(progress)) if &*progress.reason == "Error" => Self::Error,
            (None, Some(_)) => Self::Unknown,
            (None, None) => Self::None,
        }
    }
}

fn is_empty(condition: &ResizeCondition) -> bool {
    condition.reason.is_empty() && condition.message.is_empty()
}

/// The progress of a pod's resize, by its conditions and by what the updater wrote; `since` is when that began, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizePhase {
    /// No resize was requested, or the last one is complete.
    Settled,
    /// It was requested, and the kubelet has not reported on it yet.
    Proposed { since: Option<Time> },
    /// The node has no capacity for it at present.
    Deferred { since: Option<Time> },
    /// The kubelet is applying it.
    InProgress { since: Option<Time> },
    /// It failed on the node. The kubelet retries.
    Error { since: Option<Time> },
    /// It exceeds the capacity of the node.
    Infeasible,
}

impl ResizePhase {
    /// Derives the phase from the status of a pod, the time of its last resize, and whether its status matches its spec.
    pub fn from_pod_status(
        status: &PodStatus,
        resized_at: Option<Time>,
        has_its_spec: bool,
    ) -> Self {
        let condition = status.resize_pending.as_ref().or(status.resize_in_progress.as_ref());
        let Some(condition) = condition else {
            return match resized_at {
                Some(_) if !has_its_spec => Self::Proposed { since: resized_at },
                _ => Self::Settled,
            };
        };
        let generations = condition.generation.zip(status.generation);
        if generations.is_some_and(|(observed, latest)| observed < latest) && resized_at.is_some() {
            return Self::Proposed { since: resized_at };
        }
        let since = condition.since.or(resized_at);
        match ResizeStatus::from_pod_status(status) {
            ResizeStatus::Infeasible => Self::Infeasible,
            ResizeStatus::InProgress => Self::InProgress { since },
            ResizeStatus::Error => Self::Error { since },
            // An unknown status times out like a deferred resize.
            ResizeStatus::Deferred | ResizeStatus::Unknown | ResizeStatus::None => {
                Self::Deferred { since }
            }
        }
    }

    /// Why a pod in this phase is not updated; `None` without a resize.
    pub const fn skip_reason(self) -> Option<SkipReason> {
        match self {
            Self::Settled => None,
            Self::Infeasible => Some(SkipReason::Infeasible),
            Self::Proposed { .. } => Some(SkipReason::ResizeProposed),
            Self::Deferred { .. } => Some(SkipReason::ResizeDeferred),
            Self::InProgress { .. } => Some(SkipReason::ResizeInProgress),
            Self::Error { .. } => Some(SkipReason::ResizeError),
        }
    }

    /// Whether the kubelet is applying the resize, or has not reported on it yet.
    pub fn is_kubelet_busy(self) -> bool {
        matches!(self, Self::Proposed { .. } | Self::InProgress { .. } | Self::Error { .. })
    }

    /// Whether a requested resize may still restart containers of the pod.
    pub fn is_under_way(self) -> bool {
        !matches!(self, Self::Settled | Self::Infeasible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(reason: &str, message: &str) -> ResizeCondition {
        ResizeCondition { reason: reason.into(), message: message.into(), ..Default::default() }
    }

    #[test]
    fn pending_precedes_in_progress_and_each_reason_has_its_status() {
        for (pending, progress, expected) in [
            (None, None, ResizeStatus::None),
            (Some(condition("Deferred", "")), None, ResizeStatus::Deferred),
            (Some(condition("Infeasible", "no room")), None, ResizeStatus::Infeasible),
            (Some(condition("", "")), None, ResizeStatus::Unknown),
            (Some(condition("Other", "")), None, ResizeStatus::Unknown),
            (None, Some(condition("", "")), ResizeStatus::InProgress),
            (None, Some(condition("Error", "no")), ResizeStatus::Error),
            (None, Some(condition("Error", "")), ResizeStatus::Error),
            (None, Some(condition("", "says something")), ResizeStatus::Unknown),
            (None, Some(condition("Other", "")), ResizeStatus::Unknown),
            (Some(condition("Deferred", "")), Some(condition("Error", "")), ResizeStatus::Deferred),
        ] {
            let status = PodStatus {
                resize_pending: pending,
                resize_in_progress: progress,
                ..PodStatus::default()
            };
            assert_eq!(ResizeStatus::from_pod_status(&status), expected, "{status:?}");
        }
    }

    #[test]
    fn a_resize_condition_from_before_the_last_resize_is_ignored() {
        let at = Time::from_secs(1_000);
        let mut status = PodStatus {
            resize_pending: Some(ResizeCondition {
                reason: "Deferred".into(),
                since: Some(Time::from_secs(10)),
                generation: Some(3),
                ..ResizeCondition::default()
            }),
            generation: Some(4),
            ..PodStatus::default()
        };
        let (proposed, since) =
            (ResizePhase::Proposed { since: Some(at) }, Some(Time::from_secs(10)));
        assert_eq!(ResizePhase::from_pod_status(&status, Some(at), false), proposed);
        status.generation = Some(3);
        let deferred = ResizePhase::Deferred { since };
        assert_eq!(ResizePhase::from_pod_status(&status, Some(at), false), deferred);
        status.resize_pending = None;
        assert_eq!(ResizePhase::from_pod_status(&status, Some(at), true), ResizePhase::Settled);
        assert_eq!(ResizePhase::from_pod_status(&status, Some(at), false), proposed);
        assert_eq!(ResizePhase::from_pod_status(&status, None, false), ResizePhase::Settled);
    }
}
