//! One decision about one workload: what its sources ask for, within limits, past the gate; and why.

use crate::types::Time;

use super::{
    combine::{CombinedProposal, EvaluationContext, MetricEvaluation, MetricInput, ProposalError},
    conditions::{ConditionType, ConditionUpdate, condition_since},
    converge::Convergence,
    cooldown::{Cooldown, CooldownResult, HoldReason, StateSince},
    metric_history::MetricHistory,
    restriction::Restriction,
    rounding::{nearest_multiple_towards, round_up_to_multiple},
    scale_rate::{LimitHit, LimitedReplicas},
    spec::EffectiveSpec,
};
use crate::{
    api::wpa::WatermarkPodAutoscalerStatus,
    scaling::{MetricError, PodsNotReady, Scale},
    types::compat::{Fix, Fixes},
};

/// The reason of a target that is scaled to nothing.
pub(super) const SCALING_DISABLED: &str = "ScalingDisabled";

/// Why replicas are changed whatever the metrics say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForcedReason {
    /// There are more than the most.
    AboveMax,
    /// There are fewer than the fewest.
    BelowMin,
    /// There is no pod at all.
    NoPods,
}

impl ForcedReason {
    /// Upstream's sentence for it.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::AboveMax => "Current number of replicas above Spec.MaxReplicas",
            Self::BelowMin => "Current number of replicas below Spec.MinReplicas",
            Self::NoPods => "Current number of replicas must be greater than 0",
        }
    }
}

/// A change of replicas, to be made unless nothing is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaChange {
    /// So many there are to be. Upstream also "changes" to what there is, when it never changed anything before.
    pub to: i32,
    /// Why, in a sentence; upstream has none for the latter.
    pub reason: String,
    /// What forces it, if it is not the metrics.
    pub forced: Option<ForcedReason>,
}

/// What was decided, with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What the target had.
    pub scale: Scale,
    /// What came of each source.
    pub metrics: Vec<MetricEvaluation>,
    /// What all of them ask for, or why that is not known.
    pub proposal: Result<CombinedProposal, ProposalError>,
    /// The same within its limits.
    pub limited: Option<LimitedReplicas>,
    /// What the gate says.
    pub cooldown: Option<CooldownResult>,
    /// What is changed, if anything is.
    pub change: Option<ReplicaChange>,
    /// What there is to be after this.
    pub desired: i32,
    /// What is to be said of the object, in order.
    pub conditions: Vec<ConditionUpdate>,
    /// What the next decision is to remember.
    pub history: MetricHistory,
}

/// What a decision is about.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// What the object asks for.
    pub rules: &'a EffectiveSpec,
    /// How its sources are combined.
    pub context: EvaluationContext<'a>,
    /// Its sources, with what came of asking.
    pub metrics: &'a [MetricInput],
    /// Why it is not to be followed, if it is not.
    pub blocked_reason: Option<&'a str>,
    /// What was written about it last.
    pub status: &'a WatermarkPodAutoscalerStatus,
    /// What is remembered of it.
    pub history: &'a MetricHistory,
    /// The time.
    pub now: Time,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

