//! Metric sources, fetched values, and errors.

use crate::types::Time;

use super::{
    external_recommender::RecommendResponse,
    pod_readiness::{PodsNotReady, Usage},
};

/// A value in thousandths of the metric's unit.
pub type Milli = i64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum MetricSourceType {
    External,
    Prometheus,
    /// The resource usage of pods.
    Resource,
    /// The resource usage of one container of each pod.
    ContainerResource,
    /// An external recommender service.
    Recommender,
}

/// Why a metric is not available. An unavailable metric is never treated as zero.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    #[error("{0}")]
    Failed(String),
    #[error("no metrics returned from {0} metrics API")]
    Empty(&'static str),
    #[error("the value is not a number")]
    NotANumber,
    /// The value was sampled too long ago.
    #[error("metric is stale: sampled at {at}")]
    Stale { at: Time },
    /// Too few pods are ready to compute anything.
    #[error(transparent)]
    PodsNotReady(#[from] PodsNotReady),
}

impl MetricError {
    /// The name used in labels and in the status.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Failed(_) => "error",
            Self::Empty(_) => "empty",
            Self::NotANumber => "not_a_number",
            Self::Stale { .. } => "stale",
            Self::PodsNotReady(PodsNotReady::NoPods) => "no_pods",
            Self::PodsNotReady(PodsNotReady::NoneReady { .. }) => "none_ready",
            Self::PodsNotReady(PodsNotReady::TooFewReady { .. }) => "too_few_ready",
            Self::PodsNotReady(PodsNotReady::NoUsage) => "no_usage",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    Sum {
        sum: Milli,
        /// When it was sampled, if the source reports it.
        at: Option<Time>,
    },
    Usage {
        usage: Usage,
        is_cpu: bool,
        /// When the oldest value was sampled, if the source reports it.
        at: Option<Time>,
    },
    Recommendation(RecommendResponse),
}

impl MetricValue {
    /// When the value was sampled, if the source reports it.
    pub const fn sampled_at(&self) -> Option<Time> {
        match self {
            Self::Sum { at, .. } | Self::Usage { at, .. } => *at,
            Self::Recommendation(_) => None,
        }
    }
}

/// The name of a metric in messages: with its match labels, sorted.
pub fn display_name<'a>(
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut labels: Vec<String> =
        labels.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    labels.sort();
    format!("{metric}{{map[{}]}}", labels.join(" "))
}

/// The name of a recommender in messages and labels.
pub fn recommender_name<'a>(
    target: &str,
    settings: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut settings: Vec<String> =
        settings.into_iter().map(|(key, value)| format!(",{key}:{value}")).collect();
    settings.sort();
    format!("recommender{{targetType:{target}{}}}", settings.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors K1 and H5.
    #[test]
    fn metric_sources_have_upstreams_names() {
        let labels = [("zone", "b"), ("app", "web")];
        assert_eq!(display_name("requests", labels), "requests{map[app:web zone:b]}");
        assert_eq!(display_name("requests", []), "requests{map[]}");
        let settings = [("lookbackWindowSeconds", "600"), ("consumerGroup", "my_app")];
        assert_eq!(
            recommender_name("memory", settings),
            "recommender{targetType:memory,consumerGroup:my_app,lookbackWindowSeconds:600}"
        );
        assert_eq!(recommender_name("fake", []), "recommender{targetType:fake}");
    }
}
