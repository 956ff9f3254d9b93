//! Why a pod is not updated: a closed list, with the same names in metrics, conditions, events and explanations.

use strum::{IntoStaticStr, VariantNames};

use crate::{
    coordination::{Hold, SharedRequest, SharedRequestRule},
    types::Time,
};

/// Why a pod is not updated. `until` is when that ends, or `None` if never. Its text is the message for conditions and explanations.
#[derive(Clone, Debug, PartialEq, thiserror::Error, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum SkipReason {
    #[error("the update mode does not update running pods")]
    Mode,
    #[error("the feature gate of the update mode is disabled")]
    GateClosed,
    #[error("it has no controller that would replace it")]
    NoController,
    #[error("it has no recommendation")]
    NoRecommendation,
    #[error("its resources cannot be computed: {0}")]
    Unsizeable(Box<str>),
    /// The new resources would exceed a ResourceQuota of the namespace.
    #[error("{0}")]
    QuotaExceeded(Box<str>),
    /// The replicas follow the request that would change. The text names the HorizontalPodAutoscaler, and how to end it.
    #[error("{0}")]
    HpaSameResource(Box<str>),
    /// A request that replicas follow was changed recently. The text names the HorizontalPodAutoscaler.
    #[error("{0}")]
    #[strum(serialize = "changed_recently")]
    RequestChangedRecently(Box<str>),
    /// The replicas that follow the request were changed recently.
    #[error("{0}")]
    ReplicasChanged(Box<str>),
    /// The metrics ask for another number of the replicas that follow the request.
    #[error("{0}")]
    ReplicasWillChange(Box<str>),
    /// It is unknown how many of the replicas that follow the request the metrics ask for.
    #[error("{0}")]
    ProposalUnknown(Box<str>),
    /// There are too few replicas, and no more are allowed: replacing a pod would take away capacity.
    #[error("{0}")]
    AtMaxReplicas(Box<str>),
    /// Its requests are close enough to the target.
    #[error("it differs from the target by only {:.0} %", .difference * 100.0)]
    NearTarget { difference: f64 },
    #[error(
        "its requests are within the bounds of the plan: a change would save less than its price"
    )]
    WithinPlan,
    #[error("its requests are within bounds, and it is too young for a smaller update until {}", second_of(*.until))]
    #[strum(serialize = "young")]
    TooYoung { until: Time },
    #[error("its requests are within bounds, and its start time is unknown")]
    AgeUnknown,
    #[error("no container meets all eviction requirements")]
    Requirements,
    #[error("its startup boost is active")]
    Boosted,
    #[error("its group has {live} live pods, fewer than minReplicas")]
    BelowMinReplicas { live: u32 },
    #[error("the desired number of replicas of its controller is unknown")]
    ReplicasUnknown,
    #[error(
        "{alive} of {wanted} desired pods of its group are available, and no more may be disrupted"
    )]
    Budget { alive: u32, wanted: u32 },
    /// The pod has not started or is not ready yet.
    #[error("it is not ready yet")]
    Starting,
    /// The pod was evicted, but is still listed.
    #[error("it was already evicted")]
    #[strum(serialize = "leaving")]
    Terminating,
    #[error("the API server does not support in-place resize")]
    NoResize,
    #[error("its spec already has the recommended resources")]
    NothingToWrite,
    /// A resize would change its QoS class, which the API server rejects.
    #[error("a resize would change its QoS class, which is not allowed")]
    QosWouldChange,
    /// The kubelet has not reported on a resize yet.
    #[error("a resize waits for the kubelet")]
    ResizeProposed,
    #[error("a resize is deferred until the node has capacity")]
    ResizeDeferred,
    #[error("a resize is in progress")]
    ResizeInProgress,
    #[error("a resize failed on the node; the kubelet retries")]
    ResizeError,
    #[error("a resize to the same or larger resources was infeasible")]
    Infeasible,
    /// The admission controller is not ready, so a new pod would not be resized.
    #[error("the admission controller is not ready to size new pods")]
    AdmissionUnready,
    #[error("the recommender has not loaded its history yet")]
    HistoryNotLoaded,
    #[error("the heartbeat of the recommender is stale")]
    RecommendationsStale,
    /// The recommender's heartbeat is missing or cannot be read.
    #[error("the heartbeat of the recommender is missing or cannot be read")]
    HeartbeatUnknown,
    /// The recommender's heartbeat has not been observed for long enough.
    #[error("waiting for the next heartbeat of the recommender")]
    HeartbeatAwaited,
    /// The maintenance windows of the VPA are closed.
    #[error("{}", next_window(.until.as_ref()))]
    OutsideWindow { until: Option<Time> },
    #[error("the workload was changed recently: no further change before {}", second_of(*.until))]
    CoolDown { until: Time },
    #[error("the first changed pod is observed until at least {}", second_of(*.until))]
    Canary { until: Time },
    /// The circuit breaker of the workload is open: changed pods are worse than before.
    #[error("changed pods are worse than before; changes are blocked until {}", second_of(*.until))]
    BreakerOpen { until: Time },
    /// The circuit breaker of the cluster is open: changes caused regressions in several workloads.
    #[error("changes caused regressions in several workloads; all changes are blocked until {}", second_of(*.until))]
    ClusterBreakerOpen { until: Time },
    #[error("recent evictions had no observed effect")]
    #[strum(serialize = "unproven")]
    EffectUnproven,
    #[error("another writer overwrote the recommended values")]
    #[strum(serialize = "rewritten")]
    ExternallyOverwritten,
    #[error("the hourly change budget of the namespace is exhausted")]
    NamespaceBudget,
    #[error("the hourly change budget of the cluster is exhausted")]
    ClusterBudget,
    #[error("a second replica is started before the only one is evicted")]
    Surging,
    /// A PodDisruptionBudget blocks its eviction, or that of another pod of its group in this pass.
    #[error("a PodDisruptionBudget blocks its eviction")]
    DisruptionBudget,
    #[error("the change failed")]
    Failed,
    #[error("the state could not be persisted before the change")]
    #[strum(serialize = "not_booked")]
    PersistFailed,
    #[error("the pass ended before the pod was processed")]
    PassEnded,
}

