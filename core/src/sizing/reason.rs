//! Why a pod gets what it gets, and why it gets nothing: data that explanations, annotations and metrics print.

use std::{fmt, sync::Arc};

use serde::Serialize;

use super::{api_validation::Violation, pod::QosClass, quota::QuotaExceeded};
use crate::{api::ResourceName, types::quantity::Quantity};

/// One thing that happened to a number on its way from the recommendation to the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "what")]
pub enum SizingReason {
    /// A rule changed an amount.
    Capped {
        /// Of this resource.
        resource: ResourceName,
        /// The request or the limit.
        field: ResourceField,
        /// The rule.
        rule: CapRule,
        /// From this.
        from: Quantity,
        /// To this.
        to: Quantity,
    },
    /// No limit is written.
    NoLimit {
        /// Of this resource.
        resource: ResourceName,
        /// What there is none of, or 0, and what a limit would follow from.
        without: MissingInput,
    },
    /// The limit would be more than a number can say, so it is the most that it can.
    RatioLost {
        /// Of this resource.
        resource: ResourceName,
    },
}

/// What of a container a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceField {
    /// Its request.
    Request,
    /// Its limit.
    Limit,
}

/// What a limit would follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MissingInput {
    /// The limit that the container has.
    OriginalLimit,
    /// A recommendation.
    RecommendedRequest,
}

/// A rule that changes amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CapRule {
    /// `minAllowed` of the policy.
    MinAllowed,
    /// `maxAllowed` of the policy.
    MaxAllowed,
    /// The container's limit, where limits are left alone.
    ContainerLimit,
    /// The minimum for containers in the namespace.
    RangeMin,
    /// The maximum for containers in the namespace.
    RangeMax,
    /// The minimum for whole pods in the namespace.
    PodRangeMin,
    /// The maximum for whole pods in the namespace.
    PodRangeMax,
    /// How many times the request a limit may be in the namespace.
    LimitRequestRatio,
    /// The pod would get another quality of service.
    QosClass,
    /// The operator's limit of a boosted CPU.
    BoostMax,
}

impl CapRule {
    /// All rules.
    pub const ALL: [Self; 10] = [
        Self::MinAllowed,
        Self::MaxAllowed,
        Self::ContainerLimit,
        Self::RangeMin,
        Self::RangeMax,
        Self::PodRangeMin,
        Self::PodRangeMax,
        Self::LimitRequestRatio,
        Self::QosClass,
        Self::BoostMax,
    ];

    /// One word for labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MinAllowed => "min_allowed",
            Self::MaxAllowed => "max_allowed",
            Self::ContainerLimit => "container_limit",
            Self::RangeMin => "limit_range_min",
            Self::RangeMax => "limit_range_max",
            Self::PodRangeMin => "pod_limit_range_min",
            Self::PodRangeMax => "pod_limit_range_max",
            Self::LimitRequestRatio => "limit_request_ratio",
            Self::QosClass => "qos_class",
            Self::BoostMax => "boost_max",
        }
    }

    /// What upstream writes into the pod's annotation about it, where it writes anything.
    const fn annotation_verb(self) -> Option<&'static str> {
        match self {
            Self::MinAllowed => Some("capped to minAllowed"),
            Self::MaxAllowed => Some("capped to maxAllowed"),
            Self::ContainerLimit => Some("capped to container limit"),
            Self::RangeMin => Some("capped to fit Min in container LimitRange"),
            Self::RangeMax => Some("capped to fit Max in container LimitRange"),
            _ => None,
        }
    }
}

impl SizingReason {
    /// As upstream writes it into the pod's annotation; nothing for what upstream says nothing about.
    pub fn annotation_text(&self) -> Option<String> {
        match self {
            Self::Capped { resource, field: ResourceField::Request, rule, .. } => {
                rule.annotation_verb().map(|action| format!("{resource} {action}"))
            }
            Self::Capped { .. } => None,
            Self::NoLimit { resource, without } => {
                Some(format!("{resource}: limit NOT set since {without} is nil or 0"))
            }
            Self::RatioLost { resource } => Some(format!(
                "{resource}: failed to keep limit to request ratio; capping limit to int64"
            )),
        }
    }
}

impl fmt::Display for MissingInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::OriginalLimit => "originalLimit",
            Self::RecommendedRequest => "recommendedRequest",
        })
    }
}

impl fmt::Display for CapRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why nothing can be decided for a pod. It is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizingError {
    /// The LimitRanges of the namespace could not be read.
    #[error("the LimitRanges of the namespace are not known: the pod is left as it is")]
    LimitRangesUnknown,
    /// Upstream's release crashes over such a pod.
    #[error(
        "container {container} has no recommendation, and the pod's LimitRange does not hold: upstream's release \
         crashes over such a pod, so under --compat=upstream it is left as it is"
    )]
    CrashesUpstream {
        /// The container without a recommendation.
        container: Arc<str>,
    },
    /// The startup boost of a container does not say what it is.
    #[error("the startup boost of container {container} {problem}: correct it in the VPA")]
    InvalidBoost {
        /// The container.
        container: Arc<str>,
        /// What is wrong.
        problem: &'static str,
    },
    /// The annotation that says what a boosted container had before cannot be read.
    #[error("annotation {key} is not what was written there: {error}; remove it from the pod")]
    InvalidOriginals {
        /// Its key.
        key: String,
        /// What the reader says.
        error: String,
    },
    /// The API server would not accept the pod that comes of it, and would accept the one that is there.
    #[error("{violation}, which the API server would not accept: the pod is left as it is")]
    WouldBeRejected {
        /// What would not be accepted.
        violation: Violation,
    },
    /// A quota of the namespace has no room for the pod that comes of it, and has room for the one that is there.
    #[error("{excess}: the pod is left as it is")]
    QuotaExceeded {
        /// What there is no room for.
        excess: Box<QuotaExceeded>,
    },
    /// Quality of service is decided when a pod is created, and no resize may change it.
    #[error("the resize would turn the pod from {} to {}, and no resize may", from.as_str(), to.as_str())]
    QosWouldChange {
        /// What it has.
        from: QosClass,
        /// What it would have.
        to: QosClass,
    },
    /// The pod, or what its VPA says, is larger than anybody needs, and sizing it would keep others waiting.
    #[error("{count} {what}, and at most {most} are sized: the pod is left as it is")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
}

impl SizingError {
    /// One word for labels.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LimitRangesUnknown => "limit_ranges_unknown",
            Self::CrashesUpstream { .. } => "crashes_upstream",
            Self::InvalidBoost { .. } => "bad_startup_boost",
            Self::InvalidOriginals { .. } => "bad_boost_annotation",
            Self::WouldBeRejected { .. } => "would_be_rejected",
            Self::QuotaExceeded { .. } => "quota_exceeded",
            Self::QosWouldChange { .. } => "qos_would_change",
            Self::TooLarge { .. } => "too_large",
        }
    }
}
