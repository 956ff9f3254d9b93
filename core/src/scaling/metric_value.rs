//! What is looked at, what came of asking, and what can be said of it when nothing did.

use crate::types::Time;

use super::{
    pod_readiness::{PodsNotReady, Usage},
    recommender_protocol::RecommendResponse,
};

/// Thousandths of whatever the metric counts.
pub type Milli = i64;

/// What kind of source it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricSourceType {
    /// A metric that belongs to no object.
    External,
    /// The same, asked of a Prometheus by its query.
    Prometheus,
    /// What pods use.
    Resource,
    /// What one container of each pod uses.
    ContainerResource,
    /// A service that recommends replicas.
    Recommender,
}

impl MetricSourceType {
    /// The word for it, as labels have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::External => "external",
            Self::Prometheus => "prometheus",
            Self::Resource => "resource",
            Self::ContainerResource => "container_resource",
            Self::Recommender => "recommender",
        }
    }
}

/// Why nothing is known. None of these is a zero.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MetricError {
    /// It could not be asked, or answered with an error.
    #[error("{0}")]
    Failed(String),
    /// The answer is empty.
    #[error("no metrics returned from {0} metrics API")]
    Empty(&'static str),
    /// The answer is no number.
    #[error("the value is not a number")]
    NotANumber,
    /// The answer is of too long ago.
    #[error("the value is of {at}, longer ago than values may be")]
    Stale {
        /// When it was true.
        at: Time,
    },
    /// The pods do not let anything be computed.
    #[error(transparent)]
    PodsNotReady(#[from] PodsNotReady),
}

impl MetricError {
    /// The word for it, in metrics and rows.
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

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricValue {
    /// The sum of all series.
    Sum {
        /// That sum.
        sum: Milli,
        /// When it was true, if that is said.
        at: Option<Time>,
    },
    /// What pods use, and whether that is CPU.
    Usage {
        /// By pod.
        usage: Usage,
        /// Whether it is CPU.
        is_cpu: bool,
        /// When the oldest of it was true, if that is said.
        at: Option<Time>,
    },
    /// What a service recommends.
    Recommendation(RecommendResponse),
}

impl MetricValue {
    /// When it was true, if that is said.
    pub const fn sampled_at(&self) -> Option<Time> {
        match self {
            Self::Sum { at, .. } | Self::Usage { at, .. } => *at,
            Self::Recommendation(_) => None,
        }
    }
}

/// What a metric is called in texts: with the labels that have to match, in order.
pub fn display_name<'a>(
    metric: &str,
    labels: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut labels: Vec<String> =
        labels.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    labels.sort();
    format!("{metric}{{map[{}]}}", labels.join(" "))
}

/// What a recommender is called, in texts and labels alike.
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
    fn sources_are_called_as_upstream_calls_them() {
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
