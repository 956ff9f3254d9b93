//! Makes the decision about an object from the current scale.

use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;

use super::{
    super::replicas::{ObservedScale, ReconcileResult, Requeue, Scaling},
    WatermarkController,
    autoscaler::{ObjectState, metric_history},
    watermark_decision::WatermarkDecision,
};
use crate::{cluster::cache::selector::Selector, telemetry::ExportedState};
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::Scale,
    types::compat::Compat,
    watermark::{
        Decision, DecisionInput, EffectiveSpec, EvaluationContext, MetricHistory, MetricInput,
        pending_scale::resolve_pending_scale, spec::target_name,
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
        let config = &self.autoscaler.config;
        let (mut rules, fixes) =
            (EffectiveSpec::from_spec(filled).with_options(state.own.options), config.fixes);
        rules.dry_run |= config.dry_run.is_some();
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
        self.autoscaler.metrics.observe_step("pods", started.elapsed());
        let started = Instant::now();
        let sources = match blocked {
            Some(_) => Vec::new(),
            None => self.fetch_metrics(key, state, filled, &rules, scale, &readiness, &pods).await,
        };
        if blocked.is_none() {
            self.autoscaler.metrics.observe_step("metrics", started.elapsed());
        }
        let oldest_sample = config.max_metric_age.map(|age| now.earlier(age));
        let context = EvaluationContext {
            rules: &rules,
            readiness,
            selector: &selector,
            pods: &pods,
            scale,
            oldest_sample,
            fixes,
        };
        let resolved_status = match config.compat {
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
            self.autoscaler
                .metrics
                .count_metric_result(row.kind.as_str(), row.result.as_ref().map(drop));
        }
        state.own.metric_history = Some(decision.history.clone());
        let previous_desired = exported.desired_replicas;
        exported.set_decision(&decision, &rules, fixes);
        let outcome = if decision.proposal.is_ok() { "decided" } else { "held" };
        state.failures = 0;
        let started = Instant::now();
        let decision = WatermarkDecision {
            spec: filled.clone(),
            namespace: key.namespace.to_string(),
            decision,
            resolved_status: facts.resolved_status,
            compat: config.compat,
            skips_idle_events: config.skips_idle_events,
            fixes,
        };
        let is_dry_run = filled.dry_run;
        if decision.decision.change.is_some() && !is_dry_run && config.dry_run.is_none() {
            // Until the change is made.
            exported.desired_replicas = previous_desired;
        }
        let target = &filled.scale_target_ref;
        let scaling = Scaling { target, observed, observed_at, is_dry_run };
        self.scales.apply_decision(state, exported, decision, scaling, now).await;
        self.autoscaler.metrics.observe_step("write", started.elapsed());
        (outcome, Requeue::Periodic)
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
            fixes: self.autoscaler.config.fixes,
        };
        input.decide()
    }
}
