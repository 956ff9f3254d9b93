//! Why a pod is not updated: a closed list, with the same names in metrics, conditions, events and explanations.

use std::fmt;

use crate::types::Time;

/// Why a pod is not updated.
#[derive(Clone, Debug, PartialEq)]
pub enum SkipReason {
    /// The update mode of the VPA does not update running pods.
    Mode,
    /// The feature gate of the update mode is disabled.
    GateClosed,
    /// The pod has no controller that would replace it.
    NoController,
    /// The pod has no recommendation.
    NoRecommendation,
    /// Its resources cannot be computed.
    Unsizeable(Box<str>),
    /// The new resources would exceed a ResourceQuota of the namespace.
    QuotaExceeded(Box<str>),
    /// Its requests are close enough to the target.
    NearTarget {
        /// The relative difference.
        difference: f64,
    },
    /// Its requests are within bounds, and it is too young to be updated for a smaller difference.
    TooYoung {
        /// When it will be old enough.
        until: Time,
    },
    /// Its requests are within bounds, and its start time is unknown.
    AgeUnknown,
    /// No container meets all eviction requirements of the VPA.
    Requirements,
    /// Its startup boost is active.
    Boosted,
    /// Its group has fewer pods than minReplicas.
    BelowMinReplicas {
        /// Live pods of the group.
        live: u32,
    },
    /// The desired number of replicas is unknown.
    ReplicasUnknown,
    /// No more pods of its group may become unavailable.
    Budget {
        /// Available pods of the group.
        alive: u32,
        /// Desired pods of the group.
        wanted: u32,
    },
    /// The pod has not started or is not ready yet.
    Starting,
    /// The pod was evicted, but is still listed.
    Terminating,
    /// The API server does not support in-place resize.
    NoResize,
    /// Its spec already has the recommended resources.
    NothingToWrite,
    /// A resize would change its QoS class, which the API server rejects.
    QosWouldChange,
    /// The kubelet has not reported on a resize yet.
    ResizeProposed,
    /// A resize is deferred until the node has capacity.
    ResizeDeferred,
    /// A resize is in progress.
    ResizeInProgress,
    /// A resize failed on the node. The kubelet retries.
    ResizeError,
    /// A resize to the same or larger resources was infeasible.
    Infeasible,
    /// The admission controller is not ready, so a new pod would not be resized.
    AdmissionUnready,
    /// The recommender has not loaded its history yet.
    HistoryNotLoaded,
    /// The recommender's heartbeat is stale.
    RecommendationsStale,
    /// The recommender's heartbeat is missing or cannot be read.
    HeartbeatUnknown,
    /// The recommender's heartbeat has not been observed for long enough.
    HeartbeatAwaited,
    /// The maintenance windows of the VPA are closed.
    OutsideWindow {
        /// When the next one opens; `None` if never.
        until: Option<Time>,
    },
    /// The workload was changed recently and is cooling down.
    CoolDown {
        /// When it may be changed again.
        until: Time,
    },
    /// The first changed pod is being observed.
    Canary {
        /// The earliest end of the observation.
        until: Time,
    },
    /// The circuit breaker of the workload is open: changed pods are worse than before.
    BreakerOpen {
        /// When it closes.
        until: Time,
    },
    /// The circuit breaker of the cluster is open: changes caused regressions in several workloads.
    ClusterBreakerOpen {
        /// When it closes.
        until: Time,
    },
    /// Recent evictions had no observed effect.
    EffectUnproven,
    /// Another writer overwrote the recommended values.
    ExternallyOverwritten,
    /// The hourly change budget of the namespace is exhausted.
    NamespaceBudget,
    /// The hourly change budget of the cluster is exhausted.
    ClusterBudget,
    /// A second replica is started before the only one is evicted.
    Surging,
    /// A PodDisruptionBudget blocks its eviction, or that of another pod of its group in this pass.
    DisruptionBudget,
    /// The change failed.
    Failed,
    /// The state could not be persisted before the change.
    PersistFailed,
    /// The pass ended before the pod was processed.
    PassEnded,
}

