//! Applies a decision: queues the change of the scale, the status and events.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::{
    api::scale_target::ScaleTarget,
    scaling::ScaleOutcome,
    types::{Time, compat::Compat},
};
use tokio::time::Instant;

use super::{
    DecisionRecord as _, ObjectState, ObservedScale, ReplicaAutoscaler, ReplicaController,
    WritePart,
    writes::{ScaleWrite, StatusChange, Write},
};

/// What a change of the scale is based on.
#[derive(Debug)]
pub(in crate::controllers) struct Scaling<'a> {
    pub target: &'a ScaleTarget,
    pub observed: ObservedScale,
    pub observed_at: Instant,
    /// Whether the object is in dry run.
    pub is_dry_run: bool,
}

impl<A: ReplicaAutoscaler> ReplicaController<A> {
    /// Reports a decision, and queues its change, if there is one: that is reported after it was made. Upstream waits for
    /// its writes.
    pub(in crate::controllers) async fn apply_decision(
        &self,
        state: &mut ObjectState<A>,
        exported: &mut A::Exported,
        decision: A::Decision,
        scaling: Scaling<'_>,
        now: Time,
    ) {
        let decision = Arc::new(decision);
        let outcome = match decision.change() {
            None => ScaleOutcome::NoChange,
            Some(_) if scaling.is_dry_run => ScaleOutcome::DryRun,
            Some(_) if self.settings.dry_run.is_some() => ScaleOutcome::Done,
            Some((to, _)) => {
                return self.apply_change(state, exported, decision, scaling, to, now).await;
            }
        };
        self.cancel_scale(state);
        let reason = decision.status_failure_reason(&outcome);
        let change = StatusChange::Decided(Arc::clone(&decision), outcome.clone());
        self.change_status(state, change, now, reason, false).await;
        self.emit_events(state, decision.events(&outcome, now));
        if let (ScaleOutcome::Done, Some((to, reason))) = (&outcome, decision.change()) {
            let (namespace, name) =
                (state.object.namespace().unwrap_or_default(), state.object.name_any());
            let from = scaling.observed.values().spec_replicas;
            tracing::info!(namespace, name, from, to, reason, "dry run: would scale target");
        }
    }

    async fn apply_change(
        &self,
        state: &mut ObjectState<A>,
        exported: &mut A::Exported,
        decision: Arc<A::Decision>,
        Scaling { target, observed, observed_at, .. }: Scaling<'_>,
        to: i32,
        now: Time,
    ) {
        let key = state.key();
        let write = ScaleWrite {
            decision,
            object: Arc::clone(&state.object),
            base: state.stored_status().cloned(),
            status: state.status(),
            target: self.workloads.target(&key.namespace, target),
            observed,
            observed_at,
            to,
            now,
            term: self.permit.fence().term(),
        };
        if self.settings.compat == Compat::Upstream {
            let result = self.send_scale(write, &self.permit).await;
            let follow_up = self.complete_scale(state, exported, &result);
            if let Some(status) = follow_up.status {
                let result = self.send_status(status, &self.permit).await;
                self.complete_status(state, &result);
            }
            self.emit_events(state, follow_up.events);
            return;
        }
        let put = || self.writes.put(&key, Write::Scale(Box::new(write)));
        self.queue.if_current(&key, put);
    }

    /// Cancels a scale that waits to be written, because it is no longer wanted, or no longer known to be.
    pub(in crate::controllers) fn cancel_scale(&self, state: &ObjectState<A>) {
        let key = state.key();
        self.queue.if_current(&key, || self.writes.cancel(&key, WritePart::Scale));
    }
}
