//! Writes scales: records a change as pending, makes it, and reports its outcome.

use std::sync::Arc;

use kube::{Resource as _, ResourceExt as _};
use plimsoll_core::{
    scaling::{Event, STATUS_UPDATE_FAILED, ScaleOutcome},
    types::{Time, compat::Compat},
};
use plimsoll_storage::WritePermit;
use tokio::time::Duration;
use tracing::{Instrument as _, Span};

use super::{
    DecisionRecord as _, ObjectState, ObservedScale, ReplicaAutoscaler, ReplicaController, key_of,
    writes::{ScaleEnd, ScaleResult, ScaleWrite, StatusChange, StatusWrite, Write},
};
use crate::cluster::write::{PrepaidPermit, WriteError};

/// A scale that was fetched longer ago is fetched again before it is written.
const MAX_SCALE_AGE: Duration = Duration::from_secs(1);

/// What follows a write of the scale.
pub(super) struct ScaleFollowUp<A: ReplicaAutoscaler> {
    pub status: Option<StatusWrite<A>>,
    pub events: Vec<Event>,
    /// Whether the object has to be reconciled again.
    pub is_outdated: bool,
}

impl<A: ReplicaAutoscaler> Default for ScaleFollowUp<A> {
    fn default() -> Self {
        Self { status: None, events: Vec::new(), is_outdated: false }
    }
}

impl<A: ReplicaAutoscaler> ReplicaController<A> {
    /// Makes a queued write, and applies its result to the object's state.
    pub(super) async fn run_write(self: Arc<Self>, write: Write<A>, permit: PrepaidPermit) {
        let span = write.object().map_or_else(Span::none, A::log_span);
        self.make_write(write, permit).instrument(span).await;
    }

    async fn make_write(self: Arc<Self>, write: Write<A>, permit: PrepaidPermit) {
        let this = Arc::clone(&self);
        match write {
            Write::Event(event) => self.event_sender.send(&permit, *event).await,
            Write::Status(write) => {
                let result = self.send_status(*write, &permit).await;
                let object = Arc::clone(&result.write.object);
                let stored = (result.written == Ok(true)).then_some(&object);
                self.complete_write(&object, stored, move |state| {
                    this.complete_status(state, &result)
                });
            }
            Write::Metadata(object) => {
                let result = A::write_metadata(&self, &object, &permit).await;
                let stored = result.clone().ok().flatten();
                self.complete_write(&object, stored.as_ref(), move |state| {
                    A::complete_metadata(&this, state, &result)
                });
            }
            Write::Scale(mut write) => {
                let key = key_of(&*write.object);
                write.now = write.now.max(self.clock.now());
                let result = self.send_scale(*write, &permit).await;
                let now = self.clock.now();
                let stored = Arc::clone(&result.object);
                let end = || self.writes.finish_scale(&key, |waiting| waiting.rebase(&stored));
                let complete = Box::new(move |state: &mut ObjectState<A>| {
                    let had_exported = state.exported.is_some();
                    let mut exported = state.exported.as_deref().cloned().unwrap_or_default();
                    let follow_up = this.complete_scale(state, &mut exported, &result);
                    if let Some(write) = follow_up.status {
                        this.writes.put(&state.key(), Write::Status(Box::new(write)));
                    }
                    this.emit_events(state, follow_up.events);
                    A::export_status(&mut exported, &state.status());
                    state.exported = had_exported.then(|| Arc::new(exported));
                    follow_up.is_outdated.then_some(now)
                });
                self.queue.complete(&key, now, true, end, complete);
            }
        }
    }

    /// Ends a write of an object other than of its scale.
    fn complete_write(
        &self,
        object: &A::Object,
        stored: Option<&Arc<A::Object>>,
        complete: impl FnOnce(&mut ObjectState<A>) -> Option<Time> + Send + 'static,
    ) {
        let key = key_of(object);
        let end = || {
            self.writes.finish(&key, |waiting| {
                if let Some(stored) = stored {
                    waiting.rebase(stored);
                }
            });
            false
        };
        self.queue.complete(&key, self.clock.now(), false, end, Box::new(complete));
    }

