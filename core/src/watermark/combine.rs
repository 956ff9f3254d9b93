//! What all sources of an object ask for together: each one's proposal or why it has none, and the one that holds.

use crate::types::Time;

use super::{
    band::{Band, Position},
    converge::Convergence,
    propose::Proposal,
    spec::EffectiveSpec,
};
use crate::{
    scaling::{
        MetricError, MetricSourceType, MetricValue, Milli, Pod, PodsNotReady, ReadinessPolicy,
        Scale,
    },
    types::compat::{Fix, Fixes},
};

/// One source, with what came of asking.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricInput {
    /// What kind it is.
    pub kind: MetricSourceType,
    /// Its name, as labels have it.
    pub label: String,
    /// Its name with its selector, as texts have it.
    pub name: String,
    /// Which series or pods count, as the API is asked for them; empty for all of them.
    pub selector: String,
    /// Where a recommender is, without what may be secret in it.
    pub address: Option<String>,
    /// Its marks, where it has both.
    pub band: Option<Band>,
    /// What came of asking.
    pub value: Result<MetricValue, MetricError>,
}

/// What came of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricEvaluation {
    /// What kind of source it is.
    pub kind: MetricSourceType,
    /// Its name, as labels have it.
    pub label: String,
    /// Its name with its selector.
    pub name: String,
    /// Its marks.
    pub band: Option<Band>,
    /// What it asks for, or why nothing is known.
    pub result: Result<ReplicaProposal, MetricError>,
    /// Whether it is the one that holds.
    pub is_chosen: bool,
}

/// What a source asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaProposal {
    /// What follows from its value.
    pub proposal: Proposal,
    /// Pods that counted as ready.
    pub ready_pods: u32,
    /// The value is zero, which says nothing here.
    pub is_ignored_zero: bool,
}

/// What all of them ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CombinedProposal {
    /// So many replicas, before any limit.
    pub replicas: i32,
    /// Whether some metric is above its band.
    pub is_above: bool,
    /// Whether some metric is below its band.
    pub is_below: bool,
    /// Pods that counted as ready for the source that holds.
    pub ready_pods: u32,
    /// The name of that source.
    pub metric_name: String,
    /// Why a recommender recommends it.
    pub reason: String,
    /// What came of going towards a mark, for the source that was looked at last.
    pub convergence: Option<Convergence>,
}

impl CombinedProposal {
    /// Whether no metric is outside of its band.
    pub const fn is_stable(&self) -> bool {
        !self.is_above && !self.is_below
    }
}

/// Why nothing can be computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProposalError {
    /// There is nothing to look at.
    #[error("neither metrics nor a recommender are set, so there is nothing to follow")]
    NoMetrics,
    /// Something else does not let it be followed.
    #[error("{0}")]
    Blocked(String),
    /// A source says nothing.
    #[error("{whose}: {cause}")]
    Metric {
        /// Which one.
        place: usize,
        /// Upstream's reason for it.
        reason: &'static str,
        /// What is wrong with it.
        why: MetricError,
        /// Whose replicas those would be.
        whose: String,
        /// Why they are not known.
        cause: String,
    },
}

impl ProposalError {
    /// The same as it is said where it is clear whose replicas it is about.
    pub fn cause(&self) -> String {
        match self {
            Self::Metric { cause, .. } => cause.clone(),
            Self::NoMetrics | Self::Blocked(_) => self.to_string(),
        }
    }
}

/// What proposals hang on.
#[derive(Clone, Copy, Debug)]
pub struct EvaluationContext<'a> {
    /// What the object asks for.
    pub rules: &'a EffectiveSpec,
    /// How pods are counted.
    pub readiness: ReadinessPolicy<'a>,
    /// The target's selector, for texts.
    pub selector: &'a str,
    /// The pods that it finds.
    pub pods: &'a [Pod],
    /// What the target has.
    pub scale: Scale,
    /// Values of longer ago say nothing.
    pub oldest_sample: Option<Time>,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

