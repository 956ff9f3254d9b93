//! Compares decisions with those of the HPA controller of the cluster, which reads the same metrics at other times.

use std::{collections::VecDeque, time::Duration};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use strum::{IntoStaticStr, VariantArray};

use super::{
    conditions::{ABLE_TO_SCALE, SCALE_DOWN_STABILIZED, SCALE_UP_STABILIZED, SCALING_ACTIVE},
    decision::Decision,
    hpa_state::Windows,
    observed::ScaleValues,
    reported_replicas::ReportedReplicas,
    stabilization::Direction,
};
use crate::types::Time;

/// How long a sample of the metrics API remains the newest one.
const METRIC_WINDOW: Duration = Duration::from_mins(1);

/// The result of the comparison of one decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Comparison {
    /// The other controller had decided the same.
    Same,
    /// The other controller decided the same later.
    Later,
    /// It did not, and it remembers more: this process has not run for as long as the longest window.
    Warming,
    /// It did not, because the metrics had other values when it read them, now or within a stabilization window.
    Sampling,
    /// It did not, for an unknown reason.
    Unexplained,
}

impl Comparison {
    /// The name, as in the label of metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A decision that the other controller has not made yet.
#[derive(Clone, Debug)]
struct Pending {
    at: Time,
    /// The desired replicas; `None` if nothing could be decided.
    desired: Option<i32>,
    is_warming: bool,
    /// Whether the other controller has reported other values, or has agreed with another decision since, or a window holds
    /// replicas because of a value that only one of the two has read.
    has_other_values: bool,
}

/// The decisions that are still to be compared, and what is known of the other controller.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    pending: VecDeque<Pending>,
    /// When the first decision was made.
    started: Option<Time>,
    /// The replicas at the last decision, and when the target was last scaled.
    last_scale: Option<(i32, Option<Time>)>,
    reported: ReportedReplicas,
}

/// What a comparison depends on.
#[derive(Clone, Copy, Debug)]
pub struct ShadowRules {
    /// The time between two passes of the other controller.
    pub period: Duration,
    /// How long the state of the object can affect a decision.
    pub windows: Windows,
}

impl Shadow {
    /// Observes the scale. Returns the replicas before and the time if the other controller has scaled the target since
    /// the last decision.
    pub fn observe_scale(
        &mut self,
        replicas: i32,
        status: &HorizontalPodAutoscalerStatus,
    ) -> Option<(i32, Time)> {
        let scaled_at = status.last_scale_time.as_ref().map(|time| Time::from(time.0));
        let (from, before) = self.last_scale.replace((replicas, scaled_at))?;
        let is_scaled = before != scaled_at && from != replicas;
        is_scaled.then_some(from).zip(scaled_at)
    }

    /// The number of pods that the averages in the status are of.
    pub fn reported_replicas(
        &mut self,
        scale: &ScaleValues,
        status: &HorizontalPodAutoscalerStatus,
        period: Duration,
        now: Time,
    ) -> i32 {
        self.reported.observe(scale, status, period, now)
    }

    /// Compares a decision, and those before it that are still pending, with the status that the other controller wrote.
    /// Returns the results that are known now.
    pub fn compare(
        &mut self,
        decision: &Decision,
        status: &HorizontalPodAutoscalerStatus,
        rules: ShadowRules,
    ) -> Vec<Comparison> {
        let now = decision.at;
        let longest_window = rules.windows.up.max(rules.windows.down).max(rules.windows.period);
        let is_warming = now < self.started.get_or_insert(now).later(longest_window);
        let patience = 2 * rules.period + METRIC_WINDOW;
        let agrees = agrees(decision.desired, status);
        let has_other_values =
            !has_same_values(decision, status) || is_held_by_another_sample(decision, status);
        let mut results = Vec::new();
        self.pending.retain_mut(|pending| {
            if self::agrees(pending.desired, status) {
                results.push(Comparison::Later);
                return false;
            }
            pending.has_other_values |= has_other_values || agrees;
            let is_over = now >= pending.at.later(patience);
            if is_over {
                results.push(pending.result());
            }
            !is_over
        });
        if agrees {
            results.push(Comparison::Same);
        } else {
            let desired = decision.desired;
            self.pending.push_back(Pending { at: now, desired, is_warming, has_other_values });
        }
        results
    }
}

impl Pending {
    fn result(&self) -> Comparison {
        match self {
            Self { is_warming: true, .. } => Comparison::Warming,
            Self { has_other_values: true, .. } => Comparison::Sampling,
            _ => Comparison::Unexplained,
        }
    }
}

/// Whether the other controller has decided the same.
fn agrees(desired: Option<i32>, status: &HorizontalPodAutoscalerStatus) -> bool {
    let has_failed = |kind: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == kind && condition.status == "False")
    };
    match desired {
        Some(desired) => desired == status.desired_replicas,
        None => has_failed(SCALING_ACTIVE) || has_failed(ABLE_TO_SCALE),
    }
}

/// Whether the difference is what a stabilization window does with a recommendation that only one of the two has made: a peak
/// between two passes of one is seen by the other, which then holds replicas for the length of the window.
fn is_held_by_another_sample(decision: &Decision, status: &HorizontalPodAutoscalerStatus) -> bool {
    let (Some(ours), Some(stabilization)) = (decision.desired, decision.stabilization) else {
        return false;
    };
    let (theirs, recommended) = (status.desired_replicas, stabilization.recommended);
    let mut conditions = status.conditions.iter().flatten();
    let able = conditions.find(|condition| condition.type_ == ABLE_TO_SCALE);
    let is_held_by_theirs = match able.and_then(|condition| condition.reason.as_deref()) {
        Some(SCALE_DOWN_STABILIZED) => theirs > recommended,
        Some(SCALE_UP_STABILIZED) => theirs < recommended,
        _ => false,
    };
    let is_held_by_ours = stabilization.held.is_some_and(|held| match held.direction {
        Direction::Down => (recommended..ours).contains(&theirs),
        Direction::Up => theirs > ours && theirs <= recommended,
    });
    is_held_by_theirs || is_held_by_ours
}

/// Whether the other controller has reported the values that the decision is based on.
fn has_same_values(decision: &Decision, status: &HorizontalPodAutoscalerStatus) -> bool {
    let in_spec = decision.evaluations.iter().filter(|evaluation| evaluation.is_in_spec);
    let ours = in_spec.map(|evaluation| &evaluation.status);
    ours.eq(status.current_metrics.iter().flatten())
}
