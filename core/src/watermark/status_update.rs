//! Builds the status of an object after a decision, and the events that upstream emits.

use crate::types::Time;

use super::{
    combine::{MetricEvaluation, ProposalError},
    conditions::{self, ConditionType, ConditionUpdate},
    decide::{Decision, ReplicaChange, SCALING_DISABLED},
};
use crate::{
    api::wpa::{
        ContainerResourceStatus, ExternalStatus, MetricSpec, MetricStatus, ResourceStatus,
        WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus,
    },
    scaling::{Event, MetricSourceType, STATUS_UPDATE_FAILED, ScaleOutcome},
    types::{
        compat::{Compat, Fix, Fixes},
        quantity::{Format, Quantity},
    },
};

#[derive(Clone, Debug)]
pub struct StatusBuilder {
    pub spec: WatermarkPodAutoscalerSpec,
    pub namespace: String,
    pub compat: Compat,
    /// A pass without a change sets a condition instead of emitting an event.
    pub skips_idle_events: bool,
    /// Which of upstream's bugs are fixed.
    pub fixes: Fixes,
}

impl StatusBuilder {
    /// The status after a decision. Plimsoll sets each condition once, with its final value, so that an unchanged condition
    /// keeps its transition time. Upstream also writes intermediate values.
    pub fn status(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        decision: &Decision,
        outcome: &ScaleOutcome,
        now: Time,
    ) -> WatermarkPodAutoscalerStatus {
        let mut status = before.clone();
        let mut updates = decision.conditions.clone();
        let last = before.last_scale_time.as_ref().map(conditions::from_timestamp);
        updates.extend(self.outcome_condition(decision, outcome, last));
        for (index, update) in updates.iter().enumerate() {
            let is_last = updates[index + 1..]
                .iter()
                .all(|later| later.condition_type != update.condition_type);
            if is_last || self.compat == Compat::Upstream {
                conditions::set_condition(&mut status, update, now);
            }
        }
        status.current_replicas = decision.scale.status_replicas;
        // Clients of upstream do not know the field, and it would change the status with every reconcile.
        status.decision = (self.compat == Compat::Plimsoll).then(|| decision.record.status(now));
        if decision.proposal.is_err() && decision.change.is_none()
            || matches!(outcome, ScaleOutcome::Failed(_))
        {
            return status;
        }
        status.desired_replicas = decision.desired;
        let is_forced = decision.change.as_ref().is_some_and(|change| change.forced.is_some());
        if decision.proposal.is_ok() && !is_forced {
            status.current_metrics = metric_statuses(&self.spec, &decision.metrics);
        }
        let starts_cooldown = match outcome {
            ScaleOutcome::Done | ScaleOutcome::Pending => true,
            ScaleOutcome::DryRun => !self.fixes.has(Fix::DryRunTakesNoTime),
            ScaleOutcome::NoChange | ScaleOutcome::Failed(_) => false,
        };
        if starts_cooldown {
            status.last_scale_time = Some(conditions::to_timestamp(now));
            status.scaling_events_count = status.scaling_events_count.saturating_add(1);
        }
        status
    }

    fn outcome_condition(
        &self,
        decision: &Decision,
        outcome: &ScaleOutcome,
        last: Option<Time>,
    ) -> Option<ConditionUpdate> {
        let (condition_type, reason, message) = match outcome {
            ScaleOutcome::Done => {
                let able = "the WPA controller was able to update the target scale to";
                let message = format!("{able} {}", decision.desired);
                (ConditionType::AbleToScale, "SuccessfulScale", message)
            }
            ScaleOutcome::Failed(why) => {
                let message =
                    format!("the WPA controller was unable to update the target scale: {why}");
                (ConditionType::AbleToScale, "FailedScale", message)
            }
            ScaleOutcome::NoChange if self.skips_idle_events && self.reports_idle(decision) => {
                let message = format!(
                    "the WPA was able to successfully calculate a replica count and decided not to scale {}",
                    self.idle_message(decision, last)
                );
                (ConditionType::ScalingActive, "NotScaling", message)
            }
            // `apply_proposal` sets the condition already, but a change without metrics sets it only here.
            ScaleOutcome::Pending => return Some(ConditionUpdate::ready_for_scale()),
            ScaleOutcome::NoChange | ScaleOutcome::DryRun => return None,
        };
        let holds = !matches!(outcome, ScaleOutcome::Failed(_));
        Some(ConditionUpdate::new(condition_type, holds, reason, message))
    }

