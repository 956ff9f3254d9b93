//! Applies decisions: queues the change of the scale, the status and events. Writes scales: records a change as pending,
//! makes it, and reports its outcome.

use std::sync::Arc;

use kube::{Resource as _, ResourceExt as _};
use plimsoll_core::{
    api::scale_target::ScaleTarget,
    scaling::{Event, STATUS_UPDATE_FAILED, ScaleOutcome},
    types::{ObjectKey, Time, compat::Compat},
};
use plimsoll_storage::WritePermit;
use tokio::time::{Duration, Instant};

use super::{
    DecisionRecord as _, ObjectState, ObservedScale, ReplicaAutoscaler, StatusWriter, Workloads,
    WritePart,
    writes::{ScaleEnd, ScaleResult, ScaleWrite, StatusChange, StatusWrite, Write},
};
use crate::{cluster::write::WriteError, telemetry::ExportedState};

/// A scale that was fetched longer ago is fetched again before it is written.
const MAX_SCALE_AGE: Duration = Duration::from_secs(1);

/// What a change of the scale is based on.
#[derive(Debug)]
pub(in crate::controllers) struct Scaling<'a> {
    pub target: &'a ScaleTarget,
    pub observed: ObservedScale,
    pub observed_at: Instant,
    pub is_dry_run: bool,
}

pub(super) enum ScaleFollowUp<A: ReplicaAutoscaler> {
    Nothing,
    /// The object has to be reconciled again.
    Reconcile,
    Report(Option<StatusWrite<A>>, Vec<Event>),
}

pub(in crate::controllers) struct ScaleWriter<A: ReplicaAutoscaler> {
    pub(super) status: Arc<StatusWriter<A>>,
    pub(super) workloads: Arc<Workloads<A::Pod>>,
}

impl<A: ReplicaAutoscaler> ScaleWriter<A> {
    /// Reports a decision, and queues its change, if there is one: that is reported after it was made. Upstream waits for
    /// its writes.
    pub async fn apply_decision(
        &self,
        state: &mut ObjectState<A>,
        exported: &mut ExportedState,
        decision: A::Decision,
        scaling: Scaling<'_>,
        now: Time,
    ) {
        let decision = Arc::new(decision);
        let outcome = match decision.change() {
            None => ScaleOutcome::NoChange,
            Some(_) if scaling.is_dry_run => ScaleOutcome::DryRun,
            Some(_) if self.status.settings.dry_run.is_some() => ScaleOutcome::Done,
            Some((to, _)) => {
                return self.apply_change(state, exported, decision, scaling, to, now).await;
            }
        };
        self.cancel_scale(state);
        self.report(state, &decision, &outcome, now).await;
        if let (ScaleOutcome::Done, Some((to, reason))) = (&outcome, decision.change()) {
            let ObjectKey { namespace, name } = state.key();
            let (namespace, name) = (&*namespace, &*name);
            let from = scaling.observed.values().spec_replicas;
            tracing::info!(namespace, name, from, to, reason, "dry run: would scale target");
        }
    }

    /// Queues the status and the events of a decision with this outcome.
    pub async fn report(
        &self,
        state: &mut ObjectState<A>,
        decision: &Arc<A::Decision>,
        outcome: &ScaleOutcome,
        now: Time,
    ) {
        let reason = decision.status_failure_reason(outcome);
        let change = StatusChange::Decided(Arc::clone(decision), outcome.clone());
        self.status.change_status(state, change, now, reason, false).await;
        self.status.emit_all(state, decision.events(outcome, now));
    }

    async fn apply_change(
        &self,
        state: &mut ObjectState<A>,
        exported: &mut ExportedState,
        decision: Arc<A::Decision>,
        Scaling { target, observed, observed_at, .. }: Scaling<'_>,
        to: i32,
        now: Time,
    ) {
        let key = state.key();
        let write = ScaleWrite {
            decision,
            object: Arc::clone(&state.object),
            base: Arc::clone(&state.object),
            status: state.status(),
            target: self.workloads.target(&key.namespace, target),
            observed,
            observed_at,
            to,
            now,
            term: self.status.permit.fence.term(),
        };
        if self.status.settings.compat == Compat::Upstream {
            let result = self.send_scale(write, &self.status.permit).await;
            if let ScaleFollowUp::Report(status, events) =
                self.complete_scale(state, exported, &result)
            {
                if let Some(status) = status {
                    let result = self.status.send_status(status, &self.status.permit).await;
                    self.status.complete_status(state, &result);
                }
                self.status.emit_all(state, events);
            }
            return;
        }
        let put = || self.status.writes.put(&key, Write::Scale(Box::new(write)));
        self.status.queue.if_current(&key, put);
    }

    /// Cancels a scale that waits to be written, because it is no longer wanted, or no longer known to be.
    pub fn cancel_scale(&self, state: &ObjectState<A>) {
        let key = state.key();
        self.status.queue.if_current(&key, || self.status.writes.cancel(&key, WritePart::Scale));
    }