impl DecisionInput<'_> {
    /// Decides.
    pub fn decide(&self) -> Decision {
        let scale = self.context.scale;
        let (rows, mut combined) = self.context.combine(self.metrics);
        if let Some(why) = self.blocked_reason {
            combined = Err(ProposalError::Blocked(why.to_owned()));
        }
        let memory = self.history.next_after(&rows, &combined, self.now);
        let mut decision = Decision {
            scale,
            metrics: rows,
            history: memory,
            proposal: combined,
            limited: None,
            cooldown: None,
            change: None,
            desired: scale.spec_replicas,
            conditions: Vec::new(),
        };
        decision.push_condition(ConditionUpdate::dry_run(self.rules.dry_run));
        let able = "the WPA controller was able to get the target's current scale";
        decision.push_condition(ConditionUpdate::new(
            ConditionType::AbleToScale,
            true,
            "SucceededGetScale",
            able,
        ));
        match decision.proposal.clone() {
            Ok(combined) => self.apply_proposal(&combined, &mut decision),
            Err(why) => self.apply_without_proposal(&why, &mut decision),
        }
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
        decision.push_condition(ConditionUpdate::new(
            ConditionType::ScalingActive,
            true,
            "ValidMetricFound",
            found,
        ));
        decision.push_condition(ConditionUpdate::above_high_watermark(combined.is_above));
        decision.push_condition(ConditionUpdate::below_low_watermark(combined.is_below));
        if let Some(convergence) = combined.convergence {
            decision.push_condition(ConditionUpdate::convergence(convergence));
        }
        let proposed = combined.replicas.max(0);
        let normal =
            self.limit_replicas(decision.scale.spec_replicas, proposed, combined.ready_pods);
        let is_limited = normal.replicas != proposed;
        let (reason, message) = (normal.limit_hit.reason(), normal.limit_hit.message());
        decision.push_condition(ConditionUpdate::new(
            ConditionType::ScalingLimited,
            is_limited,
            reason,
            message,
        ));
        let gate = self.cooldown(combined, &decision.history);
        let from = decision.scale.spec_replicas;
        self.change_replicas(normal, &gate, |to| change_reason(combined, from, to), decision);
        if decision.change.is_some() {
            decision.push_condition(ConditionUpdate::ready_for_scale());
        }
    }

    /// Changes replicas, if nothing holds them.
    fn change_replicas(
        &self,
        normal: LimitedReplicas,
        gate: &Cooldown,
        why: impl FnOnce(i32) -> String,
        decision: &mut Decision,
    ) {
        let (from, to) = (decision.scale.spec_replicas, normal.replicas);
        decision.limited = Some(normal);
        let passage = gate.check(from, to);
        if let Some(backoff) = passage.remaining.and_then(|left| left.backoff()) {
            decision.push_condition(ConditionUpdate::backoff(backoff));
        }
        decision.cooldown = Some(passage);
        if let Some(change) = self.forced_change(decision) {
            decision.desired = change.to;
            decision.change = Some(change);
        } else if (from != 0 || self.rules.may_be_zero()) && passage.hold_reason.is_none() {
            decision.desired = to;
            decision.change = Some(ReplicaChange { to, reason: why(to), forced: None });
        }
    }

    /// A proposal within its limits.
    fn limit_replicas(&self, wanted: i32, proposed: i32, ready: u32) -> LimitedReplicas {
        let rules = self.rules;
        let mut normal = rules.limits.apply_limits(wanted, proposed, ready, self.fixes);
        // The fewest are for when there is something to do.
        let may_go = wanted == 0 || rules.limits.downscale_limit(wanted) < wanted;
        if rules.may_be_zero() && may_go && wanted <= rules.limits.min.max(1) && proposed == 0 {
            normal = LimitedReplicas { replicas: 0, limit_hit: LimitHit::Unlimited, ..normal };
        }
        if rules.options.modulo_of_result {
            // Up from nothing there is no multiple that a step of one replica could reach.
            normal.replicas = if wanted == 0 {
                round_up_to_multiple(normal.replicas, rules.modulo).min(rules.limits.max)
            } else {
                nearest_multiple_towards(wanted, normal.replicas, rules.modulo)
            };
        }
        normal
    }

    /// Without a number of replicas none are changed, except to bring them inside the bounds, or where somebody said what
    /// is to be done then.
    fn apply_without_proposal(&self, why: &ProposalError, decision: &mut Decision) {
        let reason = match why {
            ProposalError::NoMetrics => "FailedProcessWPA",
            ProposalError::Blocked(_) => "ScalingBlocked",
            ProposalError::Metric { reason, .. } => reason,
        };
        let message = format!("the WPA was unable to compute the replica count: {}", why.cause());
        decision.push_condition(ConditionUpdate::new(
            ConditionType::ScalingActive,
            false,
            reason,
            message,
        ));
        if let Some(to) = self.fallback_replicas(decision) {
            let Scale { spec_replicas: wanted, status_replicas: current } = decision.scale;
            let normal = self.limit_replicas(wanted, to, u32::try_from(current).unwrap_or(0));
            let gate = Cooldown {
                is_stable: true,
                ..self.cooldown(&CombinedProposal::default(), &decision.history)
            };
            let why = format!("Metrics say nothing, and the fallback is {to} replicas");
            self.change_replicas(normal, &gate, |_| why, decision);
        } else if self.fixes.has(Fix::BoundsHoldWithoutMetrics)
            && let Some(change) = self.forced_change(decision)
        {
            decision.desired = change.to;
            decision.change = Some(change);
        }
    }

    /// Where to go when metrics have said nothing for long enough.
    fn fallback_replicas(&self, decision: &Decision) -> Option<i32> {
        let fallback = self.rules.options.fallback.filter(|_| decision.scale.spec_replicas != 0)?;
        let since = decision.history.unknown_since?;
        (since.later(fallback.after) <= self.now).then_some(fallback.replicas)
    }

    /// What is changed whatever the metrics, windows and delays say.
    fn forced_change(&self, decision: &mut Decision) -> Option<ReplicaChange> {
        let Scale { spec_replicas: wanted, status_replicas: current } = decision.scale;
        let limits = &self.rules.limits;
        let force = |to, forced: ForcedReason| {
            Some(ReplicaChange { to, reason: forced.reason().to_owned(), forced: Some(forced) })
        };
        if wanted == 0 && !self.rules.may_be_zero() {
            let message = "scaling is disabled since the replica count of the target is zero";
            decision.push_condition(ConditionUpdate::new(
                ConditionType::ScalingActive,
                false,
                SCALING_DISABLED,
                message,
            ));
            decision.desired = 0;
            None
        } else if wanted == 0 {
            None
        } else if wanted > limits.max {
            force(limits.max, ForcedReason::AboveMax)
        } else if wanted < limits.min {
            force(limits.min, ForcedReason::BelowMin)
        } else if current == 0 && !self.fixes.has(Fix::MissingPodsForceNothing) {
            force(1, ForcedReason::NoPods)
        } else {
            None
        }
    }

    fn cooldown(&self, combined: &CombinedProposal, memory: &MetricHistory) -> Cooldown {
        // What is said in this pass counts already: a value that is outside for the first time begins to wait now.
        let now = |holds, fact| {
            let before = condition_since(self.status, fact);
            if before.holds == holds { before } else { StateSince { holds, at: self.now } }
        };
        let each = |own: Option<StateSince>| own.filter(|_| self.rules.options.delay_per_metric);
        Cooldown {
            last_scale_time: self
                .status
                .last_scale_time
                .as_ref()
                .map(super::conditions::from_timestamp),
            upscale_window: self.rules.upscale_window,
            downscale_window: self.rules.downscale_window,
            upscale_delay: self.rules.upscale_delay,
            downscale_delay: self.rules.downscale_delay,
            above: each(memory.longest_above())
                .unwrap_or_else(|| now(combined.is_above, ConditionType::AboveHighWatermark)),
            below: each(memory.all_below())
                .unwrap_or_else(|| now(combined.is_below, ConditionType::BelowLowWatermark)),
            is_stable: combined.is_stable(),
            now: self.now,
            fixes: self.fixes,
        }
    }
}

