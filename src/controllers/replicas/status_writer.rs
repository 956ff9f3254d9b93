//! Writes the status of objects when it changes materially, and events about them.

use std::sync::Arc;

use kube::{Client, Resource as _, ResourceExt as _};
use plimsoll_core::{
    scaling::{Event, STATUS_UPDATE_FAILED},
    types::{ObjectKey, Time, compat::Compat},
};
use plimsoll_storage::WritePermit;
use tokio::time::Duration;

use super::{
    ObjectState, ReconcileQueue, ReplicaAutoscaler, ReplicaSettings, WaitingStatus, WritePart,
    WriteQueue,
    writes::{StatusChange, StatusResult, StatusWrite, Write},
};
use crate::cluster::{
    clock::Clock,
    write::{EventDetails, Permit, WriteContext, WriteError, WriteStats},
};

/// Attempts to write a status if other clients change it concurrently.
const MAX_CONFLICT_RETRIES: usize = 3;

/// Delay of the next reconcile after an error.
pub(in crate::controllers) const ERROR_BACKOFF: Duration = Duration::from_secs(1);
/// An object that is overdue for this long has priority over status updates that only change values.
const OVERDUE_AFTER: Duration = Duration::from_millis(500);

/// Writes statuses, at once or through the queue, and events.
pub(in crate::controllers) struct StatusWriter<A: ReplicaAutoscaler> {
    pub(super) settings: Arc<ReplicaSettings>,
    pub(super) autoscaler: Arc<A>,
    pub(super) clock: Clock,
    pub(in crate::controllers) client: Client,
    pub(super) stats: Arc<WriteStats>,
    pub(super) permit: Permit,
    pub(super) queue: Arc<ReconcileQueue<A>>,
    pub(in crate::controllers) writes: WriteQueue<Write<A>>,
}

impl<A: ReplicaAutoscaler> StatusWriter<A> {
    pub fn write_context<'a>(&'a self, permit: &'a dyn WritePermit) -> WriteContext<'a> {
        WriteContext {
            client: &self.client,
            permit,
            stats: &self.stats,
            field_manager: A::FIELD_MANAGER,
        }
    }

    /// Changes the status: queues the write, if the status differs from the stored one. Upstream waits for it. Returns
    /// whether it is stored, or will be.
    pub async fn change_status(
        &self,
        state: &mut ObjectState<A>,
        change: StatusChange<A>,
        now: Time,
        failure_reason: &'static str,
        retries: bool,
    ) -> bool {
        let (key, may_write_values) = (state.key(), self.may_write_values());
        let written = self.new_status(state, change, now, failure_reason, may_write_values);
        let Some(write) = written.map(|write| StatusWrite { retries, ..write }) else {
            self.queue.if_current(&key, || self.writes.cancel(&key, WritePart::Status));
            return true;
        };
        if self.settings.compat == Compat::Upstream {
            let result = self.send_status(write, &self.permit).await;
            let is_written = result.written.is_ok();
            self.complete_status(state, &result);
            return is_written;
        }
        let queued =
            self.queue.if_current(&key, || self.writes.put(&key, Write::Status(Box::new(write))));
        queued.unwrap_or(true)
    }

    /// The write of a changed status; `None` if it is not worth one, or in a dry run.
    pub fn new_status(
        &self,
        state: &mut ObjectState<A>,
        change: StatusChange<A>,
        now: Time,
        failure_reason: &'static str,
        may_write_values: bool,
    ) -> Option<StatusWrite<A>> {
        let mut status = change.apply(&self.autoscaler, &state.status(), now);
        if self.settings.dry_run.is_some() {
            state.dry_run_status = Some(status);
            return None;
        }
        self.autoscaler.drop_unstored(state.stored_status(), &mut status, now);
        let key = state.key();
        let is_worth_it = self.is_worth_writing(state, &status, may_write_values, now);
        // If another status is being written, this one has to follow.
        if !is_worth_it && !self.writes.is_in_flight(&key) {
            state.waiting_status = None;
            return None;
        }
        let (object, base) = (Arc::clone(&state.object), Arc::clone(&state.object));
        let status = Arc::new(status);
        state.waiting_status =
            Some(WaitingStatus { base: Arc::clone(&base), status: Arc::clone(&status) });
        Some(StatusWrite { object, base, status, change, now, failure_reason, retries: false })
    }

    /// Writes a status. On a conflict, it is computed again from the stored object.
    pub async fn send_status(
        &self,
        mut write: StatusWrite<A>,
        permit: &dyn WritePermit,
    ) -> StatusResult<A> {
        let written = self.try_send_status(&mut write, permit).await;
        StatusResult { write, written }
    }

