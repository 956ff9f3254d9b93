//! One decision about one workload: what its sources ask for, within limits, past the gate; and why.

use crate::types::Time;

use super::{
    combine::{Combined, Row, Setting, Source, Uncomputable},
    conditions::{Fact, Said, since},
    converge::Convergence,
    gate::{Gate, Hold, Passage, Since},
    memory::Memory,
    restriction::Restriction,
    rules::Rules,
    velocity::{Limited, Normal},
    whole::{towards, up_to_multiple},
};
use crate::{
    api::wpa::WatermarkPodAutoscalerStatus,
    scaling::{Scale, Unknown, Unready},
    types::compat::{Fix, Fixes},
};

/// The reason of a target that is scaled to nothing.
pub(super) const DISABLED: &str = "ScalingDisabled";

/// Why replicas are changed whatever the metrics say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forced {
    /// There are more than the most.
    AboveMax,
    /// There are fewer than the fewest.
    BelowMin,
    /// There is no pod at all.
    NoPods,
}

impl Forced {
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
pub struct Change {
    /// So many there are to be. Upstream also "changes" to what there is, when it never changed anything before.
    pub to: i32,
    /// Why, in a sentence; upstream has none for the latter.
    pub reason: String,
    /// What forces it, if it is not the metrics.
    pub forced: Option<Forced>,
}

/// What was decided, with all that led to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What the target had.
    pub scale: Scale,
    /// What came of each source.
    pub rows: Vec<Row>,
    /// What all of them ask for, or why that is not known.
    pub combined: Result<Combined, Uncomputable>,
    /// The same within its limits.
    pub normal: Option<Normal>,
    /// What the gate says.
    pub passage: Option<Passage>,
    /// What is changed, if anything is.
    pub change: Option<Change>,
    /// What there is to be after this.
    pub desired: i32,
    /// What is to be said of the object, in order.
    pub said: Vec<Said>,
    /// What the next decision is to remember.
    pub memory: Memory,
}

/// What a decision is about.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the object asks for.
    pub rules: &'a Rules,
    /// How its sources are combined.
    pub setting: Setting<'a>,
    /// Its sources, with what came of asking.
    pub sources: &'a [Source],
    /// Why it is not to be followed, if it is not.
    pub blocked: Option<&'a str>,
    /// What was written about it last.
    pub status: &'a WatermarkPodAutoscalerStatus,
    /// What is remembered of it.
    pub memory: &'a Memory,
    /// The time.
    pub now: Time,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

