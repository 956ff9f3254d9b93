//! The record of one pass: what was decided, and why, as data.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use serde::Serialize;

use super::{
    bounds::Limited,
    conditions::{ABLE_TO_SCALE, Condition, Conditions, SCALED_TO_ZERO},
    evaluation::Evaluation,
    hpa_state::HpaState,
    labels::{Action, Failure},
    spec::Behavior,
    stabilization::Stabilization,
};
use crate::types::Time;

/// Which rule a pass goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// The scale cannot be read.
    NoScale,
    /// The target has no replicas, and this object did not take them away.
    Disabled,
    /// More replicas than allowed: down to the maximum, whatever metrics say.
    AboveMax,
    /// Fewer replicas than allowed: up to the minimum, whatever metrics say.
    BelowMin,
    /// Metrics decide.
    Metrics,
}

/// What keeps replicas from being what metrics ask for. A closed set: the values of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Restriction {
    /// The ratio is too close to 1.
    WithinTolerance,
    /// Missing or unready pods, filled in, turn it.
    Padding,
    /// A lower recommendation of the window holds more replicas back.
    StabilizedUp,
    /// A higher recommendation of the window holds fewer replicas back.
    StabilizedDown,
    /// Replicas are added no faster.
    ScaleUpLimit,
    /// Replicas are removed no faster.
    ScaleDownLimit,
    /// `minReplicas`
    Min,
    /// `maxReplicas`
    Max,
    /// No metric has a proposal.
    MetricUnknown,
    /// A metric without a proposal blocks fewer replicas.
    PartialMetrics,
    /// The scale cannot be read.
    NoScale,
    /// The scale's selector is missing or invalid.
    InvalidSelector,
    /// Another object selects the same pods.
    AmbiguousSelector,
    /// The target has no replicas, and this object did not take them away.
    Disabled,
}

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Not as it should be.
    Warning,
}

/// An event to emit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its type.
    pub kind: EventType,
    /// Its reason.
    pub reason: &'static str,
    /// Its message.
    pub message: String,
    /// When upstream emits it.
    pub stage: EventStage,
}

/// When in a pass an event is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventStage {
    /// As soon as the target was looked at.
    Target,
    /// Right after this metric was fetched.
    Metric(usize),
    /// After the scale was written.
    Scale,
    /// After the status was written.
    AfterStatus,
}

/// What was decided in one pass. If [`Self::write`] says so, `/scale` is to be updated, and the outcome to be recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When.
    pub at: Time,
    /// By which rule.
    pub zone: Zone,
    /// `scale.spec.replicas`; `None` if the scale cannot be read.
    pub current: Option<i32>,
    /// The least and the most replicas.
    pub bounds: (i32, i32),
    /// What each metric proposes; empty unless metrics decide.
    pub evaluations: Vec<Evaluation>,
    /// Which of them decides.
    pub winner: Option<usize>,
    /// What the windows made of it.
    pub stabilization: Option<Stabilization>,
    /// What bounds and rates made of that.
    pub limited: Option<Limited>,
    /// What keeps replicas from being what metrics ask for.
    pub restrictions: Vec<Restriction>,
    /// How many replicas there are to be; `None` if nothing was decided.
    pub desired: Option<i32>,
    /// What `/scale` is to be set to.
    pub write: Option<i32>,
    /// Why, as the event says it; may be empty.
    pub rescale_reason: String,
    /// What is wrong, though the pass may have scaled.
    pub error: Option<String>,
    /// Events, in order.
    pub events: Vec<Event>,
    /// The status to write, if it differs; of a decision with [`Self::write`] it is complete when the outcome is recorded.
    pub status: HorizontalPodAutoscalerStatus,
    /// What to remember.
    pub memory: HpaState,
    /// What the pass did.
    pub action: Action,
    /// Who is to blame for a failure.
    pub failure: Failure,
    #[serde(skip)]
    pub(super) conditions: Conditions,
    #[serde(skip)]
    pub(super) behavior: Option<Behavior>,
    /// What becomes of the condition `ScaledToZero` when the scale was written; `None` removes it.
    #[serde(skip)]
    pub(super) scaled_to_zero: Option<bool>,
}

impl Decision {
    pub(super) fn set_condition(&mut self, condition: Condition) {
        self.conditions.set(condition, self.at);
    }

    pub(super) fn emit(
        &mut self,
        kind: EventType,
        reason: &'static str,
        message: String,
        stage: EventStage,
    ) {
        self.events.push(Event { kind, reason, message, stage });
    }

    pub(super) fn restrict(&mut self, restriction: Restriction) {
        if !self.restrictions.contains(&restriction) {
            self.restrictions.push(restriction);
        }
    }

    /// Takes conditions over into the status.
    pub(super) fn show_conditions(&mut self) {
        let conditions = &self.conditions.0;
        self.status.conditions = (!conditions.is_empty()).then(|| conditions.clone());
    }

    /// Fills the status; what is not decided keeps its number of replicas.
    pub(super) fn fill_status(&mut self, desired: Option<i32>, is_scaled: bool) {
        let metrics = self.evaluations.iter().map(|one| one.status.clone()).collect::<Vec<_>>();
        self.status.observed_generation = None;
        self.status.current_replicas = self.current;
        self.status.desired_replicas = desired.unwrap_or(self.status.desired_replicas);
        self.status.current_metrics = (!metrics.is_empty()).then_some(metrics);
        if is_scaled {
            self.status.last_scale_time = Some(ApiTime(self.at.into()));
        }
        self.show_conditions();
    }

    /// Completes the decision with what became of the update of `/scale`.
    pub fn record_write(&mut self, outcome: Result<(), &str>, now: Time) {
        let (Some(desired), Some(current)) = (self.write, self.current) else { return };
        self.at = now;
        let reason = &self.rescale_reason;
        if let Err(error) = outcome {
            let message = format!("New size: {desired}; reason: {reason}; error: {error}");
            self.emit(EventType::Warning, "FailedRescale", message, EventStage::Scale);
            let message =
                format!("the HPA controller was unable to update the target scale: {error}");
            self.set_condition(Condition::new(ABLE_TO_SCALE, false, "FailedUpdateScale", message));
            self.desired = None;
            self.error = Some(format!("failed to rescale: {error}"));
            self.failure = Failure::Internal;
            self.fill_status(None, false);
            return;
        }
        let message =
            format!("the HPA controller was able to update the target scale to {desired}");
        let event = format!("New size: {desired}; reason: {reason}");
        self.set_condition(Condition::new(ABLE_TO_SCALE, true, "SucceededRescale", message));
        self.emit(EventType::Normal, "SuccessfulRescale", event, EventStage::Scale);
        if let Some(behavior) = &self.behavior {
            self.memory.scaled(current, desired, behavior, now);
        }
        match self.scaled_to_zero {
            None => self.conditions.remove(SCALED_TO_ZERO),
            Some(is_zero) => {
                let (reason, message) = if is_zero {
                    ("ScaledToZero", "the HPA controller scaled the workload to zero")
                } else {
                    ("NotScaledToZero", "the HPA controller did not scale the workload to zero")
                };
                self.set_condition(Condition::new(SCALED_TO_ZERO, is_zero, reason, message));
            }
        }
        self.action = Action::between(current, desired);
        self.fill_status(Some(desired), true);
    }
}