impl SkipReason {
    /// All names, for tables and metrics.
    pub const NAMES: [&'static str; 43] = [
        "mode",
        "gate_closed",
        "no_controller",
        "no_recommendation",
        "unsizeable",
        "quota_exceeded",
        "near_target",
        "young",
        "age_unknown",
        "requirements",
        "boosted",
        "below_min_replicas",
        "replicas_unknown",
        "budget",
        "starting",
        "leaving",
        "no_resize",
        "nothing_to_write",
        "qos_would_change",
        "resize_proposed",
        "resize_deferred",
        "resize_in_progress",
        "resize_error",
        "infeasible",
        "admission_unready",
        "history_not_loaded",
        "recommendations_stale",
        "heartbeat_unknown",
        "heartbeat_awaited",
        "outside_window",
        "cool_down",
        "canary",
        "breaker_open",
        "cluster_breaker_open",
        "unproven",
        "rewritten",
        "namespace_budget",
        "cluster_budget",
        "surging",
        "disruption_budget",
        "failed",
        "not_booked",
        "pass_ended",
    ];

    /// The reasons of pods that need no update.
    const NEEDS_NO_UPDATE: [&'static str; 8] = [
        "mode",
        "gate_closed",
        "no_recommendation",
        "near_target",
        "young",
        "nothing_to_write",
        "leaving",
        "boosted",
    ];

    /// The reasons of guards, most important first: conditions and events report these.
    pub const GUARDS: [&'static str; 19] = [
        "rewritten",
        "breaker_open",
        "cluster_breaker_open",
        "history_not_loaded",
        "recommendations_stale",
        "heartbeat_unknown",
        "admission_unready",
        "not_booked",
        "unproven",
        "outside_window",
        "cluster_budget",
        "namespace_budget",
        "infeasible",
        "quota_exceeded",
        "no_resize",
        "disruption_budget",
        "canary",
        "cool_down",
        "surging",
    ];

    /// The name in metrics, conditions and reports.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::GateClosed => "gate_closed",
            Self::NoController => "no_controller",
            Self::NoRecommendation => "no_recommendation",
            Self::Unsizeable(_) => "unsizeable",
            Self::QuotaExceeded(_) => "quota_exceeded",
            Self::NearTarget { .. } => "near_target",
            Self::TooYoung { .. } => "young",
            Self::AgeUnknown => "age_unknown",
            Self::Requirements => "requirements",
            Self::Boosted => "boosted",
            Self::BelowMinReplicas { .. } => "below_min_replicas",
            Self::ReplicasUnknown => "replicas_unknown",
            Self::Budget { .. } => "budget",
            Self::Starting => "starting",
            Self::Terminating => "leaving",
            Self::NoResize => "no_resize",
            Self::NothingToWrite => "nothing_to_write",
            Self::QosWouldChange => "qos_would_change",
            Self::ResizeProposed => "resize_proposed",
            Self::ResizeDeferred => "resize_deferred",
            Self::ResizeInProgress => "resize_in_progress",
            Self::ResizeError => "resize_error",
            Self::Infeasible => "infeasible",
            Self::AdmissionUnready => "admission_unready",
            Self::HistoryNotLoaded => "history_not_loaded",
            Self::RecommendationsStale => "recommendations_stale",
            Self::HeartbeatUnknown => "heartbeat_unknown",
            Self::HeartbeatAwaited => "heartbeat_awaited",
            Self::OutsideWindow { .. } => "outside_window",
            Self::CoolDown { .. } => "cool_down",
            Self::Canary { .. } => "canary",
            Self::BreakerOpen { .. } => "breaker_open",
            Self::ClusterBreakerOpen { .. } => "cluster_breaker_open",
            Self::EffectUnproven => "unproven",
            Self::ExternallyOverwritten => "rewritten",
            Self::NamespaceBudget => "namespace_budget",
            Self::ClusterBudget => "cluster_budget",
            Self::Surging => "surging",
            Self::DisruptionBudget => "disruption_budget",
            Self::Failed => "failed",
            Self::PersistFailed => "not_booked",
            Self::PassEnded => "pass_ended",
        }
    }

    /// Whether a needed update is blocked, as `restricted_scaling` reports it.
    pub fn is_restriction(&self) -> bool {
        !Self::NEEDS_NO_UPDATE.contains(&self.as_str())
    }

    /// Names of all reasons that block a needed update.
    pub fn restriction_names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(|name| !Self::NEEDS_NO_UPDATE.contains(name))
    }
}

