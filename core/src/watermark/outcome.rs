//! What is written about an object after a decision: its status, and the events that upstream makes of it.

use crate::types::Time;

use super::{
    combine::{Row, Uncomputable},
    conditions::{self, Fact, Said},
    decide::{Change, DISABLED, Decision},
    rules::Rules,
    trace::trace,
};
use crate::{
    api::wpa::{
        ContainerResourceStatus, ExternalStatus, MetricSpec, MetricStatus, ResourceStatus,
        WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus,
    },
    scaling::SourceKind,
    types::{
        compat::{Compat, Fix, Fixes},
        quantity::{Format, Quantity},
    },
};

/// The reason by which it is told that a status could not be written.
pub const UNWRITTEN: &str = "FailedUpdateStatus";

/// What came of the change that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// There was none to make.
    Nothing,
    /// It is about to be made, and has to be paid for before.
    Booked,
    /// It was made.
    Done,
    /// It was left, because nothing is to be changed.
    DryRun,
    /// The server refused it.
    Refused(String),
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
pub struct Writing<'a> {
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

impl Writing<'_> {
    /// The status after a decision. Ours takes each fact as it is in the end, so that what was so before and is so again
    /// keeps its time; upstream writes what it says in between too.
    pub fn status(
        &self,
        before: &WatermarkPodAutoscalerStatus,
        decision: &Decision,
        made: &Made,
    ) -> WatermarkPodAutoscalerStatus {
        let mut status = before.clone();
        let mut said = decision.said.clone();
        let last = before.last_scale_time.as_ref().map(conditions::time);
        said.extend(self.said_of(decision, made, last));
        for (place, one) in said.iter().enumerate() {
            let is_last = said[place + 1..].iter().all(|later| later.fact != one.fact);
            if is_last || self.compat == Compat::Upstream {
                conditions::set(&mut status, one, self.now);
            }
        }
        status.current_replicas = decision.scale.current;
        // Upstream's readers know nothing of it, and would be told with every look.
        status.decision = (self.compat == Compat::Plimsoll)
            .then(|| trace(decision, &Rules::of(self.spec), self.now));
        if decision.combined.is_err() && decision.change.is_none()
            || matches!(made, Made::Refused(_))
        {
            return status;
        }
        status.desired_replicas = decision.desired;
        let is_forced = decision.change.as_ref().is_some_and(|change| change.forced.is_some());
        if decision.combined.is_ok() && !is_forced {
            status.current_metrics = metrics(self.spec, &decision.rows);
        }
        let consumes = match made {
            Made::Done | Made::Booked => true,
            Made::DryRun => !self.fixes.has(Fix::DryRunTakesNoTime),
            Made::Nothing | Made::Refused(_) => false,
        };
        if consumes {
            status.last_scale_time = Some(conditions::stamp(self.now));
            status.scaling_events_count = status.scaling_events_count.saturating_add(1);
        }
        status
    }

    fn said_of(&self, decision: &Decision, made: &Made, last: Option<Time>) -> Option<Said> {
        match made {
            Made::Done => Some(Said::new(
                Fact::AbleToScale,
                true,
                "SuccessfulScale",
                format!(
                    "the WPA controller was able to update the target scale to {}",
                    decision.desired
                ),
            )),
            Made::Refused(why) => Some(Said::new(
                Fact::AbleToScale,
                false,
                "FailedScale",
                format!("the WPA controller was unable to update the target scale: {why}"),
            )),
            Made::Nothing if self.skips_idle_events && self.may_say_idle(decision) => {
                let message = format!(
                    "the WPA was able to successfully calculate a replica count and decided not to scale {}",
                    self.stays(decision, last)
                );
                Some(Said::new(Fact::ScalingActive, true, "NotScaling", message))
            }
            // Of a change that metrics ask for it is said already, of one without them by nobody else.
            Made::Booked => Some(Said::ready_for_scale()),
            Made::Nothing | Made::DryRun => None,
        }
    }

    /// Upstream says it of a target that is scaled to nothing too, and so hides that.
    fn may_say_idle(&self, decision: &Decision) -> bool {
        decision.combined.is_ok() && (decision.scale.wanted != 0 || self.compat == Compat::Upstream)
    }

    fn stays(&self, decision: &Decision, last: Option<Time>) -> String {
        let target = &self.spec.scale_target_ref;
        let normal = decision.normal.map_or(decision.desired, |normal| normal.replicas);
        // Whatever metrics ask for, what is scaled to nothing is to stay so.
        let is_disabled = decision.said.iter().any(|said| said.reason == DISABLED);
        let replicas = if is_disabled { 0 } else { normal };
        let last = last.map_or_else(|| "<nil>".to_owned(), as_go_writes);
        let (kind, name) = (&target.kind, &target.name);
        format!("{kind}/{}/{name} to {replicas} (last scale time was {last} )", self.namespace)
    }

    /// The reason by which it is told that a status could not be written after a decision.
    pub const fn unwritten(decision: &Decision, made: &Made) -> &'static str {
        if decision.combined.is_err() || matches!(made, Made::Refused(_)) {
            "FailedUpdateReplicas"
        } else {
            UNWRITTEN
        }
    }

    /// The events that upstream makes of a decision. `last` is when replicas were changed last, as it stands there.
    pub fn events(&self, decision: &Decision, made: &Made, last: Option<Time>) -> Vec<Event> {
        let warning = |reason, message: String| Event { is_warning: true, reason, message };
        let mut events = Vec::new();
        if let Err(why) = &decision.combined {
            if let Uncomputable::Source { reason, .. } = why {
                events.push(warning(reason, why.cause()));
            }
            events.push(warning("FailedComputeMetricsReplicas", why.to_string()));
        }
        match (&decision.change, made) {
            (Some(Change { to, reason, .. }), Made::Done) => events.push(Event {
                is_warning: false,
                reason: "Scaling",
                message: format!("New size: {to}; reason: {reason}"),
            }),
            (Some(Change { to, reason, .. }), Made::Refused(why)) => {
                let message = format!("New size: {to}; reason: {reason}; error: {why}");
                events.push(warning("FailedScale", message));
            }
            (None, _) if decision.combined.is_ok() && !self.skips_idle_events => {
                let message = format!("Decided not to scale {}", self.stays(decision, last));
                events.push(Event { is_warning: false, reason: "NotScaling", message });
            }
            _ => {}
        }
        events
    }
}

