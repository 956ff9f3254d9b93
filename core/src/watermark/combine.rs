//! Combines the proposals of all metrics of an object: each metric's proposal or error, and the proposal that wins.

use crate::types::Time;

use super::{
    band::Band,
    propose::{Convergence, Proposal, ProposalInput},
    spec::EffectiveSpec,
};
use crate::{
    scaling::{
        MetricError, MetricSourceType, MetricValue, Milli, Pod, PodsNotReady, Position,
        ReadinessPolicy, Scale,
    },
    types::compat::{Fix, Fixes},
};

/// A metric with the result of fetching it.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricInput {
    pub kind: MetricSourceType,
    /// The metric name, as used in labels.
    pub label: String,
    /// The metric name with its selector, as used in messages.
    pub name: String,
    /// The label selector sent to the metrics API; empty selects everything.
    pub selector: String,
    /// The URL of a recommender, without credentials.
    pub address: Option<String>,
    /// The watermarks; `None` if the spec sets none.
    pub band: Option<Band>,
    /// The fetched value, or why there is none.
    pub value: Result<MetricValue, MetricError>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MetricEvaluation {
    pub kind: MetricSourceType,
    /// The metric name, as used in labels.
    pub label: String,
    pub name: String,
    pub band: Option<Band>,
    pub result: Result<Proposal, MetricError>,
    /// Whether this metric's proposal won.
    pub is_chosen: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CombinedProposal {
    /// The proposed replicas, before limits are applied.
    pub replicas: i32,
    /// Whether some metric is above its band.
    pub is_above: bool,
    /// Whether some metric is below its band.
    pub is_below: bool,
    /// Number of pods that counted as ready for the winning metric.
    pub ready_pods: u32,
    pub metric_name: String,
    /// The reason that a recommender gave; empty for other metrics.
    pub reason: String,
    /// The convergence of the last metric that was evaluated.
    pub convergence: Option<Convergence>,
}

impl CombinedProposal {
    /// Whether all metrics are inside their bands.
    pub const fn is_stable(&self) -> bool {
        !self.is_above && !self.is_below
    }
}

/// Why no replica count can be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProposalError {
    #[error("neither metrics nor a recommender is set")]
    NoMetrics,
    /// Scaling is blocked by a monitor or an alert.
    #[error("{0}")]
    Blocked(String),
    #[error("{whose}: {cause}")]
    Metric {
        /// Index of the metric in the spec.
        place: usize,
        /// Upstream's event reason.
        reason: &'static str,
        why: MetricError,
        /// Upstream's prefix of the message, which names the metric.
        whose: String,
        /// Upstream's message without that prefix.
        cause: String,
    },
}

impl ProposalError {
    /// The message without the prefix that names the metric.
    pub fn cause(&self) -> String {
        match self {
            Self::Metric { cause, .. } => cause.clone(),
            Self::NoMetrics | Self::Blocked(_) => self.to_string(),
        }
    }
}

/// Inputs shared by the evaluation of all metrics.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationContext<'a> {
    pub rules: &'a EffectiveSpec,
    pub readiness: ReadinessPolicy<'a>,
    /// The target's selector, for messages.
    pub selector: &'a str,
    /// The pods that match the selector.
    pub pods: &'a [Pod],
    pub scale: Scale,
    /// Values sampled before this time are stale.
    pub oldest_sample: Option<Time>,
    /// Which of upstream's bugs are fixed.
    pub fixes: Fixes,
}

