//! Makes the decision about an object from the current scale, and applies it.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;

use super::{
    super::replicas::{ObservedScale, WritePart},
    WatermarkController,
    exported_state::ExportedState,
    object_state::{ObjectState, metric_history},
    reconcile::{ReconcileResult, Requeue},
    writes::{MadeDecision, ScaleWrite, StatusChange, Write},
};
use crate::{cluster::cache::selector::Selector, telemetry::ReconcileStep};
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::Scale,
    types::compat::Compat,
    watermark::{
        Decision, DecisionInput, EffectiveSpec, EvaluationContext, MetricHistory, MetricInput,
        conditions,
        pending_scale::resolve_pending_scale,
        spec::target_name,
        status_update::{ScaleOutcome, StatusBuilder},
    },
};

/// All inputs of a decision except the current status.
struct DecisionFacts<'a> {
    rules: &'a EffectiveSpec,
    context: EvaluationContext<'a>,
    sources: &'a [MetricInput],
    blocked_reason: Option<&'a str>,
    /// The status with the pending scale resolved: one that was never made is undone.
    resolved_status: WatermarkPodAutoscalerStatus,
    now: Time,
}

/// What a change of the scale is based on.
struct Scaling {
    observed: ObservedScale,
    observed_at: Instant,
    previous_desired: Option<i32>,
}

