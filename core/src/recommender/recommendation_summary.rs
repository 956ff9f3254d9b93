//! The last recommendation of a container, reduced to what metrics need.

use std::sync::Arc;

use super::{
    container::ContainerHistory, explanation::RecommendationReason, model_settings::ModelRules,
    policy::ResourceAmounts, recommendation::ContainerRecommendation,
};
use crate::types::{PerResource, Resource};

#[derive(Clone, Debug, PartialEq)]
pub struct RecommendationSummary {
    pub container: Arc<str>,
    /// Those that are recommended.
    pub resources: PerResource<ResourceSummary>,
}

/// The recommendation of one resource, in cores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceSummary {
    pub target: f64,
    /// Pods with a lower request should get more.
    pub lower: f64,
    /// Pods with a higher request need less.
    pub upper: f64,
    /// The target before the policy is applied.
    pub uncapped: f64,
    /// The largest usage in the history, with the precision of its buckets.
    pub peak: Option<f64>,
    /// The confidence, by default in days of samples.
    pub confidence: f32,
    /// The stage that decided the target.
    pub reason: RecommendationReason,
}

impl RecommendationSummary {
    pub fn new(
        recommendation: &ContainerRecommendation,
        history: Option<&ContainerHistory>,
        rules: &ModelRules,
    ) -> Self {
        let peaks = history.map(|history| history.peaks(rules)).unwrap_or_default();
        let summarize = |resource| {
            let number = |amounts: &ResourceAmounts| amounts.get(resource).map(|it| it.as_f64());
            let explanation = recommendation.explanation.get(resource);
            Some(ResourceSummary {
                target: number(&recommendation.target)?,
                lower: number(&recommendation.lower)?,
                upper: number(&recommendation.upper)?,
                uncapped: number(&recommendation.uncapped)?,
                peak: peaks.get(resource).copied(),
                confidence: explanation.map_or(0.0, |it| it.evidence.confidence as f32),
                reason: explanation.map_or(RecommendationReason::NoData, |it| it.target.decided_by),
            })
        };
        let (cpu, memory) = (summarize(Resource::Cpu), summarize(Resource::Memory));
        let container = Arc::clone(&recommendation.container);
        Self { container, resources: PerResource { cpu, memory } }
    }
}