    /// Writes a scale. In Plimsoll mode it is recorded as pending before, so that the next leader knows about it.
    pub(super) async fn send_scale(
        &self,
        write: ScaleWrite<A>,
        permit: &dyn WritePermit,
    ) -> ScaleResult<A> {
        let is_upstream = self.settings.compat == Compat::Upstream;
        let mut result = ScaleResult {
            end: ScaleEnd::Outdated,
            object: Arc::clone(&write.object),
            from: write.observed.values().spec_replicas,
            to: write.to,
            scale_version: None,
            now: write.now,
            term: write.term,
            decision: Arc::clone(&write.decision),
        };
        let fresh = match write.observed {
            ObservedScale::Fetched(fresh)
                if is_upstream || write.observed_at.elapsed() <= MAX_SCALE_AGE =>
            {
                fresh
            }
            observed => {
                let fetched =
                    self.workloads.fetch_scale(&write.target, &mut result.scale_version).await;
                match fetched {
                    Ok(fresh) if fresh.state.same_state(observed.values()) => Box::new(fresh),
                    _ => {
                        // The next reconcile fetches it.
                        result.scale_version = Some(u64::MAX);
                        return result;
                    }
                }
            }
        };
        if !is_upstream {
            let pending = StatusWrite {
                status: write.decision.status(&write.status, &ScaleOutcome::Pending, write.now),
                object: write.object,
                base: write.base,
                change: StatusChange::Decided(Arc::clone(&write.decision), ScaleOutcome::Pending),
                now: write.now,
                failure_reason: STATUS_UPDATE_FAILED,
                retries: false,
            };
            let recorded = self.send_status(pending, permit).await;
            if let Err(why) = recorded.written {
                // Do not scale without a record of the pending scale.
                result.end = ScaleEnd::NotRecorded(why);
                return result;
            }
            result.object = recorded.write.object;
        }
        let context = self.write_context(permit);
        let written =
            self.workloads.update_scale(context, &fresh, write.to, &mut result.scale_version);
        result.end = match written.await {
            Ok(()) => {
                let (namespace, name) = (&write.target.namespace, result.object.name_any());
                let reason = write.decision.change().map_or("", |(_, reason)| reason);
                let (from, to) = (result.from, result.to);
                tracing::info!(namespace, name, from, to, reason, "scaled target");
                ScaleEnd::Answered(ScaleOutcome::Done)
            }
            Err(WriteError::NotLeader) if !is_upstream => ScaleEnd::NotLeader,
            Err(error @ (WriteError::NoResponse(_) | WriteError::Indeterminate(_)))
                if !is_upstream =>
            {
                ScaleEnd::Unknown(error.message())
            }
            Err(error) => ScaleEnd::Answered(ScaleOutcome::Failed(error.message())),
        };
        result
    }

    /// Applies the result of a write of the scale to the state of the object.
    pub(super) fn complete_scale(
        &self,
        state: &mut ObjectState<A>,
        exported: &mut A::Exported,
        result: &ScaleResult<A>,
    ) -> ScaleFollowUp<A> {
        let ScaleResult { decision, end, now, .. } = result;
        if state.object.meta().uid != result.object.meta().uid {
            return ScaleFollowUp::default();
        }
        state.scale_version = result.scale_version.or(state.scale_version);
        match end {
            ScaleEnd::NotRecorded(why) => {
                self.report_write_failure(state, why, STATUS_UPDATE_FAILED);
                return ScaleFollowUp::default();
            }
            ScaleEnd::Outdated => {
                return ScaleFollowUp { is_outdated: true, ..ScaleFollowUp::default() };
            }
            ScaleEnd::NotLeader | ScaleEnd::Unknown(_) | ScaleEnd::Answered(_) => {}
        }
        state.waiting_status = None;
        if self.settings.compat == Compat::Plimsoll {
            state.accept_stored(&result.object);
            state.status_written_at = Some(*now);
        }
        match end {
            ScaleEnd::Unknown(why) => {
                let (namespace, name) =
                    (state.object.namespace().unwrap_or_default(), state.object.name_any());
                // The change stays pending, and the next reconcile resolves it.
                tracing::warn!(%namespace, %name, %why, "scale update outcome unknown; will verify on next reconcile");
                let change = StatusChange::Conditions(vec![A::unknown_outcome(why)]);
                let status = self.new_status(state, change, *now, STATUS_UPDATE_FAILED, false);
                let message = why.clone();
                let event = Event { is_warning: true, reason: "FailedScale", message };
                ScaleFollowUp { status, events: vec![event], is_outdated: false }
            }
            ScaleEnd::Answered(outcome) => {
                if *outcome == ScaleOutcome::Done {
                    let moved = state.add_moved_replicas(result.from, result.to);
                    A::export_scale(exported, moved, decision.desired());
                }
                if self.settings.compat == Compat::Plimsoll
                    && self.permit.fence().term() != result.term
                {
                    // Another process has led since. It has resolved the pending scale, and may have scaled again.
                    return ScaleFollowUp::default();
                }
                let change = StatusChange::Decided(Arc::clone(decision), outcome.clone());
                let reason = decision.status_failure_reason(outcome);
                let status = self.new_status(state, change, *now, reason, false);
                let events = decision.events(outcome, *now);
                ScaleFollowUp { status, events, is_outdated: false }
            }
            _ => ScaleFollowUp::default(),
        }
    }
}