impl EvaluationContext<'_> {
    /// Evaluates the metrics in order and combines their proposals. If one metric fails, so does the combination, unless
    /// the object allows partial metrics.
    pub fn combine(
        &self,
        sources: &[MetricInput],
    ) -> (Vec<MetricEvaluation>, Result<CombinedProposal, ProposalError>) {
        let mut evaluations: Vec<MetricEvaluation> = Vec::with_capacity(sources.len());
        let mut combined = CombinedProposal::default();
        let mut chosen: Option<usize> = None;
        let mut failed = None;
        for (index, source) in sources.iter().enumerate() {
            let outcome = self.evaluate(source);
            match &outcome {
                Ok(proposal) => {
                    combined.is_above |= proposal.position == Position::Above;
                    combined.is_below |= proposal.position == Position::Below;
                    if !proposal.is_ignored_zero {
                        combined.convergence = Some(proposal.convergence);
                    }
                    // A proposal of zero never wins over a later one.
                    if combined.replicas == 0 || proposal.replicas > combined.replicas {
                        combined.replicas = proposal.replicas;
                        combined.ready_pods = proposal.ready_pods;
                        combined.metric_name.clone_from(&source.name);
                        combined.reason = recommender_reason(source);
                        chosen = Some(index);
                    }
                }
                Err(why) => {
                    failed.get_or_insert_with(|| self.proposal_error(index, source, why));
                }
            }
            evaluations.push(MetricEvaluation {
                kind: source.kind,
                label: source.label.clone(),
                name: source.name.clone(),
                band: source.band,
                result: outcome,
                is_chosen: false,
            });
        }
        if sources.is_empty() && self.fixes.has(Fix::NoSourceHolds) {
            failed = Some(ProposalError::NoMetrics);
        }
        if let Some(failed) = failed {
            let adds = combined.is_above && combined.replicas > self.scale.spec_replicas;
            // The highest proposal wins, so the failed metrics could only have raised it.
            if !(self.rules.options.partial_metrics && adds) {
                return (evaluations, Err(failed));
            }
        }
        if let Some(evaluation) = chosen.and_then(|index| evaluations.get_mut(index)) {
            evaluation.is_chosen = true;
        }
        (evaluations, Ok(combined))
    }

    fn evaluate(&self, source: &MetricInput) -> Result<Proposal, MetricError> {
        let value = source.value.clone()?;
        if let Some(at) =
            value.sampled_at().filter(|at| self.oldest_sample.is_some_and(|oldest| *at < oldest))
        {
            return Err(MetricError::Stale { at });
        }
        if let MetricValue::Usage { usage, is_cpu, .. } = &value {
            let (sum, ready) = self.readiness.total_usage(self.pods, *is_cpu, usage)?;
            let band = source.band.ok_or(MetricError::NotANumber)?;
            return Ok(self.proposal_input(ready).propose(sum, &band));
        }
        if let Some(proposal) = self.propose_around_zero(&value) {
            return Ok(proposal);
        }
        let ready = self.readiness.ready_pods(self.pods, self.scale)?;
        let input = self.proposal_input(ready);
        let is_zero = match &value {
            MetricValue::Sum { sum, .. } => *sum == 0,
            MetricValue::Recommendation(advice) => advice.replicas == 0,
            MetricValue::Usage { .. } => false,
        };
        if is_zero && !self.rules.tolerates_zero {
            return Ok(self.propose_for_zero(ready));
        }
        match &value {
            MetricValue::Sum { sum, .. } => {
                Ok(input.propose(*sum, &source.band.ok_or(MetricError::NotANumber)?))
            }
            MetricValue::Recommendation(advice) => Ok(input.propose_recommendation(advice)),
            MetricValue::Usage { .. } => Err(MetricError::NotANumber),
        }
    }

    fn proposal_input(&self, ready_pods: u32) -> ProposalInput<'_> {
        let (rules, spec_replicas) = (self.rules, self.scale.spec_replicas);
        ProposalInput { rules, spec_replicas, ready_pods, fixes: self.fixes }
    }

    /// With scale to zero, a value of zero proposes no replicas, and any other value one replica if there is none.
    fn propose_around_zero(&self, metric_value: &MetricValue) -> Option<Proposal> {
        let value = match metric_value {
            MetricValue::Sum { sum, .. } => *sum,
            MetricValue::Recommendation(advice) => Milli::from(advice.replicas) * 1000,
            MetricValue::Usage { .. } => return None,
        };
        let (replicas, position) = match (self.scale.spec_replicas, value) {
            _ if !self.rules.may_be_zero() => return None,
            (_, ..=0) => (0, Position::Below),
            (0, _) => (1, Position::Above),
            _ => return None,
        };
        let (convergence, value) = (Convergence::Outside(position), value.max(0));
        let input = self.proposal_input(0);
        Some(input.proposal((replicas, convergence), position, value as f64, value))
    }

    /// An ignored zero proposes the current replicas. Upstream proposes the number of ready pods.
    fn propose_for_zero(&self, ready: u32) -> Proposal {
        let replicas = if self.fixes.has(Fix::ZeroKeepsReplicas) {
            self.scale.spec_replicas
        } else {
            i32::try_from(ready).unwrap_or(i32::MAX)
        };
        let input = self.proposal_input(ready);
        let kept = input.proposal((replicas, Convergence::Off), Position::Inside, 0.0, 0);
        Proposal { is_ignored_zero: true, ..kept }
    }

    fn proposal_error(
        &self,
        index: usize,
        source: &MetricInput,
        why: &MetricError,
    ) -> ProposalError {
        let MetricInput { kind, label, selector, address, .. } = source;
        let namespace = self.readiness.target.namespace;
        let whose = match kind {
            MetricSourceType::External | MetricSourceType::Prometheus => {
                format!("failed to compute replicas based on external metric {label}")
            }
            MetricSourceType::Resource | MetricSourceType::ContainerResource => {
                format!("failed to get resource metric {label}")
            }
            MetricSourceType::Recommender => {
                let address = address.as_ref().unwrap_or(label);
                format!("failed to get the recommendation from {address}")
            }
        };
        let cause = match (kind, why) {
            (_, MetricError::PodsNotReady(PodsNotReady::NoneReady { .. })) => format!(
                "unable to get the number of ready pods across all namespaces for {}: {why}",
                self.selector
            ),
            (_, MetricError::PodsNotReady(_)) | (MetricSourceType::Recommender, _) => {
                why.to_string()
            }
            (MetricSourceType::External | MetricSourceType::Prometheus, _) => {
                format!("unable to get external metric {namespace}/{label}/{selector}: {why}")
            }
            (MetricSourceType::Resource | MetricSourceType::ContainerResource, _) => {
                format!("unable to get resource metric {namespace}/{label}/{selector}: {why}")
            }
        };
        let reason = failure_reason(*kind);
        ProposalError::Metric { place: index, reason, why: why.clone(), whose, cause }
    }
}

/// Upstream's event reason if a metric of this type is not available.
pub const fn failure_reason(kind: MetricSourceType) -> &'static str {
    match kind {
        MetricSourceType::External | MetricSourceType::Prometheus => "FailedGetExternalMetric",
        MetricSourceType::Resource
        | MetricSourceType::ContainerResource
        | MetricSourceType::Recommender => "FailedGetResourceMetric",
    }
}

fn recommender_reason(source: &MetricInput) -> String {
    match &source.value {
        Ok(MetricValue::Recommendation(advice)) => advice.reason.clone(),
        _ => String::new(),
    }
}