    /// Upstream reports this for a target with zero replicas too, which hides that scaling is disabled.
    fn reports_idle(&self, decision: &Decision) -> bool {
        decision.proposal.is_ok()
            && (decision.scale.spec_replicas != 0 || self.compat == Compat::Upstream)
    }

    fn idle_message(&self, decision: &Decision, last: Option<Time>) -> String {
        let target = &self.spec.scale_target_ref;
        let limited = decision.limited.map_or(decision.desired, |limited| limited.replicas);
        // A target that is scaled to zero stays there, whatever the metrics ask for.
        let is_disabled =
            decision.conditions.iter().any(|condition| condition.reason == SCALING_DISABLED);
        let replicas = if is_disabled { 0 } else { limited };
        let last = last.map_or_else(
            || "<nil>".to_owned(),
            |at| jiff::Timestamp::from(at).strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        );
        let (kind, name) = (&target.kind, &target.name);
        format!("{kind}/{}/{name} to {replicas} (last scale time was {last} )", self.namespace)
    }

    /// Event reason for a failed status update after a decision.
    pub const fn status_failure_reason(
        decision: &Decision,
        outcome: &ScaleOutcome,
    ) -> &'static str {
        if decision.proposal.is_err() || matches!(outcome, ScaleOutcome::Failed(_)) {
            "FailedUpdateReplicas"
        } else {
            STATUS_UPDATE_FAILED
        }
    }

    /// The events that upstream emits for a decision. `last` is the last scale time in the status.
    pub fn events(
        &self,
        decision: &Decision,
        outcome: &ScaleOutcome,
        last: Option<Time>,
    ) -> Vec<Event> {
        let warning = |reason, message: String| Event { is_warning: true, reason, message };
        let mut events = Vec::new();
        if let Err(why) = &decision.proposal {
            if let ProposalError::Metric { reason, .. } = why {
                events.push(warning(reason, why.cause()));
            }
            events.push(warning("FailedComputeMetricsReplicas", why.to_string()));
        }
        match (&decision.change, outcome) {
            (Some(ReplicaChange { to, reason, .. }), ScaleOutcome::Done) => events.push(Event {
                is_warning: false,
                reason: "Scaling",
                message: format!("New size: {to}; reason: {reason}"),
            }),
            (Some(ReplicaChange { to, reason, .. }), ScaleOutcome::Failed(why)) => {
                let message = format!("New size: {to}; reason: {reason}; error: {why}");
                events.push(warning("FailedScale", message));
            }
            (None, _) if decision.proposal.is_ok() && !self.skips_idle_events => {
                let message = format!("Decided not to scale {}", self.idle_message(decision, last));
                events.push(Event { is_warning: false, reason: "NotScaling", message });
            }
            _ => {}
        }
        events
    }
}

fn metric_statuses(
    spec: &WatermarkPodAutoscalerSpec,
    rows: &[MetricEvaluation],
) -> Vec<MetricStatus> {
    let statuses = rows.iter().enumerate().filter_map(|(index, row)| {
        let value = row.result.as_ref().ok()?.utilization;
        let value = Quantity::from_milli(value, Format::DecimalSi);
        Some(metric_status(row, spec.metrics.get(index), value))
    });
    statuses.collect()
}

fn metric_status(
    row: &MetricEvaluation,
    spec: Option<&MetricSpec>,
    value: Quantity,
) -> MetricStatus {
    let kind = spec.map_or_else(|| "Resource".to_owned(), |spec| spec.kind.clone());
    let mut status = MetricStatus { kind, ..MetricStatus::default() };
    match row.kind {
        // Upstream reports a recommender's observed value as external, although the type says otherwise.
        MetricSourceType::External
        | MetricSourceType::Prometheus
        | MetricSourceType::Recommender => {
            let selector = spec.and_then(|spec| spec.external.as_ref()?.metric_selector.clone());
            status.external = Some(ExternalStatus {
                metric_name: row.label.clone(),
                metric_selector: selector,
                current_value: value,
                current_average_value: None,
            });
        }
        MetricSourceType::Resource => {
            status.resource = Some(ResourceStatus {
                name: row.label.clone(),
                current_average_utilization: None,
                current_average_value: value,
            });
        }
        MetricSourceType::ContainerResource => {
            let container =
                spec.and_then(|spec| Some(spec.container_resource.as_ref()?.container.clone()));
            status.container_resource = Some(ContainerResourceStatus {
                name: row.label.clone(),
                container: container.unwrap_or_default(),
                current_average_utilization: None,
                current_average_value: value,
            });
        }
    }
    status
}
