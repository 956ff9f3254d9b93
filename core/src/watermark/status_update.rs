//! What is written about an object after a decision: its status, and the events that upstream makes of it.

use crate::types::Time;

use super::{
    combine::{MetricEvaluation, ProposalError},
    conditions::{self, ConditionType, ConditionUpdate},
    decide::{Decision, ReplicaChange, SCALING_DISABLED},
    scale_decision::scale_decision,
    spec::EffectiveSpec,
};
use crate::{
    api::wpa::{
        ContainerResourceStatus, ExternalStatus, MetricSpec, MetricStatus, ResourceStatus,
        WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus,
    },
    scaling::MetricSourceType,
    types::{
        compat::{Compat, Fix, Fixes},
        quantity::{Format, Quantity},
    },
};

/// The reason by which it is told that a status could not be written.
pub const STATUS_UPDATE_FAILED: &str = "FailedUpdateStatus";

/// What came of the change that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleOutcome {
    /// There was none to make.
    NoChange,
    /// It is about to be made, and has to be paid for before.
    Pending,
    /// It was made.
    Done,
    /// It was left, because nothing is to be changed.
    DryRun,
    /// The server refused it.
    Failed(String),
}

/// An event of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it is about something that is wrong.
    pub is_warning: bool,
    /// Its reason.
    pub reason: &'static str,
    /// What it says.
    pub message: String,
}

/// How an object is written about.
#[derive(Clone, Copy, Debug)]
pub struct StatusBuilder<'a> {
    /// What it asks for.
    pub spec: &'a WatermarkPodAutoscalerSpec,
    /// Its namespace.
    pub namespace: &'a str,
    /// Whose habits are followed.
    pub compat: Compat,
    /// Nothing is said of a pass without a change but in a condition.
    pub skips_idle_events: bool,
    /// The time.
    pub now: Time,
    /// Which of upstream's defects are mended.
    pub fixes: Fixes,
}

