//! The last recommendation of a container, reduced to what metrics need.

use std::sync::Arc;

use super::{
    container::ContainerHistory,
    estimate::Resource,
    explanation::{RecommendationReason, ResourceExplanation},
    model_settings::ModelRules,
    policy::ResourceAmounts,
    recommendation::ContainerRecommendation,
};
use crate::types::quantity::Quantity;

#[derive(Clone, Debug, PartialEq)]
pub struct RecommendationSummary {
    pub container: Arc<str>,
    /// CPU in cores, if it is recommended.
    pub cpu: Option<ResourceSummary>,
    /// Memory in bytes, if it is recommended.
    pub memory: Option<ResourceSummary>,
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
    pub const fn resource(&self, resource: Resource) -> Option<&ResourceSummary> {
        match resource {
            Resource::Cpu => self.cpu.as_ref(),
            Resource::Memory => self.memory.as_ref(),
        }
    }

    pub fn new(
        recommendation: &ContainerRecommendation,
        history: Option<&ContainerHistory>,
        rules: &ModelRules,
    ) -> Self {
        let peaks = history.map(|history| history.peaks(rules)).unwrap_or_default();
        let summarize = |pick: fn(&ResourceAmounts) -> Option<Quantity>,
                         explanation: Option<&ResourceExplanation>| {
            let number = |amounts| pick(amounts).map(Quantity::as_f64);
            Some(ResourceSummary {
                target: number(&recommendation.target)?,
                lower: number(&recommendation.lower)?,
                upper: number(&recommendation.upper)?,
                uncapped: number(&recommendation.uncapped)?,
                peak: None,
                confidence: explanation.map_or(0.0, |it| it.evidence.confidence as f32),
                reason: explanation.map_or(RecommendationReason::NoData, |it| it.target.decided_by),
            })
        };
        let explanation = &recommendation.explanation;
        let mut cpu = summarize(|amounts| amounts.cpu, explanation.cpu.as_ref());
        let mut memory = summarize(|amounts| amounts.memory, explanation.memory.as_ref());
        if let Some(cpu) = &mut cpu {
            cpu.peak = peaks.0;
        }
        if let Some(memory) = &mut memory {
            memory.peak = peaks.1;
        }
        Self { container: Arc::clone(&recommendation.container), cpu, memory }
    }
}