    /// Writes a scale. In Plimsoll mode it is recorded as pending before, so that the next leader knows about it.
    pub(super) async fn send_scale(
        &self,
        mut write: ScaleWrite<A>,
        permit: &dyn WritePermit,
    ) -> ScaleResult<A> {
        let is_upstream = self.status.settings.compat == Compat::Upstream;
        let mut scale_version = None;
        let fetched;
        let fresh = match &write.observed {
            ObservedScale::Fetched(fresh)
                if is_upstream || write.observed_at.elapsed() <= MAX_SCALE_AGE =>
            {
                &**fresh
            }
            observed => {
                let current = self.workloads.fetch_scale(&write.target, &mut scale_version).await;
                match current {
                    Ok(current) if current.state.same_state(observed.values()) => {
                        fetched = current;
                        &fetched
                    }
                    _ => {
                        // The next reconcile fetches it.
                        let scale_version = Some(u64::MAX);
                        return ScaleResult { write, end: ScaleEnd::Outdated, scale_version };
                    }
                }
            }
        };
        if !is_upstream {
            let pending = write.decision.status(&write.status, &ScaleOutcome::Pending, write.now);
            let pending = StatusWrite {
                status: Arc::new(pending),
                object: Arc::clone(&write.object),
                base: Arc::clone(&write.base),
                change: StatusChange::Decided(Arc::clone(&write.decision), ScaleOutcome::Pending),
                now: write.now,
                failure_reason: STATUS_UPDATE_FAILED,
                retries: false,
            };
            let recorded = self.status.send_status(pending, permit).await;
            if let Err(why) = recorded.written {
                // Do not scale without a record of the pending scale.
                return ScaleResult { write, end: ScaleEnd::NotRecorded(why), scale_version };
            }
            write.object = recorded.write.object;
        }
        let context = self.status.write_context(permit);
        let written = self.workloads.update_scale(context, fresh, write.to, &mut scale_version);
        let end = match written.await {
            Ok(()) => {
                let (namespace, name) = (&write.target.namespace, write.object.name_any());
                let reason = write.decision.change().map_or("", |(_, reason)| reason);
                let (from, to) = (write.spec_replicas(), write.to);
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
        ScaleResult { write, end, scale_version }
    }

    pub(super) fn complete_scale(
        &self,
        state: &mut ObjectState<A>,
        exported: &mut ExportedState,
        result: &ScaleResult<A>,
    ) -> ScaleFollowUp<A> {
        let ScaleResult { write, end, scale_version } = result;
        let (decision, now) = (&write.decision, write.now);
        if state.object.meta().uid != write.object.meta().uid {
            return ScaleFollowUp::Nothing;
        }
        state.scale_version = scale_version.or(state.scale_version);
        match end {
            ScaleEnd::NotRecorded(why) => {
                self.status.report_write_failure(state, why, STATUS_UPDATE_FAILED);
                return ScaleFollowUp::Nothing;
            }
            ScaleEnd::Outdated => return ScaleFollowUp::Reconcile,
            ScaleEnd::NotLeader | ScaleEnd::Unknown(_) | ScaleEnd::Answered(_) => {}
        }
        state.waiting_status = None;
        if self.status.settings.compat == Compat::Plimsoll {
            state.accept_stored(&write.object);
            state.status_written_at = Some(now);
        }
        match end {
            ScaleEnd::Unknown(why) => {
                let ObjectKey { namespace, name } = state.key();
                // The change stays pending, and the next reconcile resolves it.
                tracing::warn!(%namespace, %name, %why, "scale update outcome unknown; will verify on next reconcile");
                let change =
                    StatusChange::Conditions(A::unknown_outcome(why).into_iter().collect());
                let status =
                    self.status.new_status(state, change, now, STATUS_UPDATE_FAILED, false);
                let message = why.clone();
                let event = Event { is_warning: true, reason: "FailedScale", message };
                ScaleFollowUp::Report(status, vec![event])
            }
            ScaleEnd::Answered(outcome) => {
                if *outcome == ScaleOutcome::Done {
                    let moved = state.add_moved_replicas(write.spec_replicas(), write.to);
                    exported.replicas_moved = Some(moved);
                    exported.desired_replicas = Some(decision.desired());
                }
                if self.status.settings.compat == Compat::Plimsoll
                    && self.status.permit.fence.term() != write.term
                {
                    // Another process has led since. It has resolved the pending scale, and may have scaled again.
                    return ScaleFollowUp::Nothing;
                }
                if *outcome == ScaleOutcome::Done {
                    A::on_scaled(&mut state.own, decision, now);
                }
                let change = StatusChange::Decided(Arc::clone(decision), outcome.clone());
                let reason = decision.status_failure_reason(outcome);
                let status = self.status.new_status(state, change, now, reason, false);
                ScaleFollowUp::Report(status, decision.events(outcome, now))
            }
            _ => ScaleFollowUp::Nothing,
        }
    }
}
