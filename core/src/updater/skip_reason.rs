//! Why a pod is left as it is: a closed list, the same words in metrics, conditions, events and explanations.

use std::fmt;

use crate::types::Time;

/// Why nothing is done about a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum SkipReason {
    /// The mode of the VPA touches no running pods.
    Mode,
    /// The feature gate of the mode is closed.
    GateClosed,
    /// The pod has no controller that would make a new one.
    NoController,
    /// There is no recommendation for it.
    NoRecommendation,
    /// Its resources cannot be worked out.
    Unsizeable(Box<str>),
    /// The ResourceQuotas of its namespace have no room for what it would get.
    QuotaExceeded(Box<str>),
    /// What it has is near enough to what it should have.
    NearTarget {
        /// How far it is from it, as a share.
        difference: f64,
    },
    /// What it has is within bounds, and it is too young to be touched for less.
    TooYoung {
        /// When it will be old enough.
        until: Time,
    },
    /// What it has is within bounds, and it does not say how old it is.
    AgeUnknown,
    /// None of its containers meets all eviction requirements of the VPA.
    Requirements,
    /// It still has what it was given to start with.
    Boosted,
    /// Fewer pods than the least that there must be.
    BelowMinReplicas {
        /// Live pods.
        live: u32,
    },
    /// Nobody knows how many pods there should be.
    ReplicasUnknown,
    /// As many pods of its group are down as may be.
    Budget {
        /// Pods that are up.
        alive: u32,
        /// Pods that are wanted.
        wanted: u32,
    },
    /// It has not been started yet, or is not ready yet.
    Starting,
    /// It was evicted already, and is still seen.
    Terminating,
    /// The server knows no resizes.
    NoResize,
    /// Its spec says already what it should.
    NothingToWrite,
    /// The resize would change its class of service, which the server refuses.
    QosWouldChange,
    /// A resize waits for the kubelet to look at it.
    ResizeProposed,
    /// A resize waits for room on the node.
    ResizeDeferred,
    /// A resize is being made.
    ResizeInProgress,
    /// A resize failed on the node, which tries on.
    ResizeError,
    /// A resize to no less was found impossible.
    Infeasible,
    /// The admission controller does not answer for itself, so a new pod would be as the old one.
    AdmissionUnready,
    /// The recommender has not read its history yet.
    HistoryNotLoaded,
    /// The recommender gave no sign of life for too long.
    RecommendationsStale,
    /// Whether the recommender lives cannot be found out.
    HeartbeatUnknown,
    /// The recommender was not watched long enough to tell whether it lives.
    HeartbeatAwaited,
    /// The change windows of the VPA are closed.
    OutsideWindow {
        /// When the next one opens, if one ever does.
        until: Option<Time>,
    },
    /// The workload was changed a short while ago.
    CoolDown {
        /// When it may be changed again.
        until: Time,
    },
    /// The first pod that was changed is being watched.
    Canary {
        /// Until when at least.
        until: Time,
    },
    /// Pods that were changed are worse than before.
    BreakerOpen {
        /// Until when.
        until: Time,
    },
    /// Changes went wrong at several workloads.
    ClusterBreakerOpen {
        /// Until when.
        until: Time,
    },
    /// Evictions of late are not known to have changed anything.
    EffectUnproven,
    /// Somebody else writes other values.
    ExternallyOverwritten,
    /// As many changes were made in the namespace within an hour as may be.
    NamespaceBudget,
    /// As many changes were made in the cluster within an hour as may be.
    ClusterBudget,
    /// A second replica is started before the only one goes.
    Surging,
    /// The server did not let it go: a PodDisruptionBudget holds it, or one like it in this pass.
    DisruptionBudget,
    /// The change was tried and failed.
    Failed,
    /// What would be booked cannot be written down.
    PersistFailed,
    /// Another pod of this pass was refused for a reason that holds for all.
    PassEnded,
}

impl SkipReason {
    /// All words, for tables and metrics.
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

    /// Those of a pod of which nothing is wanted.
    const WANTS_NOTHING: [&'static str; 8] = [
        "mode",
        "gate_closed",
        "no_recommendation",
        "near_target",
        "young",
        "nothing_to_write",
        "leaving",
        "boosted",
    ];

    /// Those that keep surprises away, the weightiest first: what conditions and events tell.
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

    /// The word for it.
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