/// Formats the message for conditions and explanations.
impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuotaExceeded(why) => f.write_str(why),
            Self::Unsizeable(why) => write!(f, "its resources cannot be computed: {why}"),
            Self::NearTarget { difference } => {
                write!(f, "it differs from the target by only {:.0} %", difference * 100.0)
            }
            Self::TooYoung { until } => {
                write!(
                    f,
                    "its requests are within bounds, and it is too young for a smaller update until {}",
                    truncate_to_seconds(*until)
                )
            }
            Self::BelowMinReplicas { live } => {
                write!(f, "its group has {live} live pods, fewer than minReplicas")
            }
            Self::Budget { alive, wanted } => write!(
                f,
                "{alive} of {wanted} desired pods of its group are available, and no more may be disrupted"
            ),
            Self::OutsideWindow { until: Some(until) } => {
                write!(f, "the next change window opens at {}", truncate_to_seconds(*until))
            }
            Self::CoolDown { until } => {
                write!(
                    f,
                    "the workload was changed recently: no further change before {}",
                    truncate_to_seconds(*until)
                )
            }
            Self::Canary { until } => {
                write!(
                    f,
                    "the first changed pod is observed until at least {}",
                    truncate_to_seconds(*until)
                )
            }
            Self::BreakerOpen { until } => write!(
                f,
                "changed pods are worse than before; changes are blocked until {}",
                truncate_to_seconds(*until)
            ),
            Self::ClusterBreakerOpen { until } => write!(
                f,
                "changes caused regressions in several workloads; all changes are blocked until {}",
                truncate_to_seconds(*until)
            ),
            other => f.write_str(other.message()),
        }
    }
}

/// Truncates to whole seconds for messages.
const fn truncate_to_seconds(time: Time) -> Time {
    Time::from_secs(time.as_secs())
}

impl SkipReason {
    const fn message(&self) -> &'static str {
        match self {
            Self::Mode => "the update mode does not update running pods",
            Self::GateClosed => "the feature gate of the update mode is disabled",
            Self::NoController => "it has no controller that would replace it",
            Self::NoRecommendation => "it has no recommendation",
            Self::AgeUnknown => "its requests are within bounds, and its start time is unknown",
            Self::Requirements => "no container meets all eviction requirements",
            Self::Boosted => "its startup boost is active",
            Self::ReplicasUnknown => "the desired number of replicas of its controller is unknown",
            Self::Starting => "it is not ready yet",
            Self::Terminating => "it was already evicted",
            Self::NoResize => "the API server does not support in-place resize",
            Self::NothingToWrite => "its spec already has the recommended resources",
            Self::QosWouldChange => "a resize would change its QoS class, which is not allowed",
            Self::ResizeProposed => "a resize waits for the kubelet",
            Self::ResizeDeferred => "a resize is deferred until the node has capacity",
            Self::ResizeInProgress => "a resize is in progress",
            Self::ResizeError => "a resize failed on the node; the kubelet retries",
            Self::Infeasible => "a resize to the same or larger resources was infeasible",
            Self::AdmissionUnready => "the admission controller is not ready to size new pods",
            Self::HistoryNotLoaded => "the recommender has not loaded its history yet",
            Self::RecommendationsStale => "the heartbeat of the recommender is stale",
            Self::HeartbeatUnknown => {
                "the heartbeat of the recommender is missing or cannot be read"
            }
            Self::HeartbeatAwaited => "waiting for the next heartbeat of the recommender",
            Self::OutsideWindow { .. } => "its change windows never open",
            Self::EffectUnproven => "recent evictions had no observed effect",
            Self::ExternallyOverwritten => "another writer overwrote the recommended values",
            Self::NamespaceBudget => "the hourly change budget of the namespace is exhausted",
            Self::ClusterBudget => "the hourly change budget of the cluster is exhausted",
            Self::Surging => "a second replica is started before the only one is evicted",
            Self::DisruptionBudget => "a PodDisruptionBudget blocks its eviction",
            Self::Failed => "the change failed",
            Self::PersistFailed => "the state could not be persisted before the change",
            Self::PassEnded => "the pass ended before the pod was processed",
            // Formatted with their values in `Display`.
            Self::Unsizeable(_)
            | Self::QuotaExceeded(_)
            | Self::NearTarget { .. }
            | Self::TooYoung { .. }
            | Self::BelowMinReplicas { .. }
            | Self::Budget { .. }
            | Self::CoolDown { .. }
            | Self::Canary { .. }
            | Self::BreakerOpen { .. }
            | Self::ClusterBreakerOpen { .. } => "",
        }
    }
}