fn as_go_writes(at: Time) -> String {
    jiff::Timestamp::from(at).strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}

/// What the metrics were, as the status has it.
fn metrics(spec: &WatermarkPodAutoscalerSpec, rows: &[Row]) -> Vec<MetricStatus> {
    let known = rows.iter().enumerate().filter_map(|(place, row)| {
        let value = row.outcome.as_ref().ok()?.proposal.utilisation;
        Some(metric(row, spec.metrics.get(place), Quantity::milli(value, Format::DecimalSi)))
    });
    known.collect()
}

fn metric(row: &Row, spec: Option<&MetricSpec>, value: Quantity) -> MetricStatus {
    let kind = spec.map_or_else(|| "Resource".to_owned(), |spec| spec.kind.clone());
    let mut status = MetricStatus { kind, ..MetricStatus::default() };
    match row.kind {
        // What a recommender observed stands where upstream puts it: under another kind than it says.
        SourceKind::External | SourceKind::Prometheus | SourceKind::Recommender => {
            let selector = spec.and_then(|spec| spec.external.as_ref()?.metric_selector.clone());
            status.external = Some(ExternalStatus {
                metric_name: row.label.clone(),
                metric_selector: selector,
                current_value: value,
                current_average_value: None,
            });
        }
        SourceKind::Resource => {
            status.resource = Some(ResourceStatus {
                name: row.label.clone(),
                current_average_utilization: None,
                current_average_value: value,
            });
        }
        SourceKind::ContainerResource => {
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
