//! What users are told: the status of an object, written when there is news, and events.

use std::{sync::atomic::Ordering, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::{
    WatermarkController,
    object_state::{ObjectState, trimmed},
};
use crate::cluster::write::{
    EventDetails, InvolvedObject, WpaPatchTarget, WriteContext, WriteError, wpa_status_patch,
};
use plimsoll_core::{
    api::{
        scale_decision::ScaleDecision,
        wpa::{MetricStatus, WatermarkPodAutoscaler, WatermarkPodAutoscalerStatus},
    },
    types::compat::Compat,
    watermark::{
        conditions::{self, ConditionUpdate},
        status_update::{Event, STATUS_UPDATE_FAILED},
    },
};

/// Who writes, in `managedFields`.
const FIELD_MANAGER: &str = "plimsoll-watermark";
/// How often a status that somebody else changed meanwhile is worked out again.
const MAX_CONFLICT_RETRIES: usize = 3;

/// How long a server is taken for one that takes decisions out of a status.
const DROPPED_DECISION_RETRY: Duration = Duration::from_mins(10);

/// Somebody who has waited for so long is late: turns go before values that nobody waits for.
const OVERDUE_AFTER: Duration = Duration::from_millis(500);

/// What a reader would see of another status.
enum StatusDiff {
    Unchanged,
    /// Other values alone, which nobody waits for.
    ValuesOnly,
    Material,
}

impl WatermarkController {
    /// With what is written.
    pub(super) fn write_context(&self) -> WriteContext<'_> {
        WriteContext {
            client: &self.client,
            permit: &self.permit,
            stats: &self.write_stats,
            field_manager: FIELD_MANAGER,
        }
    }

    /// Writes what a status becomes, if a reader would see a difference. What it becomes is worked out again from what
    /// somebody else wrote meanwhile.
    pub(super) async fn write_status(
        &self,
        seat: &mut ObjectState,
        now: Time,
        become_status: impl Fn(&WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus,
    ) -> Result<(), WriteError> {
        if self.config.dry_run.is_some() {
            seat.dry_run_status = Some(become_status(&seat.status()));
            return Ok(());
        }
        let generation = seat.object.metadata.generation;
        let mut last = WriteError::NotFound;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let before = seat.object.status.clone();
            let mut after = become_status(&before.clone().unwrap_or_default());
            if self.drops_decisions(now) {
                after.decision = before.as_ref().and_then(|before| before.decision.clone());
            }
            let turn = match self.status_diff(seat, before.as_ref(), &after, now) {
                StatusDiff::Unchanged => return Ok(()),
                StatusDiff::Material => None,
                // Whoever waits for an answer to a write looks at nobody meanwhile.
                StatusDiff::ValuesOnly => match self.value_writes.try_acquire() {
                    Ok(turn) => Some(turn),
                    Err(_) => return Ok(()),
                },
            };
            let patch = wpa_status_patch(before.as_ref(), &after);
            let written =
                self.write_context().patch_wpa(&seat.object, WpaPatchTarget::Status, patch).await;
            drop(turn);
            match written {
                Ok(stored) => {
                    let kept = stored.status.as_ref().is_some_and(|it| it.decision.is_some());
                    if after.decision.is_some() {
                        self.record_decision_kept(kept, now);
                    }
                    seat.object = trimmed(stored);
                    seat.status_written_at = Some(now);
                    return Ok(());
                }
                Err(WriteError::Conflict(why)) => {
                    last = WriteError::Conflict(why);
                    let Some(fresh) = self.write_context().get_wpa(&seat.object).await? else {
                        return Err(WriteError::NotFound);
                    };
                    // What was decided is about another object by now, or somebody else has acted.
                    let acted = |object: &WatermarkPodAutoscaler| {
                        object.status.as_ref().and_then(|status| status.last_scale_time.clone())
                    };
                    if fresh.metadata.generation != generation
                        || fresh.uid() != seat.object.uid()
                        || acted(&fresh) != acted(&seat.object)
                    {
                        return Err(last);
                    }
                    seat.object = trimmed(fresh);
                }
                Err(why) => return Err(why),
            }
        }
        Err(last)
    }

    /// Whether the server takes decisions out of a status. Every now and then one is written all the same: the definition may
    /// have been replaced.
    fn drops_decisions(&self, now: Time) -> bool {
        let last = self.decision_dropped_at.load(Ordering::Relaxed);
        let from = Time::from_nanos(last);
        last != 0 && (from..from.later(DROPPED_DECISION_RETRY)).contains(&now)
    }

    /// The server has kept a decision in a status, or taken it out: then the definition is upstream's.
    fn record_decision_kept(&self, kept: bool, now: Time) {
        let last = if kept { 0 } else { now.as_nanos() };
        let before = self.decision_dropped_at.swap(last, Ordering::Relaxed);
        if kept && before != 0 {
            tracing::info!("the definition of WatermarkPodAutoscalers has status.decision by now");
        }
        if !kept && before == 0 {
            tracing::warn!(
                "the definition of WatermarkPodAutoscalers in this cluster lacks status.decision: how a number of \
                 replicas came about is not kept, `plimsoll explain wpa` has less to tell, and delays of single metrics \
                 and fallbacks begin anew when another replica takes over; apply `plimsoll crds` to have it, which is noticed within ten minutes"
            );
        }
    }

    /// Whether a reader sees more than another value, or that was not written for a while. Upstream writes whatever
    /// differs.
    fn status_diff(
        &self,
        seat: &ObjectState,
        before: Option<&WatermarkPodAutoscalerStatus>,
        after: &WatermarkPodAutoscalerStatus,
        now: Time,
    ) -> StatusDiff {
        let Some(before) = before else { return StatusDiff::Material };
        if is_same_status(before, after) {
            return StatusDiff::Unchanged;
        }
        if self.config.compat == Compat::Upstream || without_values(before) != without_values(after)
        {
            return StatusDiff::Material;
        }
        let due = seat.status_written_at.map(|at| at.later(self.config.status_interval));
        if due.is_none_or(|due| due <= now) && self.may_write_values() {
            StatusDiff::ValuesOnly
        } else {
            StatusDiff::Unchanged
        }
    }

    /// Whether a mere value is in the way neither of what else is written nor of anybody's turn.
    fn may_write_values(&self) -> bool {
        self.permit.limiter().has_spare_capacity()
            && self.queue.longest_wait(self.clock.now()) < OVERDUE_AFTER
    }

    /// Says something of an object alone: nothing was decided. Answers whether it stands.
    pub(super) async fn write_conditions(
        &self,
        seat: &mut ObjectState,
        said: &[ConditionUpdate],
        now: Time,
    ) -> bool {
        let written = self
            .write_status(seat, now, |before| {
                let mut status = before.clone();
                for one in said {
                    conditions::set_condition(&mut status, one, now);
                }
                // Which condition was said last is no news by itself.
                if self.config.compat == Compat::Plimsoll && status.conditions == before.conditions
                {
                    return before.clone();
                }
                status
            })
            .await;
        if let Err(why) = &written {
            self.report_write_failure(seat, why, STATUS_UPDATE_FAILED);
        }
        written.is_ok()
    }

    /// A status could not be written, which is told by this reason: it is tried again with the next look.
    pub(super) fn report_write_failure(
        &self,
        seat: &ObjectState,
        why: &WriteError,
        reason: &'static str,
    ) {
        let (namespace, name) =
            (seat.object.namespace().unwrap_or_default(), seat.object.name_any());
        match why {
            WriteError::NotFound | WriteError::NotLeader | WriteError::Conflict(_) => {
                tracing::debug!(%namespace, %name, %why, "a status was not written");
            }
            WriteError::NoResponse(_) | WriteError::Indeterminate(_) | WriteError::Rejected(_) => {
                tracing::warn!(%namespace, %name, %why, "a status was not written; it is tried again");
                self.emit_event(seat, true, reason, why.to_string());
            }
        }
    }

    /// The answer to a change of replicas leaves open whether it was made. It stays booked, and the next look sees.
    pub(super) async fn report_unknown_scale_outcome(
        &self,
        seat: &mut ObjectState,
        why: String,
        now: Time,
    ) {
        let (namespace, name) =
            (seat.object.namespace().unwrap_or_default(), seat.object.name_any());
        tracing::warn!(%namespace, %name, %why, "whether replicas were changed is seen with the next look");
        self.write_conditions(seat, &[ConditionUpdate::indeterminate(&why)], now).await;
        let event = Event { is_warning: true, reason: "FailedScale", message: why };
        self.emit_events(seat, vec![event]);
    }

    /// Events of a decision. Ours says what stands once, upstream with every look.
    pub(super) fn emit_events(&self, seat: &mut ObjectState, events: Vec<Event>) {
        if self.config.compat == Compat::Upstream {
            for Event { is_warning, reason, message } in events {
                self.emit_event(seat, is_warning, reason, message);
            }
            return;
        }
        let (warnings, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.is_warning);
        let mut standing = Vec::new();
        for Event { reason, message, .. } in warnings {
            let is_new = seat.active_warnings.iter().all(|(before, _)| *before != reason);
            if is_new {
                self.emit_event(seat, true, reason, message.clone());
            }
            standing.push((reason, message));
        }
        seat.active_warnings = standing;
        let was_idle = seat.is_idle;
        seat.is_idle = others.iter().any(|event| event.reason == "NotScaling");
        for Event { reason, message, .. } in others {
            if reason != "NotScaling" || !was_idle {
                self.emit_event(seat, false, reason, message);
            }
        }
    }

    /// An event of an object.
    pub(super) fn emit_event(
        &self,
        seat: &ObjectState,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if self.config.dry_run.is_some_and(|dry| !dry.events) {
            return;
        }
        let about = InvolvedObject {
            api_version: "datadoghq.com/v1alpha1",
            kind: "WatermarkPodAutoscaler",
            namespace: seat.object.namespace().unwrap_or_default(),
            name: seat.object.name_any(),
            uid: seat.object.uid().unwrap_or_default(),
        };
        let at = self.clock.now();
        self.events.publish(EventDetails {
            involved_object: about,
            is_warning,
            reason,
            message,
            at,
        });
    }
}

/// Whether a status says the same: that a decision was made once more is no news.
fn is_same_status(
    before: &WatermarkPodAutoscalerStatus,
    after: &WatermarkPodAutoscalerStatus,
) -> bool {
    let mut after = after.clone();
    if let (Some(decision), Some(before)) = (&mut after.decision, &before.decision) {
        decision.at.clone_from(&before.at);
    }
    *before == after
}

/// A status without what may be told late.
fn without_values(status: &WatermarkPodAutoscalerStatus) -> WatermarkPodAutoscalerStatus {
    let mut status = status.clone();
    status.current_metrics.iter_mut().for_each(clear_value);
    for one in &mut status.conditions {
        // Texts of conditions name values too, and counts of pods.
        one.message.clear();
    }
    status.decision = status.decision.take().map(ScaleDecision::without_values);
    status.last_condition_type.clear();
    status.last_condition_state.clear();
    status
}

fn clear_value(metric: &mut MetricStatus) {
    if let Some(external) = &mut metric.external {
        external.current_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.resource {
        resource.current_average_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
    if let Some(resource) = &mut metric.container_resource {
        resource.current_average_value = plimsoll_core::types::quantity::Quantity::ZERO;
    }
}
