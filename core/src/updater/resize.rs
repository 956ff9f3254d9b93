//! How far the resize of one pod is, from its conditions and their own times: so that a restart, or another updater,
//! knows no less.

use crate::types::Time;

use super::pod_status::{PodStatus, ResizeCondition};

/// What the conditions of a pod say of its resize. `PodResizePending` goes before `PodResizeInProgress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizeStatus {
    /// None is under way.
    None,
    /// It waits for room on the node.
    Deferred,
    /// The node can never have room for it.
    Infeasible,
    /// It is being made.
    InProgress,
    /// It failed on the node, which tries on.
    Error,
    /// The node says something that nobody knows.
    Unknown,
}

impl ResizeStatus {
    /// By the conditions of the pod.
    pub fn from_pod_status(life: &PodStatus) -> Self {
        match (&life.resize_pending, &life.resize_in_progress) {
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

/// How far the resize of one pod is, with what was written to it taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResizePhase {
    /// None was asked for, or the one that was is done.
    Settled,
    /// It was asked for, and the kubelet has not said anything yet.
    Proposed {
        /// Since when, if anybody knows.
        since: Option<Time>,
    },
    /// It waits for room on the node.
    Deferred {
        /// Since when, if anybody knows.
        since: Option<Time>,
    },
    /// It is being made.
    InProgress {
        /// Since when, if anybody knows.
        since: Option<Time>,
    },
    /// It failed on the node, which tries on.
    Error {
        /// Since when, if anybody knows.
        since: Option<Time>,
    },
    /// It is impossible on that node.
    Infeasible,
}

impl ResizePhase {
    /// Of a pod, with the time at which it was resized last, and whether it has what its spec says.
    pub fn from_pod_status(life: &PodStatus, resized_at: Option<Time>, has_its_spec: bool) -> Self {
        let condition = life.resize_pending.as_ref().or(life.resize_in_progress.as_ref());
        let Some(condition) = condition else {
            return match resized_at {
                Some(_) if !has_its_spec => Self::Proposed { since: resized_at },
                _ => Self::Settled,
            };
        };
        let is_of_before = condition.generation.zip(life.generation);
        if is_of_before.is_some_and(|(seen, latest)| seen < latest) && resized_at.is_some() {
            return Self::Proposed { since: resized_at };
        }
        let since = condition.since.or(resized_at);
        match ResizeStatus::from_pod_status(life) {
            ResizeStatus::Infeasible => Self::Infeasible,
            ResizeStatus::InProgress => Self::InProgress { since },
            ResizeStatus::Error => Self::Error { since },
            // What nobody knows is waited for as long as what waits for room.
            ResizeStatus::Deferred | ResizeStatus::Unknown | ResizeStatus::None => {
                Self::Deferred { since }
            }
        }
    }

    /// Whether the kubelet is at work on it, or has not looked at it yet.
    pub fn is_kubelet_busy(self) -> bool {
        matches!(self, Self::Proposed { .. } | Self::InProgress { .. } | Self::Error { .. })
    }

    /// Whether the containers of the pod may be restarted at any moment for a resize that was asked for.
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
    fn pending_goes_before_in_progress_and_each_reason_has_its_status() {
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
            let life = PodStatus {
                resize_pending: pending,
                resize_in_progress: progress,
                ..PodStatus::default()
            };
            assert_eq!(ResizeStatus::from_pod_status(&life), expected, "{life:?}");
        }
    }

    #[test]
    fn a_condition_of_a_resize_before_the_last_one_says_nothing_of_the_last() {
        let at = Time::from_secs(1_000);
        let mut life = PodStatus {
            resize_pending: Some(ResizeCondition {
                reason: "Deferred".into(),
                since: Some(Time::from_secs(10)),
                generation: Some(3),
                ..ResizeCondition::default()
            }),
            generation: Some(4),
            ..PodStatus::default()
        };
        assert_eq!(
            ResizePhase::from_pod_status(&life, Some(at), false),
            ResizePhase::Proposed { since: Some(at) }
        );
        life.generation = Some(3);
        let since = Some(Time::from_secs(10));
        assert_eq!(
            ResizePhase::from_pod_status(&life, Some(at), false),
            ResizePhase::Deferred { since }
        );
        life.resize_pending = None;
        assert_eq!(ResizePhase::from_pod_status(&life, Some(at), true), ResizePhase::Settled);
        assert_eq!(
            ResizePhase::from_pod_status(&life, Some(at), false),
            ResizePhase::Proposed { since: Some(at) }
        );
        assert_eq!(ResizePhase::from_pod_status(&life, None, false), ResizePhase::Settled);
    }
}