impl Question<'_> {
    /// Decides.
    pub fn decide(&self) -> Decision {
        let scale = self.setting.scale;
        let (rows, mut combined) = self.setting.combine(self.sources);
        if let Some(why) = self.blocked {
            combined = Err(Uncomputable::Blocked(why.to_owned()));
        }
        let memory = self.memory.after(&rows, &combined, self.now);
        let mut decision = Decision {
            scale,
            rows,
            memory,
            combined,
            normal: None,
            passage: None,
            change: None,
            desired: scale.wanted,
            said: Vec::new(),
        };
        decision.say(Said::dry_run(self.rules.dry_run));
        let able = "the WPA controller was able to get the target's current scale";
        decision.say(Said::new(Fact::AbleToScale, true, "SucceededGetScale", able));
        match decision.combined.clone() {
            Ok(combined) => self.follow(&combined, &mut decision),
            Err(why) => self.hold(&why, &mut decision),
        }
        decision
    }

    fn follow(&self, combined: &Combined, decision: &mut Decision) {
        let because = match combined.reason.as_str() {
            "" => String::new(),
            reason => format!(" because: {reason}"),
        };
        let found = format!(
            "the WPA was able to successfully calculate a replica count from {}{because}",
            combined.name
        );
        decision.say(Said::new(Fact::ScalingActive, true, "ValidMetricFound", found));
        decision.say(Said::above(combined.is_above));
        decision.say(Said::below(combined.is_below));
        if let Some(convergence) = combined.convergence {
            decision.say(Said::convergence(convergence));
        }
        let proposed = combined.replicas.max(0);
        let normal = self.normal(decision.scale.wanted, proposed, combined.ready);
        let is_limited = normal.replicas != proposed;
        let (reason, message) = (normal.limited.reason(), normal.limited.message());
        decision.say(Said::new(Fact::ScalingLimited, is_limited, reason, message));
        let gate = self.gate(combined, &decision.memory);
        let from = decision.scale.wanted;
        self.go(normal, &gate, |to| why(combined, from, to), decision);
        if decision.change.is_some() {
            decision.say(Said::ready_for_scale());
        }
    }

    /// Changes replicas, if nothing holds them.
    fn go(
        &self,
        normal: Normal,
        gate: &Gate,
        why: impl FnOnce(i32) -> String,
        decision: &mut Decision,
    ) {
        let (from, to) = (decision.scale.wanted, normal.replicas);
        decision.normal = Some(normal);
        let passage = gate.passage(from, to);
        if let Some(backoff) = passage.left.and_then(|left| left.backoff()) {
            decision.say(Said::backoff(backoff));
        }
        decision.passage = Some(passage);
        if let Some(change) = self.forced(decision) {
            decision.desired = change.to;
            decision.change = Some(change);
        } else if (from != 0 || self.rules.may_be_zero()) && passage.held.is_none() {
            decision.desired = to;
            decision.change = Some(Change { to, reason: why(to), forced: None });
        }
    }

    /// A proposal within its limits.
    fn normal(&self, wanted: i32, proposed: i32, ready: u32) -> Normal {
        let rules = self.rules;
        let mut normal = rules.limits.normalise(wanted, proposed, ready, self.fixes);
        // The fewest are for when there is something to do.
        let may_go = wanted == 0 || rules.limits.down_to(wanted) < wanted;
        if rules.may_be_zero() && may_go && wanted <= rules.limits.min.max(1) && proposed == 0 {
            normal = Normal { replicas: 0, limited: Limited::Not, ..normal };
        }
        if rules.options.whole_result {
            // Up from nothing there is no multiple that a step of one replica could reach.
            normal.replicas = if wanted == 0 {
                up_to_multiple(normal.replicas, rules.modulo).min(rules.limits.max)
            } else {
                towards(wanted, normal.replicas, rules.modulo)
            };
        }
        normal
    }

    /// Without a number of replicas none are changed, except to bring them inside the bounds, or where somebody said what
    /// is to be done then.
    fn hold(&self, why: &Uncomputable, decision: &mut Decision) {
        let reason = match why {
            Uncomputable::NoSource => "FailedProcessWPA",
            Uncomputable::Blocked(_) => "ScalingBlocked",
            Uncomputable::Source { reason, .. } => reason,
        };
        let message = format!("the WPA was unable to compute the replica count: {}", why.cause());
        decision.say(Said::new(Fact::ScalingActive, false, reason, message));
        if let Some(to) = self.fallback(decision) {
            let Scale { wanted, current } = decision.scale;
            let normal = self.normal(wanted, to, u32::try_from(current).unwrap_or(0));
            let gate =
                Gate { is_stable: true, ..self.gate(&Combined::default(), &decision.memory) };
            let why = format!("Metrics say nothing, and the fallback is {to} replicas");
            self.go(normal, &gate, |_| why, decision);
        } else if self.fixes.has(Fix::BoundsHoldWithoutMetrics)
            && let Some(change) = self.forced(decision)
        {
            decision.desired = change.to;
            decision.change = Some(change);
        }
    }

    /// Where to go when metrics have said nothing for long enough.
    fn fallback(&self, decision: &Decision) -> Option<i32> {
        let fallback = self.rules.options.fallback.filter(|_| decision.scale.wanted != 0)?;
        let since = decision.memory.unknown?;
        (since.later(fallback.after) <= self.now).then_some(fallback.replicas)
    }

    /// What is changed whatever the metrics, windows and delays say.
    fn forced(&self, decision: &mut Decision) -> Option<Change> {
        let Scale { wanted, current } = decision.scale;
        let limits = &self.rules.limits;
        let force = |to, forced: Forced| {
            Some(Change { to, reason: forced.reason().to_owned(), forced: Some(forced) })
        };
        if wanted == 0 && !self.rules.may_be_zero() {
            let message = "scaling is disabled since the replica count of the target is zero";
            decision.say(Said::new(Fact::ScalingActive, false, DISABLED, message));
            decision.desired = 0;
            None
        } else if wanted == 0 {
            None
        } else if wanted > limits.max {
            force(limits.max, Forced::AboveMax)
        } else if wanted < limits.min {
            force(limits.min, Forced::BelowMin)
        } else if current == 0 && !self.fixes.has(Fix::MissingPodsForceNothing) {
            force(1, Forced::NoPods)
        } else {
            None
        }
    }

    fn gate(&self, combined: &Combined, memory: &Memory) -> Gate {
        // What is said in this pass counts already: a value that is outside for the first time begins to wait now.
        let now = |holds, fact| {
            let before = since(self.status, fact);
            if before.holds == holds { before } else { Since { holds, at: self.now } }
        };
        let each = |own: Option<Since>| own.filter(|_| self.rules.options.each_delay);
        Gate {
            last: self.status.last_scale_time.as_ref().map(super::conditions::time),
            up_window: self.rules.up_window,
            down_window: self.rules.down_window,
            up_delay: self.rules.up_delay,
            down_delay: self.rules.down_delay,
            above: each(memory.longest_above())
                .unwrap_or_else(|| now(combined.is_above, Fact::AboveHighWatermark)),
            below: each(memory.all_below())
                .unwrap_or_else(|| now(combined.is_below, Fact::BelowLowWatermark)),
            is_stable: combined.is_stable(),
            now: self.now,
            fixes: self.fixes,
        }
    }
}