/// Upstream's sentence for a change that metrics ask for.
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
    fn push_condition(&mut self, said: ConditionUpdate) {
        self.conditions.push(said);
    }

    /// Whether nothing asks for other replicas: no value lies outside of its band, and no advice that lies within the
    /// bounds of a recommender is being followed.
    pub fn is_within_bounds(&self) -> bool {
        let is_followed = |row: &MetricEvaluation| {
            let asked = row.result.as_ref().ok();
            asked.is_some_and(|it| matches!(it.proposal.convergence, Convergence::Outside(_)))
        };
        self.proposal.as_ref().is_ok_and(CombinedProposal::is_stable)
            && !self.metrics.iter().any(is_followed)
    }

    /// Why the workload has not the replicas that its metrics ask for.
    pub fn restrictions(&self, rules: &EffectiveSpec) -> Vec<Restriction> {
        let mut found = Vec::new();
        if self.scale.spec_replicas == 0 && !rules.may_be_zero() {
            found.push(Restriction::Disabled);
        }
        match &self.proposal {
            Ok(_) if self.is_within_bounds() => found.push(Restriction::WithinBounds),
            Ok(_) | Err(ProposalError::NoMetrics) => {}
            Err(ProposalError::Blocked(_)) => found.push(Restriction::Lifecycle),
            Err(ProposalError::Metric { why, .. }) => found.push(match why {
                MetricError::PodsNotReady(
                    PodsNotReady::NoneReady { .. } | PodsNotReady::TooFewReady { .. },
                ) => Restriction::Availability,
                _ => Restriction::MetricUnknown,
            }),
        }
        if let Some(normal) = self.limited {
            if normal.upscale_capping == Some(true) {
                found.push(Restriction::UpscaleCapping);
            }
            if normal.downscale_capping == Some(true) {
                found.push(Restriction::DownscaleCapping);
            }
            // A proposal that is too fast may end at a bound all the same.
            let proposed = self.proposal.as_ref().map_or(normal.replicas, |it| it.replicas.max(0));
            let limits = &rules.limits;
            if normal.limit_hit == LimitHit::BelowOne
                || (normal.replicas == limits.min && proposed < limits.min)
            {
                found.push(Restriction::Min);
            }
            if normal.replicas == limits.max && proposed > limits.max {
                found.push(Restriction::Max);
            }
        }
        match self.cooldown.and_then(|passage| passage.hold_reason) {
            Some(HoldReason::ForbiddenWindow { .. }) => found.push(Restriction::ForbiddenWindow),
            Some(HoldReason::Delay { .. }) => found.push(Restriction::Delay),
            Some(HoldReason::NoChange) | None => {}
        }
        if rules.dry_run && self.change.is_some() {
            found.push(Restriction::DryRun);
        }
        found
    }
}