impl WatermarkController {
    /// Makes the decision about an object and applies it.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn decide(
        &self,
        key: &ObjectKey,
        state: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        observed: ObservedScale,
        blocked: Option<&str>,
        exported: &mut ExportedState,
        now: Time,
    ) -> ReconcileResult {
        let (mut rules, fixes) =
            (EffectiveSpec::from_spec(filled).with_options(state.own.options), self.config.fixes);
        rules.dry_run |= self.config.dry_run.is_some();
        let target = target_name(&key.namespace, filled);
        let readiness = rules.readiness_policy(target, now, fixes);
        let history = metric_history(state);
        let observed_at = Instant::now();
        let values = observed.values();
        let scale =
            Scale { spec_replicas: values.spec_replicas, status_replicas: values.status_replicas };
        let selector = values.selector.as_ref().map_or("", Selector::as_str).to_owned();
        let started = Instant::now();
        let pods = self.target_pods(key, state, filled, values).await;
        self.metrics.observe_step(ReconcileStep::Pods, started.elapsed());
        let started = Instant::now();
        let sources = match blocked {
            Some(_) => Vec::new(),
            None => self.fetch_metrics(key, state, filled, &rules, scale, &readiness, &pods).await,
        };
        if blocked.is_none() {
            self.metrics.observe_step(ReconcileStep::Metrics, started.elapsed());
        }
        let oldest_sample = self.config.max_metric_age.map(|age| now.earlier(age));
        let context = EvaluationContext {
            rules: &rules,
            readiness,
            selector: &selector,
            pods: &pods,
            scale,
            oldest_sample,
            fixes,
        };
        let resolved_status = match self.config.compat {
            Compat::Plimsoll => resolve_pending_scale(&state.status(), scale, &rules),
            Compat::Upstream => state.status(),
        };
        let facts = DecisionFacts {
            rules: &rules,
            context,
            sources: &sources,
            blocked_reason: blocked,
            resolved_status,
            now,
        };
        let decision = self.evaluate(&facts, &history);
        for row in &decision.metrics {
            self.metrics.count_metric_result(row.kind.as_str(), row.result.as_ref().map(drop));
        }
        state.own.metric_history = Some(decision.history.clone());
        let previous_desired = exported.desired_replicas;
        exported.set_decision(&decision, &rules, fixes);
        let outcome = if decision.proposal.is_ok() { "decided" } else { "held" };
        state.failures = 0;
        let started = Instant::now();
        let made = MadeDecision {
            spec: filled.clone(),
            namespace: key.namespace.to_string(),
            decision,
            resolved_status: facts.resolved_status,
            compat: self.config.compat,
            skips_idle_events: self.config.skips_idle_events,
            fixes,
        };
        let scaling = Scaling { observed, observed_at, previous_desired };
        let requeue = self.apply_decision(state, exported, made, scaling, now).await;
        self.metrics.observe_step(ReconcileStep::Write, started.elapsed());
        (outcome, requeue)
    }

    fn evaluate(&self, facts: &DecisionFacts<'_>, history: &MetricHistory) -> Decision {
        let input = DecisionInput {
            rules: facts.rules,
            context: facts.context,
            metrics: facts.sources,
            blocked_reason: facts.blocked_reason,
            status: &facts.resolved_status,
            history,
            now: facts.now,
            fixes: self.config.fixes,
        };
        input.decide()
    }

    /// Reports a decision, and queues its change, if there is one: that is reported after it was made. Upstream waits for
    /// its writes.
    async fn apply_decision(
        &self,
        state: &mut ObjectState,
        exported: &mut ExportedState,
        made: MadeDecision,
        scaling: Scaling,
        now: Time,
    ) -> Requeue {
        let made = Arc::new(made);
        let outcome = match &made.decision.change {
            None => ScaleOutcome::NoChange,
            Some(_) if made.spec.dry_run => ScaleOutcome::DryRun,
            Some(_) if self.config.dry_run.is_some() => ScaleOutcome::Done,
            Some(change) => {
                let to = change.to;
                return self.apply_change(state, exported, made, scaling, to, now).await;
            }
        };
        self.cancel_scale(state);
        let reason = StatusBuilder::status_failure_reason(&made.decision, &outcome);
        let change = StatusChange::Decided(Arc::clone(&made), outcome.clone());
        self.change_status(state, change, now, reason, false).await;
        let last = made.resolved_status.last_scale_time.as_ref().map(conditions::from_timestamp);
        let events = made.builder(now).events(&made.decision, &outcome, last);
        self.emit_events(state, events);
        if let (ScaleOutcome::Done, Some(change)) = (&outcome, &made.decision.change) {
            let (namespace, name) = (&made.namespace, state.object.name_any());
            let (from, to) = (made.decision.scale.spec_replicas, change.to);
            let reason = &change.reason;
            tracing::info!(namespace, name, from, to, reason, "dry run: would scale target");
        }
        Requeue::Periodic
    }

    async fn apply_change(
        &self,
        state: &mut ObjectState,
        exported: &mut ExportedState,
        made: Arc<MadeDecision>,
        Scaling { observed, observed_at, previous_desired }: Scaling,
        to: i32,
        now: Time,
    ) -> Requeue {
        // Until the change is made.
        exported.desired_replicas = previous_desired;
        let target = self.workloads.target(&made.namespace, &made.spec.scale_target_ref);
        let write = ScaleWrite {
            made,
            object: Arc::clone(&state.object),
            base: state.object.status.clone(),
            status: state.status(),
            target,
            observed,
            observed_at,
            to,
            now,
            term: self.permit.fence().term(),
        };
        if self.config.compat == Compat::Upstream {
            let result = self.send_scale(write, &self.permit).await;
            let follow_up = self.complete_scale(state, exported, &result);
            if let Some(status) = follow_up.status {
                let result = self.send_status(status, &self.permit).await;
                self.complete_status(state, &result);
            }
            self.emit_events(state, follow_up.events);
            return Requeue::Periodic;
        }
        let key = state.key();
        let put = || self.writes.put(&key, Write::Scale(Box::new(write)));
        self.queue.if_current(&key, put);
        Requeue::Periodic
    }

    /// Cancels a scale that waits to be written, because it is no longer wanted, or no longer known to be.
    pub(super) fn cancel_scale(&self, state: &ObjectState) {
        let key = state.key();
        self.queue.if_current(&key, || self.writes.cancel(&key, WritePart::Scale));
    }
}
