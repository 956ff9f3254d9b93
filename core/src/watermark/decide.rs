//! One scale decision for one workload: the combined proposal, within its limits and after the cooldown, with reasons.

use crate::types::Time;

use super::{
    combine::{CombinedProposal, EvaluationContext, MetricEvaluation, MetricInput, ProposalError},
    conditions::{ConditionType, ConditionUpdate, condition_since, from_timestamp},
    cooldown::{Cooldown, CooldownResult, StateSince},
    propose::Convergence,
    rounding::{nearest_multiple_towards, round_up_to_multiple},
    scale_decision::{complete_record, record_metrics},
    scale_rate::{LimitHit, LimitedReplicas},
};
use crate::{
    api::wpa::WatermarkPodAutoscalerStatus,
    coordination::RemovalHold,
    scaling::{Position, Scale, ScaleDecision},
    types::compat::Fix,
};

/// Condition reason for a target with zero replicas.
pub(super) const SCALING_DISABLED: &str = "ScalingDisabled";

/// Why replicas are changed regardless of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForcedReason {
    /// The replicas exceed the maximum.
    AboveMax,
    BelowMin,
    NoPods,
}

impl ForcedReason {
    /// Upstream's message.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::AboveMax => "Current number of replicas above Spec.MaxReplicas",
            Self::BelowMin => "Current number of replicas below Spec.MinReplicas",
            Self::NoPods => "Current number of replicas must be greater than 0",
        }
    }
}

/// A change of replicas, to be applied unless the object is in dry-run mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaChange {
    /// The new replicas. Upstream also "changes" to the current replicas if it never changed any before.
    pub to: i32,
    /// Upstream's message; empty for such a change.
    pub reason: String,
    /// Why the change is forced; `None` if metrics require it.
    pub forced: Option<ForcedReason>,
}

/// A scale decision with its intermediate results.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub scale: Scale,
    pub metrics: Vec<MetricEvaluation>,
    pub proposal: Result<CombinedProposal, ProposalError>,
    /// The proposal within its limits.
    pub limited: Option<LimitedReplicas>,
    pub cooldown: Option<CooldownResult>,
    pub change: Option<ReplicaChange>,
    pub desired: i32,
    pub conditions: Vec<ConditionUpdate>,
    pub record: ScaleDecision,
}

#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    pub context: EvaluationContext<'a>,
    /// Its metrics, with the results of fetching them.
    pub metrics: &'a [MetricInput],
    pub blocked_reason: Option<&'a str>,
    /// Why no replicas are removed, while pods are updated.
    pub removal_hold: Option<RemovalHold>,
    /// The last status written.
    pub status: &'a WatermarkPodAutoscalerStatus,
    /// The last decision about the object, or what its status has of it.
    pub previous: &'a ScaleDecision,
    pub now: Time,
}