impl EvaluationContext<'_> {
    /// What all sources ask for, in their order. One that says nothing leaves the others without a say.
    pub fn combine(
        &self,
        sources: &[MetricInput],
    ) -> (Vec<MetricEvaluation>, Result<CombinedProposal, ProposalError>) {
        let mut rows: Vec<MetricEvaluation> = Vec::with_capacity(sources.len());
        let mut combined = CombinedProposal::default();
        let mut chosen: Option<usize> = None;
        let mut failed = None;
        for (place, source) in sources.iter().enumerate() {
            let outcome = self.evaluate(source);
            match &outcome {
                Ok(asked) => {
                    let proposal = &asked.proposal;
                    combined.is_above |= proposal.position == Position::Above;
                    combined.is_below |= proposal.position == Position::Below;
                    if !asked.is_ignored_zero {
                        combined.convergence = Some(proposal.convergence);
                    }
                    // A proposal of nothing is no reason to stay there.
                    if combined.replicas == 0 || proposal.replicas > combined.replicas {
                        combined.replicas = proposal.replicas;
                        combined.ready_pods = asked.ready_pods;
                        combined.metric_name.clone_from(&source.name);
                        combined.reason = recommender_reason(source);
                        chosen = Some(place);
                    }
                }
                Err(why) => {
                    failed.get_or_insert_with(|| self.proposal_error(place, source, why));
                }
            }
            rows.push(MetricEvaluation {
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
            // Whatever the others would have said, they would not have asked for fewer than the most.
            if !(self.rules.options.partial_metrics && adds) {
                return (rows, Err(failed));
            }
        }
        if let Some(row) = chosen.and_then(|place| rows.get_mut(place)) {
            row.is_chosen = true;
        }
        (rows, Ok(combined))
    }

    fn evaluate(&self, source: &MetricInput) -> Result<ReplicaProposal, MetricError> {
        let answer = source.value.clone()?;
        if let Some(at) =
            answer.sampled_at().filter(|at| self.oldest_sample.is_some_and(|oldest| *at < oldest))
        {
            return Err(MetricError::Stale { at });
        }
        if let MetricValue::Usage { usage, is_cpu, .. } = &answer {
            let (sum, ready) = self.readiness.total_usage(self.pods, *is_cpu, usage)?;
            let band = source.band.ok_or(MetricError::NotANumber)?;
            return Ok(ReplicaProposal {
                proposal: self
                    .rules
                    .proposal_input(self.scale.spec_replicas, ready, self.fixes)
                    .propose(sum, &band),
                ready_pods: ready,
                is_ignored_zero: false,
            });
        }
        if let Some(asked) = self.propose_around_zero(&answer) {
            return Ok(asked);
        }
        let ready = self.readiness.ready_pods(self.pods, self.scale)?;
        let question = self.rules.proposal_input(self.scale.spec_replicas, ready, self.fixes);
        let is_zero = match &answer {
            MetricValue::Sum { sum, .. } => *sum == 0,
            MetricValue::Recommendation(advice) => advice.replicas == 0,
            MetricValue::Usage { .. } => false,
        };
        if is_zero && !self.rules.tolerates_zero {
            return Ok(ReplicaProposal {
                proposal: self.propose_for_zero(ready),
                ready_pods: ready,
                is_ignored_zero: true,
            });
        }
        let proposal = match &answer {
            MetricValue::Sum { sum, .. } => {
                question.propose(*sum, &source.band.ok_or(MetricError::NotANumber)?)
            }
            MetricValue::Recommendation(advice) => question.propose_recommendation(advice),
            MetricValue::Usage { .. } => return Err(MetricError::NotANumber),
        };
        Ok(ReplicaProposal { proposal, ready_pods: ready, is_ignored_zero: false })
    }

    /// Where the last replica may go, a zero asks for none, and whatever is more for one where there is none.
    fn propose_around_zero(&self, answer: &MetricValue) -> Option<ReplicaProposal> {
        let value = match answer {
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
        let convergence = Convergence::Outside(position);
        let value = value.max(0);
        let proposal =
            Proposal { replicas, position, value: value as f64, utilization: value, convergence };
        Some(ReplicaProposal { proposal, ready_pods: 0, is_ignored_zero: false })
    }

    /// A zero says nothing. Upstream takes it for as many replicas as are ready.
    fn propose_for_zero(&self, ready: u32) -> Proposal {
        let replicas = if self.fixes.has(Fix::ZeroKeepsReplicas) {
            self.scale.spec_replicas
        } else {
            i32::try_from(ready).unwrap_or(i32::MAX)
        };
        Proposal {
            replicas,
            position: Position::Inside,
            value: 0.0,
            utilization: 0 as Milli,
            convergence: Convergence::Off,
        }
    }

    fn proposal_error(
        &self,
        place: usize,
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
        ProposalError::Metric { place, reason, why: why.clone(), whose, cause }
    }
}

/// Upstream's reason for a failure of it.
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