impl SkipReason {
    /// The reason why a request that an autoscaler of replicas uses is not changed.
    pub(super) fn of_shared_request(request: &SharedRequest) -> Self {
        let text: Box<str> = request.to_string().into();
        let SharedRequestRule::Waits(hold) = request.rule else {
            return Self::HpaSameResource(text);
        };
        match hold {
            Hold::HpaSameResource => Self::HpaSameResource(text),
            Hold::ChangedRecently { .. } => Self::RequestChangedRecently(text),
            Hold::ReplicasChanged { .. } => Self::ReplicasChanged(text),
            Hold::ReplicasWillChange { .. } => Self::ReplicasWillChange(text),
            Hold::ProposalUnknown => Self::ProposalUnknown(text),
            Hold::AtMaxReplicas => Self::AtMaxReplicas(text),
        }
    }

    /// The reasons of pods that need no update.
    const NEEDS_NO_UPDATE: [&'static str; 9] = [
        "mode",
        "gate_closed",
        "no_recommendation",
        "near_target",
        "within_plan",
        "young",
        "nothing_to_write",
        "leaving",
        "boosted",
    ];

    /// The reasons of guards, most important first: conditions and events report these.
    pub const GUARDS: [&'static str; 25] = [
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
        "hpa_same_resource",
        "at_max_replicas",
        "proposal_unknown",
        "replicas_will_change",
        "replicas_changed",
        "changed_recently",
        "no_resize",
        "disruption_budget",
        "canary",
        "cool_down",
        "surging",
    ];

    /// Whether a needed update is blocked, as `restricted_scaling` reports it.
    pub fn is_restriction(&self) -> bool {
        !Self::NEEDS_NO_UPDATE.contains(&self.into_str())
    }

    /// Names of all reasons that block a needed update.
    pub fn restriction_names() -> impl Iterator<Item = &'static str> {
        Self::VARIANTS.iter().copied().filter(|name| !Self::NEEDS_NO_UPDATE.contains(name))
    }
}

/// When the next maintenance window opens.
fn next_window(until: Option<&Time>) -> String {
    until.map_or_else(
        || "its change windows never open".to_owned(),
        |until| format!("the next change window opens at {}", second_of(*until)),
    )
}

/// Truncates to whole seconds for messages.
const fn second_of(time: Time) -> Time {
    Time::from_secs(time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::{Resource, change_timing::Replicas};

    #[test]
    fn a_request_that_waits_has_the_reason_of_its_hold() {
        let until = Time::from_secs(1_800_000_000);
        for (hold, name) in [
            (Hold::HpaSameResource, "hpa_same_resource"),
            (Hold::ChangedRecently { until }, "changed_recently"),
            (Hold::ReplicasChanged { until }, "replicas_changed"),
            (Hold::ReplicasWillChange { proposed: 7 }, "replicas_will_change"),
            (Hold::ProposalUnknown, "proposal_unknown"),
            (Hold::AtMaxReplicas, "at_max_replicas"),
        ] {
            let skip = SkipReason::of_shared_request(&SharedRequest {
                hpa: "web".into(),
                resource: Resource::Cpu,
                container: None,
                scale_point: None,
                rule: SharedRequestRule::Waits(hold),
                replicas: Replicas::default(),
                lacks_replicas: false,
                target: None,
            });
            assert_eq!(skip.into_str(), name);
            assert!(SkipReason::GUARDS.contains(&skip.into_str()) && skip.is_restriction());
            assert!(skip.to_string().contains("HorizontalPodAutoscaler web"), "{skip}");
        }
    }
}
