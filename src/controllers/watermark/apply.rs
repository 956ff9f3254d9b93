//! Makes the decision about an object from the current scale, and applies it.

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;

use super::{
    super::replicas::ObservedScale,
    WatermarkController,
    object_state::ObjectState,
    reconcile::{ReconcileResult, Requeue},
};
use crate::{
    cluster::{cache::selector::Selector, target::scale::ScaleSubresource, write::WriteError},
    telemetry::ExportedState,
};
use plimsoll_core::{
    api::wpa::{WatermarkPodAutoscalerSpec, WatermarkPodAutoscalerStatus},
    scaling::Scale,
    types::compat::Compat,
    watermark::{
        Decision, DecisionInput, EffectiveSpec, EvaluationContext, MetricHistory, MetricInput,
        conditions,
        pending_scale::resolve_pending_scale,
        spec::target_name,
        status_update::{STATUS_UPDATE_FAILED, ScaleOutcome, StatusBuilder},
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
    /// Makes the decision about an object and applies it. A decision based on a watched scale is made again if the fetched
    /// scale, which is about to be written, differs.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn decide(
        &self,
        key: &ObjectKey,
        state: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        mut observed: ObservedScale,
        blocked: Option<&str>,
        exported: &mut ExportedState,
        now: Time,
    ) -> ReconcileResult {
        let (mut rules, fixes) =
            (EffectiveSpec::from_spec(filled).with_options(state.options), self.config.fixes);
        rules.dry_run |= self.config.dry_run.is_some();
        let target = target_name(&key.namespace, filled);
        let readiness = rules.readiness_policy(target, now, fixes);
        let history = state.metric_history();
        loop {
            let values = observed.values();
            let scale = Scale {
                spec_replicas: values.spec_replicas,
                status_replicas: values.status_replicas,
            };
            let selector = values.selector.as_ref().map_or("", Selector::as_str).to_owned();
            let started = Instant::now();
            let pods = self.target_pods(key, state, filled, values).await;
            self.metrics.observe_step("pods", started.elapsed());
            let started = Instant::now();
            let sources = match blocked {
                Some(_) => Vec::new(),
                None => {
                    self.fetch_metrics(key, state, filled, &rules, scale, &readiness, &pods).await
                }
            };
            if blocked.is_none() {
                self.metrics.observe_step("metrics", started.elapsed());
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
            let writes =
                decision.change.is_some() && !filled.dry_run && self.config.dry_run.is_none();
            let fresh = match observed {
                _ if !writes => None,
                ObservedScale::Fetched(fresh) => Some(fresh),
                ObservedScale::Watched(of, values) => match self.fetch_scale(state, &of).await {
                    Ok(fresh) if fresh.state.same_state(&values) => Some(Box::new(fresh)),
                    Ok(fresh) => {
                        observed = ObservedScale::Fetched(Box::new(fresh));
                        continue;
                    }
                    Err(why) => return self.report_scale_error(state, exported, &why, now).await,
                },
            };
            for row in &decision.metrics {
                self.metrics.count_metric_result(row.kind.as_str(), row.result.as_ref().map(drop));
            }
            state.metric_history = Some(decision.history.clone());
            let previous_desired = exported.desired_replicas;
            exported.set_decision(&decision, &rules, fixes);
            let outcome = if decision.proposal.is_ok() { "decided" } else { "held" };
            state.failures = 0;
            let started = Instant::now();
            if !self
                .apply_decision(state, filled, fresh.as_deref(), &facts, &decision, exported)
                .await
            {
                exported.desired_replicas = previous_desired;
            }
            self.metrics.observe_step("write", started.elapsed());
            return (outcome, Requeue::Periodic);
        }
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

    /// Applies the change, if there is one, and reports it. In Plimsoll mode it is recorded as pending before it is made, so
    /// that the next leader knows about it. `fresh` is the scale to update; without it the change is only reported. Returns
    /// whether replicas are as decided, as far as known.
    async fn apply_decision(
        &self,
        state: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        fresh: Option<&ScaleSubresource>,
        facts: &DecisionFacts<'_>,
        decision: &Decision,
        exported: &mut ExportedState,
    ) -> bool {
        let now = facts.now;
        let namespace = state.object.namespace().unwrap_or_default();
        let builder = StatusBuilder {
            spec: filled,
            namespace: &namespace,
            compat: self.config.compat,
            skips_idle_events: self.config.skips_idle_events,
            now,
            fixes: self.config.fixes,
        };
        let resolved_status = &facts.resolved_status;
        let last_scale_time =
            resolved_status.last_scale_time.as_ref().map(conditions::from_timestamp);
        // Keep concurrent changes of the status, except the fields that a scale that was never made has set.
        let base = |before: &WatermarkPodAutoscalerStatus| {
            let mut base = before.clone();
            base.last_scale_time.clone_from(&resolved_status.last_scale_time);
            base.scaling_events_count = resolved_status.scaling_events_count;
            base
        };
        let outcome = match (&decision.change, fresh) {
            (None, _) => ScaleOutcome::NoChange,
            (Some(_), _) if filled.dry_run => ScaleOutcome::DryRun,
            (Some(_), None) => ScaleOutcome::Done,
            (Some(change), Some(fresh)) => {
                if self.config.compat == Compat::Plimsoll {
                    let recorded = self
                        .write_status(state, now, |before| {
                            builder.status(&base(before), decision, &ScaleOutcome::Pending)
                        })
                        .await;
                    if let Err(why) = recorded {
                        // Do not scale without a record of the pending scale.
                        self.report_write_failure(state, &why, STATUS_UPDATE_FAILED);
                        return false;
                    }
                }
                match self.update_scale(state, fresh, change.to).await {
                    Ok(()) => {
                        Self::record_moved_replicas(
                            state,
                            exported,
                            fresh.state.spec_replicas,
                            change.to,
                        );
                        ScaleOutcome::Done
                    }
                    // The next leader resolves the pending scale.
                    Err(WriteError::NotLeader) if self.config.compat == Compat::Plimsoll => {
                        return false;
                    }
                    Err(WriteError::NoResponse(why) | WriteError::Indeterminate(why))
                        if self.config.compat == Compat::Plimsoll =>
                    {
                        self.report_unknown_scale_outcome(state, why, now).await;
                        return false;
                    }
                    Err(why) => ScaleOutcome::Failed(why.to_string()),
                }
            }
        };
        let written = self
            .write_status(state, now, |before| builder.status(&base(before), decision, &outcome))
            .await;
        if let Err(why) = written {
            self.report_write_failure(
                state,
                &why,
                StatusBuilder::status_failure_reason(decision, &outcome),
            );
        }
        let events = builder.events(decision, &outcome, last_scale_time);
        self.emit_events(state, events);
        if let (ScaleOutcome::Done, Some(change)) = (&outcome, &decision.change) {
            let (name, from, to) =
                (state.object.name_any(), decision.scale.spec_replicas, change.to);
            let reason = &change.reason;
            match fresh {
                Some(_) => {
                    tracing::info!(namespace, name, from, to, reason, "scaled target");
                }
                None => {
                    tracing::info!(
                        namespace,
                        name,
                        from,
                        to,
                        reason,
                        "dry run: would scale target"
                    );
                }
            }
        }
        !matches!(outcome, ScaleOutcome::Failed(_))
    }

    fn record_moved_replicas(
        state: &mut ObjectState,
        exported: &mut ExportedState,
        from: i32,
        to: i32,
    ) {
        let (up, down) = state.replicas_moved.unwrap_or_default();
        let moved = u64::from(from.abs_diff(to));
        state.replicas_moved =
            Some(if to > from { (up + moved, down) } else { (up, down + moved) });
        exported.replicas_moved = state.replicas_moved;
    }
}