/// Upstream's sentence for a change that metrics ask for.
fn why(combined: &Combined, from: i32, to: i32) -> String {
    let proposed = combined.replicas.max(0);
    if combined.is_stable() && to != from {
        return "Metric within watermarks, attempting to scale to converge towards watermark"
            .to_owned();
    }
    match proposed.cmp(&from) {
        std::cmp::Ordering::Greater => format!("{} above target", combined.name),
        std::cmp::Ordering::Less => "All metrics below target".to_owned(),
        std::cmp::Ordering::Equal => String::new(),
    }
}

impl Decision {
    fn say(&mut self, said: Said) {
        self.said.push(said);
    }

    /// Whether nothing asks for other replicas: no value lies outside of its band, and no advice that lies within the
    /// bounds of a recommender is being followed.
    pub fn is_within_bounds(&self) -> bool {
        let is_followed = |row: &Row| {
            let asked = row.outcome.as_ref().ok();
            asked.is_some_and(|it| matches!(it.proposal.convergence, Convergence::Outside(_)))
        };
        self.combined.as_ref().is_ok_and(Combined::is_stable) && !self.rows.iter().any(is_followed)
    }

    /// Why the workload has not the replicas that its metrics ask for.
    pub fn restrictions(&self, rules: &Rules) -> Vec<Restriction> {
        let mut found = Vec::new();
        if self.scale.wanted == 0 && !rules.may_be_zero() {
            found.push(Restriction::Disabled);
        }
        match &self.combined {
            Ok(_) if self.is_within_bounds() => found.push(Restriction::WithinBounds),
            Ok(_) | Err(Uncomputable::NoSource) => {}
            Err(Uncomputable::Blocked(_)) => found.push(Restriction::Lifecycle),
            Err(Uncomputable::Source { why, .. }) => found.push(match why {
                Unknown::Unready(Unready::NoneReady { .. } | Unready::TooFewReady { .. }) => {
                    Restriction::Availability
                }
                _ => Restriction::MetricUnknown,
            }),
        }
        if let Some(normal) = self.normal {
            if normal.upscale_capping == Some(true) {
                found.push(Restriction::UpscaleCapping);
            }
            if normal.downscale_capping == Some(true) {
                found.push(Restriction::DownscaleCapping);
            }
            // A proposal that is too fast may end at a bound all the same.
            let proposed = self.combined.as_ref().map_or(normal.replicas, |it| it.replicas.max(0));
            let limits = &rules.limits;
            if normal.limited == Limited::BelowOne
                || (normal.replicas == limits.min && proposed < limits.min)
            {
                found.push(Restriction::Min);
            }
            if normal.replicas == limits.max && proposed > limits.max {
                found.push(Restriction::Max);
            }
        }
        match self.passage.and_then(|passage| passage.held) {
            Some(Hold::Window { .. }) => found.push(Restriction::ForbiddenWindow),
            Some(Hold::Delay { .. }) => found.push(Restriction::Delay),
            Some(Hold::Same) | None => {}
        }
        if rules.dry_run && self.change.is_some() {
            found.push(Restriction::DryRun);
        }
        found
    }
}