impl DecisionInput<'_> {
    pub fn decide(&self) -> Decision {
        let EvaluationContext { rules, scale, .. } = self.context;
        let (evaluations, mut combined) = self.context.combine(self.metrics);
        if let Some(why) = self.blocked_reason {
            combined = Err(ProposalError::Blocked(why.to_owned()));
        }
        let record = record_metrics(&evaluations, &combined, scale, self.previous, self.now);
        let mut decision = Decision {
            scale,
            metrics: evaluations,
            record,
            proposal: combined,
            limited: None,
            cooldown: None,
            change: None,
            desired: scale.spec_replicas,
            conditions: Vec::new(),
        };
        decision.conditions.push(ConditionUpdate::dry_run(rules.dry_run));
        let able = "the WPA controller was able to get the target's current scale";
        decision.set(ConditionType::AbleToScale, true, "SucceededGetScale", able);
        match decision.proposal.clone() {
            Ok(combined) => self.apply_proposal(&combined, &mut decision),
            Err(why) => self.apply_without_proposal(&why, &mut decision),
        }
        complete_record(&mut decision, rules);
        decision
    }

    fn apply_proposal(&self, combined: &CombinedProposal, decision: &mut Decision) {
        let because = match combined.reason.as_str() {
            "" => String::new(),
            reason => format!(" because: {reason}"),
        };
        let found = format!(
            "the WPA was able to successfully calculate a replica count from {}{because}",
            combined.metric_name
        );
        decision.set(ConditionType::ScalingActive, true, "ValidMetricFound", found);
        decision.conditions.push(ConditionUpdate::above_high_watermark(combined.is_above));
        decision.conditions.push(ConditionUpdate::below_low_watermark(combined.is_below));
        decision.conditions.extend(combined.convergence.map(ConditionUpdate::convergence));
        let proposed = combined.replicas.max(0);
        let limited =
            self.limit_replicas(decision.scale.spec_replicas, proposed, combined.ready_pods);
        let is_limited = limited.replicas != proposed;
        let (reason, message) = limited.limit_hit.reason_and_message();
        decision.set(ConditionType::ScalingLimited, is_limited, reason, message);
        let cooldown = self.cooldown(combined, &decision.record);
        let from = decision.scale.spec_replicas;
        self.change_replicas(limited, &cooldown, |to| change_reason(combined, from, to), decision);
        if decision.change.is_some() {
            decision.conditions.push(ConditionUpdate::ready_for_scale());
        }
    }

    /// Applies the cooldown to the limited replicas, and records the change if there is one.
    fn change_replicas(
        &self,
        limited: LimitedReplicas,
        cooldown: &Cooldown,
        why: impl FnOnce(i32) -> String,
        decision: &mut Decision,
    ) {
        let (from, to) = (decision.scale.spec_replicas, limited.replicas);
        decision.limited = Some(limited);
        let result = cooldown.check(from, to);
        decision.conditions.extend(result.remaining.and_then(ConditionUpdate::backoff));
        decision.cooldown = Some(result);
        if let Some(change) = self.forced_change(decision) {
            decision.desired = change.to;
            decision.change = Some(change);
        } else if (from != 0 || self.context.rules.may_be_zero()) && result.hold_reason.is_none() {
            decision.desired = to;
            decision.change = Some(ReplicaChange { to, reason: why(to), forced: None });
        }
    }

    fn limit_replicas(&self, current: i32, proposed: i32, ready: u32) -> LimitedReplicas {
        let rules = self.context.rules;
        let mut limited = rules.limits.apply_limits(current, proposed, ready, self.context.fixes);
        // With scale to zero, the minimum applies only while there is load.
        let may_scale_down = current == 0 || rules.limits.downscale_limit(current) < current;
        if rules.may_be_zero()
            && may_scale_down
            && current <= rules.limits.min.max(1)
            && proposed == 0
        {
            limited = LimitedReplicas { replicas: 0, limit_hit: LimitHit::Unlimited, ..limited };
        }
        if rules.options.modulo_of_result {
            // From zero, round up: a step of one replica could never reach a multiple.
            limited.replicas = if current == 0 {
                round_up_to_multiple(limited.replicas, rules.modulo).min(rules.limits.max)
            } else {
                nearest_multiple_towards(current, limited.replicas, rules.modulo)
            };
        }
        limited
    }

    /// Without a proposal the replicas are not changed, except to bring them within the bounds or to the configured
    /// fallback.
    fn apply_without_proposal(&self, why: &ProposalError, decision: &mut Decision) {
        let reason = match why {
            ProposalError::NoMetrics => "FailedProcessWPA",
            ProposalError::Blocked(_) => "ScalingBlocked",
            ProposalError::Metric { reason, .. } => reason,
        };
        let message = format!("the WPA was unable to compute the replica count: {}", why.cause());
        decision.set(ConditionType::ScalingActive, false, reason, message);
        if let Some(to) = self.fallback_replicas(decision) {
            let Scale { spec_replicas: wanted, status_replicas: current } = decision.scale;
            let limited = self.limit_replicas(wanted, to, u32::try_from(current).unwrap_or(0));
            let cooldown = Cooldown {
                is_stable: true,
                ..self.cooldown(&CombinedProposal::default(), &decision.record)
            };
            let why = format!("No metric is available, scaling to the fallback of {to} replicas");
            self.change_replicas(limited, &cooldown, |_| why, decision);
        } else if self.context.fixes.has(Fix::BoundsHoldWithoutMetrics)
            && let Some(change) = self.forced_change(decision)
        {
            decision.desired = change.to;
            decision.change = Some(change);
        }
    }

    /// The fallback replicas, once metrics have been unavailable for long enough.
    fn fallback_replicas(&self, decision: &Decision) -> Option<i32> {
        let fallback =
            self.context.rules.options.fallback.filter(|_| decision.scale.spec_replicas != 0)?;
        let since = decision.record.unknown_since?;
        (since.later(fallback.after) <= self.now).then_some(fallback.replicas)
    }

    /// The change required regardless of metrics, windows and delays.
    fn forced_change(&self, decision: &mut Decision) -> Option<ReplicaChange> {
        let Scale { spec_replicas: wanted, status_replicas: current } = decision.scale;
        let limits = &self.context.rules.limits;
        let force = |to, forced: ForcedReason| {
            Some(ReplicaChange { to, reason: forced.reason().to_owned(), forced: Some(forced) })
        };
        if wanted == 0 && !self.context.rules.may_be_zero() {
            let message = "scaling is disabled since the replica count of the target is zero";
            decision.set(ConditionType::ScalingActive, false, SCALING_DISABLED, message);
            decision.desired = 0;
            None
        } else if wanted == 0 {
            None
        } else if wanted > limits.max {
            force(limits.max, ForcedReason::AboveMax)
        } else if wanted < limits.min {
            force(limits.min, ForcedReason::BelowMin)
        } else if current == 0 && !self.context.fixes.has(Fix::MissingPodsForceNothing) {
            force(1, ForcedReason::NoPods)
        } else {
            None
        }
    }

    fn cooldown(&self, combined: &CombinedProposal, record: &ScaleDecision) -> Cooldown {
        // Conditions of this pass count already: for a value that is outside for the first time, the delay starts now.
        let since = |holds, condition_type| {
            let before = condition_since(self.status, condition_type);
            if before.holds == holds { before } else { StateSince { holds, at: self.now } }
        };
        let per_metric = |own: Option<Time>| {
            let own = own.filter(|_| self.context.rules.options.delay_per_metric);
            own.map(|at| StateSince { holds: true, at })
        };
        Cooldown {
            last_scale_time: self.status.last_scale_time.as_ref().map(from_timestamp),
            upscale_window: self.context.rules.upscale_window,
            downscale_window: self.context.rules.downscale_window,
            upscale_delay: self.context.rules.upscale_delay,
            downscale_delay: self.context.rules.downscale_delay,
            // One metric that was above for long enough suffices; below, all of them have to be.
            above: per_metric(record.since_at(Position::Above).min())
                .unwrap_or_else(|| since(combined.is_above, ConditionType::AboveHighWatermark)),
            below: per_metric(record.since_at(Position::Below).max())
                .unwrap_or_else(|| since(combined.is_below, ConditionType::BelowLowWatermark)),
            is_stable: combined.is_stable(),
            removal_hold: self.removal_hold,
            now: self.now,
            fixes: self.context.fixes,
        }
    }
}

/// Upstream's message for a change that metrics ask for.
fn change_reason(combined: &CombinedProposal, from: i32, to: i32) -> String {
    let proposed = combined.replicas.max(0);
    if combined.is_stable() && to != from {
        return "Metric within watermarks, attempting to scale to converge towards watermark"
            .to_owned();
    }
    match proposed.cmp(&from) {
        std::cmp::Ordering::Greater => format!("{} above target", combined.metric_name),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    }
}

impl Decision {
    fn set(
        &mut self,
        condition_type: ConditionType,
        holds: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.conditions.push(ConditionUpdate::new(condition_type, holds, reason, message));
    }

    /// Whether no metric requires a change: all values are inside their bands, and no recommendation within a
    /// recommender's bounds is being followed.
    pub fn is_within_bounds(&self) -> bool {
        let is_followed = |row: &MetricEvaluation| {
            let convergence = row.result.as_ref().map(|proposal| proposal.convergence);
            matches!(convergence, Ok(Convergence::Outside(_)))
        };
        self.proposal.as_ref().is_ok_and(CombinedProposal::is_stable)
            && !self.metrics.iter().any(is_followed)
    }
}