    /// Whether something that was wanted is held back: what `restricted_scaling` is about. The others want nothing.
    pub fn is_restriction(&self) -> bool {
        !Self::WANTS_NOTHING.contains(&self.as_str())
    }

    /// The words of those that hold something back: all the reasons that a restriction by an updater can have.
    pub fn restriction_names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(|word| !Self::WANTS_NOTHING.contains(word))
    }
}

/// A sentence for conditions and explanations.
impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QuotaExceeded(why) => f.write_str(why),
            Self::Unsizeable(why) => write!(f, "its resources cannot be worked out: {why}"),
            Self::NearTarget { difference } => {
                write!(f, "it differs from the target by {:.0} % only", difference * 100.0)
            }
            Self::TooYoung { until } => {
                write!(
                    f,
                    "it is within bounds, and too young to be touched for less until {}",
                    truncate_to_seconds(*until)
                )
            }
            Self::BelowMinReplicas { live } => {
                write!(f, "its group has {live} live pods, fewer than minReplicas")
            }
            Self::Budget { alive, wanted } => write!(
                f,
                "{alive} of the {wanted} pods of its group are up, and no more may go down"
            ),
            Self::OutsideWindow { until: Some(until) } => {
                write!(f, "the next change window opens at {}", truncate_to_seconds(*until))
            }
            Self::CoolDown { until } => {
                write!(
                    f,
                    "the workload was changed of late and rests until {}",
                    truncate_to_seconds(*until)
                )
            }
            Self::Canary { until } => {
                write!(
                    f,
                    "the first pod that was changed is watched, until {} at least",
                    truncate_to_seconds(*until)
                )
            }
            Self::BreakerOpen { until } => write!(
                f,
                "pods that were changed are worse than before; nothing is changed until {}",
                truncate_to_seconds(*until)
            ),
            Self::ClusterBreakerOpen { until } => write!(
                f,
                "changes went wrong at several workloads; nothing is changed until {}",
                truncate_to_seconds(*until)
            ),
            other => f.write_str(other.message()),
        }
    }
}

/// Nobody waits for fractions of a second.
const fn truncate_to_seconds(at: Time) -> Time {
    Time::from_secs(at.as_secs())
}

impl SkipReason {
    const fn message(&self) -> &'static str {
        match self {
            Self::Mode => "the update mode leaves running pods alone",
            Self::GateClosed => "the feature gate of the update mode is closed",
            Self::NoController => "no controller would replace it",
            Self::NoRecommendation => "there is no recommendation for it",
            Self::AgeUnknown => "it is within bounds and does not say how old it is",
            Self::Requirements => "no container meets all eviction requirements",
            Self::Boosted => "it still has what it was given to start with",
            Self::ReplicasUnknown => "nobody knows how many pods its controller wants",
            Self::Starting => "it is not ready yet",
            Self::Terminating => "it was evicted already",
            Self::NoResize => "the server cannot resize pods",
            Self::NothingToWrite => "its spec already says what it should have",
            Self::QosWouldChange => "a resize would change its QoS class, which is not allowed",
            Self::ResizeProposed => "a resize waits for the kubelet",
            Self::ResizeDeferred => "a resize waits for room on the node",
            Self::ResizeInProgress => "a resize is being made",
            Self::ResizeError => "a resize failed on the node, which tries on",
            Self::Infeasible => "a resize to no less was found impossible",
            Self::AdmissionUnready => "the admission controller is not there to size new pods",
            Self::HistoryNotLoaded => "the recommender has not read its history yet",
            Self::RecommendationsStale => "the recommender gives no sign of life",
            Self::HeartbeatUnknown => "whether the recommender lives cannot be found out",
            Self::HeartbeatAwaited => "the next sign of life of the recommender is waited for",
            Self::OutsideWindow { .. } => "its change windows never open",
            Self::EffectUnproven => "evictions of late are not known to have changed anything",
            Self::ExternallyOverwritten => "somebody else writes other values",
            Self::NamespaceBudget => "the namespace had as many changes within an hour as it may",
            Self::ClusterBudget => "the cluster had as many changes within an hour as it may",
            Self::Surging => "a second replica is started before the only one goes",
            Self::DisruptionBudget => "a PodDisruptionBudget does not let it go",
            Self::Failed => "the change was tried and failed",
            Self::PersistFailed => "the change could not be booked before it was made",
            Self::PassEnded => "the pass ended before its turn",
            // These are told with their numbers.
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