impl StatusBuilder<'_> {
    /// The status after a decision. Ours takes each fact as it is in the end, so that what was so before and is so again
    /// keeps its time; upstream writes what it says in between too.
    pub fn status(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        decision: &Decision,
        made: &ScaleOutcome,
    ) -> WatermarkPodAutoscalerStatus {
        let mut status = before.clone();
        let mut said = decision.conditions.clone();
        let last = before.last_scale_time.as_ref().map(conditions::from_timestamp);
        said.extend(self.outcome_condition(decision, made, last));
        for (place, one) in said.iter().enumerate() {
            let is_last =
                said[place + 1..].iter().all(|later| later.condition_type != one.condition_type);
            if is_last || self.compat == Compat::Upstream {
                conditions::set_condition(&mut status, one, self.now);
            }
        }
        status.current_replicas = decision.scale.status_replicas;
        // Upstream's readers know nothing of it, and would be told with every look.
        status.decision = (self.compat == Compat::Plimsoll)
            .then(|| scale_decision(decision, &EffectiveSpec::from_spec(self.spec), self.now));
        if decision.proposal.is_err() && decision.change.is_none()
            || matches!(made, ScaleOutcome::Failed(_))
        {
            return status;
        }
        status.desired_replicas = decision.desired;
        let is_forced = decision.change.as_ref().is_some_and(|change| change.forced.is_some());
        if decision.proposal.is_ok() && !is_forced {
            status.current_metrics = metric_statuses(self.spec, &decision.metrics);
        }
        let consumes = match made {
            ScaleOutcome::Done | ScaleOutcome::Pending => true,
            ScaleOutcome::DryRun => !self.fixes.has(Fix::DryRunTakesNoTime),
            ScaleOutcome::NoChange | ScaleOutcome::Failed(_) => false,
        };
        if consumes {
            status.last_scale_time = Some(conditions::to_timestamp(self.now));
            status.scaling_events_count = status.scaling_events_count.saturating_add(1);
        }
        status
    }

    fn outcome_condition(
        &self,
        decision: &Decision,
        made: &ScaleOutcome,
        last: Option<Time>,
    ) -> Option<ConditionUpdate> {
        match made {
            ScaleOutcome::Done => Some(ConditionUpdate::new(
                ConditionType::AbleToScale,
                true,
                "SuccessfulScale",
                format!(
                    "the WPA controller was able to update the target scale to {}",
                    decision.desired
                ),
            )),
            ScaleOutcome::Failed(why) => Some(ConditionUpdate::new(
                ConditionType::AbleToScale,
                false,
                "FailedScale",
                format!("the WPA controller was unable to update the target scale: {why}"),
            )),
            ScaleOutcome::NoChange if self.skips_idle_events && self.reports_idle(decision) => {
                let message = format!(
                    "the WPA was able to successfully calculate a replica count and decided not to scale {}",
                    self.idle_message(decision, last)
                );
                Some(ConditionUpdate::new(
                    ConditionType::ScalingActive,
                    true,
                    "NotScaling",
                    message,
                ))
            }
            // Of a change that metrics ask for it is said already, of one without them by nobody else.
            ScaleOutcome::Pending => Some(ConditionUpdate::ready_for_scale()),
            ScaleOutcome::NoChange | ScaleOutcome::DryRun => None,
        }
    }

    /// Upstream says it of a target that is scaled to nothing too, and so hides that.
    fn reports_idle(&self, decision: &Decision) -> bool {
        decision.proposal.is_ok()
            && (decision.scale.spec_replicas != 0 || self.compat == Compat::Upstream)
    }

    fn idle_message(&self, decision: &Decision, last: Option<Time>) -> String {
        let target = &self.spec.scale_target_ref;
        let normal = decision.limited.map_or(decision.desired, |normal| normal.replicas);
        // Whatever metrics ask for, what is scaled to nothing is to stay so.
        let is_disabled = decision.conditions.iter().any(|said| said.reason == SCALING_DISABLED);
        let replicas = if is_disabled { 0 } else { normal };
        let last = last.map_or_else(|| "<nil>".to_owned(), format_go_time);
        let (kind, name) = (&target.kind, &target.name);
        format!("{kind}/{}/{name} to {replicas} (last scale time was {last} )", self.namespace)
    }

    /// The reason by which it is told that a status could not be written after a decision.
    pub const fn status_failure_reason(decision: &Decision, made: &ScaleOutcome) -> &'static str {
        if decision.proposal.is_err() || matches!(made, ScaleOutcome::Failed(_)) {
            "FailedUpdateReplicas"
        } else {
            STATUS_UPDATE_FAILED
        }
    }

    /// The events that upstream makes of a decision. `last` is when replicas were changed last, as it stands there.
    pub fn events(
        &self,
        decision: &Decision,
        made: &ScaleOutcome,
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
        match (&decision.change, made) {
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

fn format_go_time(at: Time) -> String {
    jiff::Timestamp::from(at).strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}

/// What the metrics were, as the status has it.
fn metric_statuses(
    spec: &WatermarkPodAutoscalerSpec,
    rows: &[MetricEvaluation],
) -> Vec<MetricStatus> {
    let known = rows.iter().enumerate().filter_map(|(place, row)| {
        let value = row.result.as_ref().ok()?.proposal.utilization;
        Some(metric_status(
            row,
            spec.metrics.get(place),
            Quantity::from_milli(value, Format::DecimalSi),
        ))
    });
    known.collect()
}

fn metric_status(
    row: &MetricEvaluation,
    spec: Option<&MetricSpec>,
    value: Quantity,
) -> MetricStatus {
    let kind = spec.map_or_else(|| "Resource".to_owned(), |spec| spec.kind.clone());
    let mut status = MetricStatus { kind, ..MetricStatus::default() };
    match row.kind {
        // What a recommender observed stands where upstream puts it: under another kind than it says.
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
