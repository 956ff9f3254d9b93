//! Why a pod gets its resources, or why it cannot be sized: data that explanations, annotations and metrics print.

use std::sync::Arc;

use serde::Serialize;
use strum::{Display, IntoStaticStr};

use super::{api_validation::Violation, pod::QosClass, quota::QuotaExceeded};
use crate::{api::ResourceName, types::quantity::Quantity};

/// One adjustment of an amount between the recommendation and the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum SizingReason {
    /// A rule changed an amount.
    Capped {
        resource: ResourceName,
        /// The request or the limit.
        field: ResourceField,
        rule: CapRule,
        /// The amount before.
        from: Quantity,
        /// The amount after.
        to: Quantity,
    },
    /// The request is not changed, because an autoscaler of replicas follows it.
    HeldForHpa {
        resource: ResourceName,
        hpa: Box<str>,
    },
    NoLimit {
        resource: ResourceName,
        without: MissingInput,
    },
    /// The proportional limit overflows, so it saturates and loses its ratio to the request.
    RatioLost {
        resource: ResourceName,
    },
}

/// Whether an amount is a request or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceField {
    /// The request of a container or pod.
    Request,
    /// The limit of a container or pod.
    Limit,
}

/// An input that a proportional limit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum MissingInput {
    /// The current limit of the container.
    OriginalLimit,
    RecommendedRequest,
}

/// A rule that caps amounts.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Display, IntoStaticStr,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum CapRule {
    /// `minAllowed` of the container policy.
    MinAllowed,
    /// `maxAllowed` of the container policy.
    MaxAllowed,
    /// The container's limit, if limits are not changed.
    ContainerLimit,
    /// `min` of a LimitRange for containers.
    #[strum(serialize = "limit_range_min")]
    RangeMin,
    /// `max` of a LimitRange for containers.
    #[strum(serialize = "limit_range_max")]
    RangeMax,
    /// `min` of a LimitRange for pods.
    #[strum(serialize = "pod_limit_range_min")]
    PodRangeMin,
    /// `max` of a LimitRange for pods.
    #[strum(serialize = "pod_limit_range_max")]
    PodRangeMax,
    /// `maxLimitRequestRatio` of a LimitRange.
    LimitRequestRatio,
    /// The QoS class of the pod would change.
    QosClass,
    /// The scale point of a HorizontalPodAutoscaler: the request is at least the usage that its replicas follow.
    ScalePoint,
    /// The scale point of a HorizontalPodAutoscaler whose target follows the request: the target has a lower bound.
    ScalePointRange,
    /// `maxReplicas` of a HorizontalPodAutoscaler are reached and not enough, so its pods become larger.
    AtMaxReplicas,
}

impl CapRule {
    /// The text in upstream's pod annotation, if upstream mentions the rule.
    const fn annotation_verb(self) -> Option<&'static str> {
        match self {
            Self::MinAllowed => Some("capped to minAllowed"),
            Self::MaxAllowed => Some("capped to maxAllowed"),
            Self::ContainerLimit => Some("capped to container limit"),
            Self::RangeMin => Some("capped to fit Min in container LimitRange"),
            Self::RangeMax => Some("capped to fit Max in container LimitRange"),
            Self::ScalePoint => Some("raised to the scale point of the HorizontalPodAutoscaler"),
            Self::ScalePointRange => {
                Some("lowered to the range around the scale point of the HorizontalPodAutoscaler")
            }
            Self::AtMaxReplicas => {
                Some("raised because maxReplicas of the HorizontalPodAutoscaler are not enough")
            }
            _ => None,
        }
    }
}

impl SizingReason {
    pub(super) fn capped_request(
        resource: &ResourceName,
        rule: CapRule,
        from: Quantity,
        to: Quantity,
    ) -> Self {
        let (resource, field) = (resource.clone(), ResourceField::Request);
        Self::Capped { resource, field, rule, from, to }
    }

    /// The text in upstream's pod annotation; `None` if upstream does not mention it.
    pub fn annotation_text(&self) -> Option<String> {
        match self {
            Self::Capped { resource, field: ResourceField::Request, rule, .. } => {
                rule.annotation_verb().map(|action| format!("{resource} {action}"))
            }
            Self::Capped { .. } => None,
            Self::HeldForHpa { resource, hpa } => Some(format!(
                "{resource} request not changed since HorizontalPodAutoscaler {hpa} scales by its utilization"
            )),
            Self::NoLimit { resource, without } => {
                Some(format!("{resource}: limit NOT set since {without} is nil or 0"))
            }
            Self::RatioLost { resource } => Some(format!(
                "{resource}: failed to keep limit to request ratio; capping limit to int64"
            )),
        }
    }
}

/// Why a pod cannot be sized. The pod is not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum SizingError {
    #[error("the LimitRanges of the namespace are unknown: the pod is not changed")]
    LimitRangesUnknown,
    /// Upstream's release panics for such a pod.
    #[error(
        "container {container} has no recommendation and the pod violates a LimitRange: upstream's release panics for \
         such a pod, so with --compat=upstream it is not changed"
    )]
    CrashesUpstream { container: Arc<str> },
    #[error("the startup boost of container {container} {problem}: fix it in the VPA")]
    #[strum(serialize = "bad_startup_boost")]
    InvalidBoost {
        container: Arc<str>,
        /// What is wrong with it, as a predicate.
        problem: &'static str,
    },
    /// The annotation with the resources of a container before its boost cannot be parsed.
    #[error("failed to parse annotation {key}: {error}; remove it from the pod")]
    #[strum(serialize = "bad_boost_annotation")]
    InvalidOriginals { key: String, error: String },
    /// The API server would reject the resized pod, but accepts the current one.
    #[error("{violation}, which the API server would reject: the pod is not changed")]
    WouldBeRejected { violation: Violation },
    /// A ResourceQuota of the namespace would reject the resized pod, but accepts the current one.
    #[error("{excess}: the pod is not changed")]
    QuotaExceeded { excess: Box<QuotaExceeded> },
    /// The QoS class of a pod is fixed when it is created, so a resize must not change it.
    #[error("a resize would change the QoS class from {from} to {to}, which is not allowed")]
    QosWouldChange { from: QosClass, to: QosClass },
    /// The pod or its VPA exceeds a size limit. Sizing it would delay other pods.
    #[error("{count} {what} exceed the limit of {most}: the pod is not changed")]
    TooLarge { what: &'static str, count: usize, most: usize },
}