    async fn try_send_status(
        &self,
        write: &mut StatusWrite<A>,
        permit: &dyn WritePermit,
    ) -> Result<bool, WriteError> {
        let generation = write.object.meta().generation;
        let mut last = WriteError::NotFound;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let before = A::stored_status(&write.object).cloned();
            let mut after = write.current_status(&self.autoscaler);
            self.autoscaler.drop_unstored(before.as_ref(), &mut after, write.now);
            if before.as_ref().is_some_and(|before| A::is_same_status(before, &after)) {
                return Ok(false);
            }
            let context = self.write_context(permit);
            match A::store_status(context, &write.object, &after).await {
                Ok(stored) => {
                    self.autoscaler.on_stored(&after, A::stored_status(&stored), write.now);
                    write.object = A::trimmed(stored);
                    return Ok(true);
                }
                Err(WriteError::Conflict(why)) => {
                    last = WriteError::Conflict(why);
                    let Some(fresh) = context.get_object(&*write.object).await? else {
                        return Err(WriteError::NotFound);
                    };
                    // The decision is outdated: the object was changed, or another process has scaled its target.
                    let last_scale =
                        |object: &A::Object| A::stored_status(object).and_then(A::last_scale);
                    let fresh = A::trimmed(fresh);
                    // Some kinds have no generation, and annotations change none.
                    let is_changed = fresh.meta().generation != generation
                        || A::is_material_change(&write.object, &fresh);
                    if is_changed
                        || fresh.uid() != write.object.uid()
                        || last_scale(&fresh) != last_scale(&write.object)
                    {
                        return Err(last);
                    }
                    write.object = fresh;
                }
                Err(why) => return Err(why),
            }
        }
        Err(last)
    }

    /// Applies the result of a write of the status. Returns when the object is due, if it has to be written again.
    pub fn complete_status(
        &self,
        state: &mut ObjectState<A>,
        StatusResult { write, written }: &StatusResult<A>,
    ) -> Option<Time> {
        if state.object.uid() != write.object.uid() {
            return None;
        }
        state.waiting_status.take_if(|waiting| waiting.status == write.status);
        match written {
            Ok(is_written) => {
                if *is_written {
                    state.accept_stored(&write.object);
                    state.status_written_at = Some(write.now);
                }
                None
            }
            Err(why) => {
                self.report_write_failure(state, why, write.failure_reason);
                let retries = write.retries && *why != WriteError::NotFound;
                retries.then(|| self.clock.now().later(self.back_off(state, ERROR_BACKOFF)))
            }
        }
    }

    /// Whether a status differs enough. A difference in values counts only if no status was written for a while. Upstream
    /// writes every difference.
    fn is_worth_writing(
        &self,
        state: &ObjectState<A>,
        after: &A::Status,
        may_write_values: bool,
        now: Time,
    ) -> bool {
        let Some(before) = state.stored_status() else { return true };
        if A::is_same_status(before, after) {
            return false;
        }
        if self.settings.compat == Compat::Upstream || !A::differ_in_values_only(before, after) {
            return true;
        }
        let next_value_write =
            state.status_written_at.map(|at| at.later(self.settings.status_interval));
        may_write_values && next_value_write.is_none_or(|next_value_write| next_value_write <= now)
    }

    /// Whether a status update that only changes values delays neither other writes nor reconciles.
    pub fn may_write_values(&self) -> bool {
        self.permit.limiter.has_spare_capacity()
            && self.queue.longest_wait(self.clock.now()) < OVERDUE_AFTER
    }

    /// Changes only conditions of an object, without a decision.
    pub async fn write_conditions(
        &self,
        state: &mut ObjectState<A>,
        updates: Vec<A::Condition>,
        now: Time,
    ) {
        let change = StatusChange::Conditions(updates);
        self.change_status(state, change, now, STATUS_UPDATE_FAILED, false).await;
    }

    /// Doubles the delay after each failure, up to the period.
    pub fn back_off(&self, state: &mut ObjectState<A>, delay: Duration) -> Duration {
        let delay = delay.saturating_mul(1 << state.failures.min(8)).min(self.settings.period);
        state.failures = state.failures.saturating_add(1);
        delay
    }

    /// Reports a failed status update with the given event reason. The next reconcile tries again.
    pub fn report_write_failure(
        &self,
        state: &ObjectState<A>,
        why: &WriteError,
        reason: &'static str,
    ) {
        let ObjectKey { namespace, name } = state.key();
        match why {
            WriteError::NotFound | WriteError::NotLeader | WriteError::Conflict(_) => {
                tracing::debug!(%namespace, %name, %why, "skipped status update");
            }
            WriteError::NoResponse(_)
            | WriteError::Indeterminate(_)
            | WriteError::Rejected(_)
            | WriteError::Malformed(_) => {
                tracing::warn!(%namespace, %name, %why, "failed to update status; retrying on the next reconcile");
                self.emit(state, true, reason, why.message());
            }
        }
    }

    /// Emits the events of a decision. A lasting warning is emitted once; upstream emits it on every reconcile.
    pub fn emit_all(&self, state: &mut ObjectState<A>, events: Vec<Event>) {
        if self.settings.compat == Compat::Upstream {
            for Event { is_warning, reason, message } in events {
                self.emit(state, is_warning, reason, message);
            }
            return;
        }
        let (warnings, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.is_warning);
        let mut active_warnings = Vec::new();
        for Event { reason, message, .. } in warnings {
            let is_new = state.active_warnings.iter().all(|(before, _)| *before != reason);
            if is_new {
                self.emit(state, true, reason, message.clone());
            }
            active_warnings.push((reason, message));
        }
        state.active_warnings = active_warnings;
        let was_idle = state.is_idle;
        state.is_idle = others.iter().any(|event| event.reason == "NotScaling");
        for Event { reason, message, .. } in others {
            if reason != "NotScaling" || !was_idle {
                self.emit(state, false, reason, message);
            }
        }
    }

    pub fn emit(
        &self,
        state: &ObjectState<A>,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if self.settings.dry_run.is_some_and(|dry| !dry.events) {
            return;
        }
        let involved_object = state.object.object_ref(&());
        let at = self.clock.now();
        let event = EventDetails { involved_object, is_warning, reason, message, at };
        self.writes.put(&state.key(), Write::Event(Box::new(event)));
    }
}
