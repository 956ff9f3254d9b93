//! The decision of one pass, with its reasons as data.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as ApiTime;
use serde::Serialize;

use super::{
    bounds::Limited,
    conditions::{ABLE_TO_SCALE, Condition, Conditions, SCALED_TO_ZERO},
    evaluation::Evaluation,
    hpa_state::HpaState,
    labels::{Action, Failure},
    pause::PausedDirection,
    spec::Behavior,
    stabilization::Stabilization,
};
use crate::{scaling::Restriction, types::Time};

/// The rule that a pass follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Zone {
    /// The scale cannot be read.
    NoScale,
    /// The target has zero replicas, and this object did not scale it there.
    Disabled,
    /// The replicas exceed the maximum: scale down to it regardless of metrics.
    AboveMax,
    /// The replicas are below the minimum: scale up to it regardless of metrics.
    BelowMin,
    /// Replicas are computed from metrics.
    Metrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum EventType {
    Normal,
    Warning,
}

/// An event to emit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    pub kind: EventType,
    pub reason: &'static str,
    pub message: String,
    /// When upstream emits the event.
    pub stage: EventStage,
}

/// When in a pass an event is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventStage {
    /// After the target was read.
    Target,
    /// After this metric was fetched.
    Metric(usize),
    /// After the scale was updated.
    Scale,
    /// After the status was updated.
    AfterStatus,
}

/// The decision of one pass. If [`Self::write`] is set, update `/scale` and call [`Self::record_write`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// When the pass ran.
    pub at: Time,
    /// The rule that the pass followed.
    pub zone: Zone,
    /// `scale.spec.replicas`; `None` if the scale cannot be read.
    pub current: Option<i32>,
    /// The minimum and maximum replicas.
    pub bounds: (i32, i32),
    /// The evaluation of each metric; empty unless replicas are computed from metrics.
    pub evaluations: Vec<Evaluation>,
    /// Index of the winning metric.
    pub winner: Option<usize>,
    /// The result of the stabilization windows.
    pub stabilization: Option<Stabilization>,
    /// The result of bounds and rates.
    pub limited: Option<Limited>,
    /// Why replicas differ from what the metrics ask for.
    pub restrictions: Vec<Restriction>,
    /// The desired replicas; `None` if nothing was decided.
    pub desired: Option<i32>,
    /// The replicas to write to `/scale`, if they change.
    pub write: Option<i32>,
    /// The reason for the change, as in the event; may be empty.
    pub rescale_reason: String,
    /// The error of the pass. The pass may have scaled anyway.
    pub error: Option<String>,
    /// The events to emit, in order.
    pub events: Vec<Event>,
    /// The status to write, if it differs. With [`Self::write`] it is complete only after [`Self::record_write`].
    pub status: HorizontalPodAutoscalerStatus,
    /// The state for the next pass.
    pub memory: HpaState,
    /// The action of the pass.
    pub action: Action,
    /// The class of the error.
    pub failure: Failure,
    #[serde(skip)]
    pub(super) conditions: Conditions,
    #[serde(skip)]
    pub(super) behavior: Option<Behavior>,
    /// Whether an annotation allows zero replicas.
    #[serde(skip)]
    pub(super) may_be_zero: bool,
    /// The condition `ScaledToZero` after the scale update; `None` removes it.
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

    /// Adds a restriction.
    pub fn restrict(&mut self, restriction: Restriction) {
        if !self.restrictions.contains(&restriction) {
            self.restrictions.push(restriction);
        }
    }

    /// Holds the decided replicas in a direction, except to keep them within the bounds of the spec.
    pub fn hold(&mut self, direction: PausedDirection, restriction: Restriction) {
        let (Some(current), Some(desired)) = (self.current, self.desired) else { return };
        if self.zone != Zone::Metrics {
            return;
        }
        let held = direction.hold(current, desired);
        if held != desired {
            self.restrict(restriction);
            self.set_desired(current, held);
        }
    }

    /// Changes the decided replicas.
    pub(super) fn set_desired(&mut self, current: i32, desired: i32) {
        self.desired = Some(desired);
        self.write = (desired != current).then_some(desired);
        if self.write.is_none() {
            self.fill_status(Some(desired), false);
        }
    }

    /// Copies the conditions into the status.
    pub(super) fn show_conditions(&mut self) {
        let conditions = &self.conditions.0;
        self.status.conditions = (!conditions.is_empty()).then(|| conditions.clone());
    }

    /// Fills the status. If nothing was decided, `desiredReplicas` does not change.
    pub(super) fn fill_status(&mut self, desired: Option<i32>, is_scaled: bool) {
        let in_spec = self.evaluations.iter().filter(|evaluation| evaluation.is_in_spec);
        let metrics = in_spec.map(|evaluation| evaluation.status.clone()).collect::<Vec<_>>();
        self.status.observed_generation = None;
        self.status.current_replicas = self.current;
        self.status.desired_replicas = desired.unwrap_or(self.status.desired_replicas);
        self.status.current_metrics = (!metrics.is_empty()).then_some(metrics);
        if is_scaled {
            self.status.last_scale_time = Some(ApiTime(self.at.into()));
        }
        self.show_conditions();
    }

    /// The behavior that the decision followed.
    pub const fn behavior(&self) -> Option<&Behavior> {
        self.behavior.as_ref()
    }

    /// Completes the decision with the outcome of the update of `/scale`.
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
        self.memory.scaled_to_zero = desired == 0 && self.may_be_zero;
        self.action = Action::between(current, desired);
        self.fill_status(Some(desired), true);
    }
}
