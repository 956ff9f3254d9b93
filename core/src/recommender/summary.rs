//! What was last decided about a container, in the few bytes that metrics and quality figures need.

use std::sync::Arc;

use super::{
    container::ContainerHistory,
    estimate::Resource,
    explanation::{RecommendationReason, ResourceExplanation},
    policy::ResourceAmounts,
    recommendation::ContainerRecommendation,
    settings::ModelRules,
};
use crate::types::quantity::Quantity;

/// The latest decision about one container.
#[derive(Clone, Debug, PartialEq)]
pub struct RecommendationSummary {
    /// Name of the container.
    pub container: Arc<str>,
    /// CPU in cores, where it is recommended.
    pub cpu: Option<ResourceSummary>,
    /// Memory in bytes, where it is recommended.
    pub memory: Option<ResourceSummary>,
}

/// The numbers of one resource, in cores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceSummary {
    /// What to request.
    pub target: f64,
    /// Below this the pod should be given more.
    pub lower: f64,
    /// Above this the pod could do with less.
    pub upper: f64,
    /// The target before limits.
    pub uncapped: f64,
    /// The largest usage that is part of the history, as far as its buckets tell.
    pub peak: Option<f64>,
    /// How much the numbers can be relied on: in days of samples, unless a flag says otherwise.
    pub confidence: f32,
    /// Which stage decided the target.
    pub reason: RecommendationReason,
}

impl RecommendationSummary {
    /// The numbers of a resource.
    pub const fn resource(&self, resource: Resource) -> Option<&ResourceSummary> {
        match resource {
            Resource::Cpu => self.cpu.as_ref(),
            Resource::Memory => self.memory.as_ref(),
        }
    }

    /// What metrics need of a recommendation and the history that it rests on.
    pub fn new(
        said: &ContainerRecommendation,
        history: Option<&ContainerHistory>,
        rules: &ModelRules,
    ) -> Self {
        let peaks = history.map(|history| history.peaks(rules)).unwrap_or_default();
        let figures = |pick: fn(&ResourceAmounts) -> Option<Quantity>,
                       why: Option<&ResourceExplanation>| {
            let number = |amounts| pick(amounts).map(Quantity::as_f64);
            Some(ResourceSummary {
                target: number(&said.target)?,
                lower: number(&said.lower)?,
                upper: number(&said.upper)?,
                uncapped: number(&said.uncapped)?,
                peak: None,
                confidence: why.map_or(0.0, |why| why.evidence.confidence as f32),
                reason: why.map_or(RecommendationReason::NoData, |why| why.target.decided_by),
            })
        };
        let mut cpu = figures(|amounts| amounts.cpu, said.explanation.cpu.as_ref());
        let mut memory = figures(|amounts| amounts.memory, said.explanation.memory.as_ref());
        if let Some(cpu) = &mut cpu {
            cpu.peak = peaks.0;
        }
        if let Some(memory) = &mut memory {
            memory.peak = peaks.1;
        }
        Self { container: Arc::clone(&said.container), cpu, memory }
    }
}
