//! What metrics show of an object: taken from its last decision, kept until the next one.

use plimsoll_core::types::Time;

use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::MetricError,
    types::compat::{Fix, Fixes},
    watermark::{
        Decision, EffectiveSpec, ProposalError, Restriction,
        conditions::{ConditionType, condition_since, from_timestamp},
    },
};

/// One source, as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExportedSource {
    /// Its name, as labels have it.
    pub label: String,
    /// What was compared with the marks, in thousandths.
    pub value: Option<f64>,
    /// Its marks, in thousandths.
    pub watermarks: Option<(i64, i64)>,
    /// What follows from it.
    pub proposal: Option<i32>,
}

/// A monitor that has to be well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportedMonitor {
    /// Its name.
    pub name: String,
    /// Whether it keeps replicas where they are.
    pub blocks: bool,
}

/// What is shown of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ExportedState {
    /// Kind and name of the target.
    pub target: (String, String),
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// The bounds.
    pub bounds: (i32, i32),
    /// How far beyond a mark is still inside, in thousandths of the mark.
    pub tolerance: i64,
    /// Replicas that there are to be.
    pub desired_replicas: Option<i32>,
    /// What conditions say.
    pub scaling_active: bool,
    /// Of those that have a gauge.
    pub conditions: Vec<(&'static str, bool)>,
    /// Upstream's three reasons.
    pub within_bounds: Option<bool>,
    /// More would be added at once than may be.
    pub upscale_capping: Option<bool>,
    /// More would be removed at once than may be.
    pub downscale_capping: Option<bool>,
    /// Seconds until replicas may be added and removed.
    pub cooldown_seconds: Option<(f64, f64)>,
    /// Replicas added and removed.
    pub replicas_moved: Option<(u64, u64)>,
    /// Labels of the object that are shown.
    pub labels: Vec<(String, String)>,
    /// What has to be well.
    pub monitor: Option<ExportedMonitor>,
    /// Its sources.
    pub sources: Vec<ExportedSource>,
    /// Why it has not the replicas that its metrics ask for.
    pub restrictions: Vec<Restriction>,
    /// When it was looked at.
    pub reconciled_at: Time,
    /// When one of its sources told a value last.
    pub last_value_at: Option<Time>,
}

/// The longest value of a label about a target, in bytes: no kind and no name is longer. An object is shown before it is
/// known whether it can be followed.
const MAX_LABEL_BYTES: usize = 253;

fn truncated(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_LABEL_BYTES)].to_owned()
}

impl ExportedState {
    /// What an object asks for, with what was shown before of all else.
    pub fn from_spec(spec: &WatermarkPodAutoscalerSpec, before: Option<&Self>, now: Time) -> Self {
        let target = &spec.scale_target_ref;
        let rules = EffectiveSpec::from_spec(spec);
        Self {
            target: (truncated(&target.kind), truncated(&target.name)),
            dry_run: spec.dry_run,
            bounds: (rules.limits.min, rules.limits.max),
            tolerance: rules.tolerance,
            reconciled_at: now,
            restrictions: Vec::new(),
            sources: Vec::new(),
            ..before.cloned().unwrap_or_default()
        }
    }

    /// Nobody follows it: what held of the last decision holds no more.
    pub fn clear_limits(&mut self) {
        self.within_bounds = None;
        self.upscale_capping = None;
        self.downscale_capping = None;
    }

    /// The same, and nobody looks at it again by himself, so that nothing would run down.
    pub fn clear_decision(&mut self) {
        self.clear_limits();
        self.cooldown_seconds = None;
        self.monitor = None;
    }

    /// What is left by the last change, where nothing was decided yet: for whoever takes over while nothing can be.
    pub fn start_cooldown(
        &mut self,
        filled: &WatermarkPodAutoscalerSpec,
        status: &WatermarkPodAutoscalerStatus,
    ) {
        if let (None, Some(last)) = (self.cooldown_seconds, &status.last_scale_time) {
            let rules = EffectiveSpec::from_spec(filled);
            let left = |window| {
                from_timestamp(last).later(window).nanos_since(self.reconciled_at).max(0) as f64
                    / 1e9
            };
            self.cooldown_seconds =
                Some((left(rules.upscale_window), left(rules.downscale_window)));
        }
    }

    /// The time that was left runs down, whether anything can be decided or not.
    pub fn advance_cooldown(&mut self, since: Time) {
        let gone = self.reconciled_at.nanos_since(since) as f64 / 1e9;
        let left = |seconds: f64| (seconds - gone).max(0.0);
        self.cooldown_seconds = self.cooldown_seconds.map(|(up, down)| (left(up), left(down)));
    }

    /// What its conditions say by now.
    pub fn set_conditions(&mut self, status: &WatermarkPodAutoscalerStatus) {
        let said = |fact: ConditionType| {
            let is_there = status.conditions.iter().any(|one| one.kind == fact.name());
            is_there.then(|| condition_since(status, fact).holds)
        };
        self.scaling_active = said(ConditionType::ScalingActive) == Some(true);
        let shown =
            ConditionType::ALL.into_iter().filter_map(|fact| Some((fact.label()?, said(fact)?)));
        self.conditions = shown.collect();
    }

    /// What was decided.
    pub fn set_decision(&mut self, decision: &Decision, rules: &EffectiveSpec, fixes: Fixes) {
        self.restrictions = decision.restrictions(rules);
        if decision.metrics.iter().any(|row| row.result.is_ok()) {
            self.last_value_at = Some(self.reconciled_at);
        }
        self.sources = decision
            .metrics
            .iter()
            .map(|row| {
                let asked = row.result.as_ref().ok();
                ExportedSource {
                    label: row.label.clone(),
                    value: asked
                        .filter(|asked| !asked.is_ignored_zero)
                        .map(|asked| asked.proposal.value),
                    watermarks: row.band.map(|band| (band.low, band.high)),
                    proposal: asked.map(|asked| asked.proposal.replicas),
                }
            })
            .collect();
        match &decision.proposal {
            Ok(_) => {
                let is_shown = fixes.has(Fix::CappingIsShownRight);
                self.within_bounds = Some(is_shown && decision.is_within_bounds());
                if let Some(normal) = decision.limited {
                    self.upscale_capping = normal.upscale_capping.or(self.upscale_capping);
                    self.downscale_capping = normal.downscale_capping.or(self.downscale_capping);
                }
            }
            // Nobody knows whether it is held back where nothing is known. Pods that are not ready say nothing of that.
            Err(ProposalError::Metric { why: MetricError::PodsNotReady(_), .. }) => {}
            Err(_) => {
                self.within_bounds = None;
                self.upscale_capping = None;
                self.downscale_capping = None;
            }
        }
        if let Some(left) = decision.cooldown.and_then(|passage| passage.remaining) {
            self.cooldown_seconds = Some((left.up, left.down));
        }
        if decision.proposal.is_ok() || decision.change.is_some() {
            self.desired_replicas = Some(decision.desired);
        }
    }
}
