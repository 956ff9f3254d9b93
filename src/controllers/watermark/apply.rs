//! From a scale that was just read to a decision, and from that to what is written.

use kube::ResourceExt as _;
use plimsoll_core::types::{ObjectKey, Time};
use tokio::time::Instant;

use super::{
    super::replicas::ObservedScale,
    WatermarkController,
    exported_state::ExportedState,
    object_state::ObjectState,
    reconcile::{ReconcileResult, Requeue},
};
use crate::{
    cluster::{cache::selector::Selector, target::scale::ScaleSubresource, write::WriteError},
    telemetry::ReconcileStep,
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

/// All that a decision hangs on but the status.
struct DecisionFacts<'a> {
    rules: &'a EffectiveSpec,
    context: EvaluationContext<'a>,
    sources: &'a [MetricInput],
    blocked_reason: Option<&'a str>,
    /// What its status means now: a change that was booked and never made counts for nothing.
    resolved_status: WatermarkPodAutoscalerStatus,
    now: Time,
}

impl WatermarkController {
    /// Decides about an object, and does it. What was decided by a watch is decided anew where the scale that is about to be
    /// written says something else.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn decide(
        &self,
        key: &ObjectKey,
        seat: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        mut sight: ObservedScale,
        blocked: Option<&str>,
        shown: &mut ExportedState,
        now: Time,
    ) -> ReconcileResult {
        let (mut rules, fixes) =
            (EffectiveSpec::from_spec(filled).with_options(seat.options), self.config.fixes);
        rules.dry_run |= self.config.dry_run.is_some();
        let target = target_name(&key.namespace, filled);
        let readiness = rules.readiness_policy(target, now, fixes);
        let memory = seat.metric_history();
        loop {
            let told = sight.values();
            let scale =
                Scale { spec_replicas: told.spec_replicas, status_replicas: told.status_replicas };
            let selector = told.selector.as_ref().map_or("", Selector::as_str).to_owned();
            let begun = Instant::now();
            let pods = self.target_pods(key, seat, filled, told).await;
            self.metrics.observe_step(ReconcileStep::Pods, begun.elapsed());
            let begun = Instant::now();
            let sources = match blocked {
                Some(_) => Vec::new(),
                None => {
                    self.fetch_metrics(key, seat, filled, &rules, scale, &readiness, &pods).await
                }
            };
            if blocked.is_none() {
                self.metrics.observe_step(ReconcileStep::Metrics, begun.elapsed());
            }
            let oldest = self.config.max_metric_age.map(|age| now.earlier(age));
            let setting = EvaluationContext {
                rules: &rules,
                readiness,
                selector: &selector,
                pods: &pods,
                scale,
                oldest_sample: oldest,
                fixes,
            };
            let settled = match self.config.compat {
                Compat::Plimsoll => resolve_pending_scale(&seat.status(), scale, &rules),
                Compat::Upstream => seat.status(),
            };
            let facts = DecisionFacts {
                rules: &rules,
                context: setting,
                sources: &sources,
                blocked_reason: blocked,
                resolved_status: settled,
                now,
            };
            let decision = self.evaluate(&facts, &memory);
            let writes =
                decision.change.is_some() && !filled.dry_run && self.config.dry_run.is_none();
            let fresh = match sight {
                _ if !writes => None,
                ObservedScale::Fetched(fresh) => Some(fresh),
                ObservedScale::Watched(of, told) => match self.fetch_scale(seat, &of).await {
                    Ok(fresh) if fresh.state.same_state(&told) => Some(Box::new(fresh)),
                    Ok(fresh) => {
                        sight = ObservedScale::Fetched(Box::new(fresh));
                        continue;
                    }
                    Err(why) => return self.report_scale_error(seat, shown, &why, now).await,
                },
            };
            for row in &decision.metrics {
                self.metrics.count_metric_result(row.kind.as_str(), row.result.as_ref().map(drop));
            }
            seat.metric_history = Some(decision.history.clone());
            let effective = shown.desired_replicas;
            shown.set_decision(&decision, &rules, fixes);
            let outcome = if decision.proposal.is_ok() { "decided" } else { "held" };
            seat.failures = 0;
            let begun = Instant::now();
            if !self.apply_decision(seat, filled, fresh.as_deref(), &facts, &decision, shown).await
            {
                shown.desired_replicas = effective;
            }
            self.metrics.observe_step(ReconcileStep::Write, begun.elapsed());
            return (outcome, Requeue::Periodic);
        }
    }

    fn evaluate(&self, facts: &DecisionFacts<'_>, memory: &MetricHistory) -> Decision {
        let question = DecisionInput {
            rules: facts.rules,
            context: facts.context,
            metrics: facts.sources,
            blocked_reason: facts.blocked_reason,
            status: &facts.resolved_status,
            history: memory,
            now: facts.now,
            fixes: self.config.fixes,
        };
        question.decide()
    }

    /// Makes the change, if there is one, and tells of it. Ours is booked before it is made: whoever leads next sees
    /// that somebody was about to. `fresh` is the scale that is written back; a change without one is only said. Answers
    /// whether replicas are as decided, as far as anybody knows.
    async fn apply_decision(
        &self,
        seat: &mut ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        fresh: Option<&ScaleSubresource>,
        facts: &DecisionFacts<'_>,
        decision: &Decision,
        shown: &mut ExportedState,
    ) -> bool {
        let now = facts.now;
        let namespace = seat.object.namespace().unwrap_or_default();
        let writing = StatusBuilder {
            spec: filled,
            namespace: &namespace,
            compat: self.config.compat,
            skips_idle_events: self.config.skips_idle_events,
            now,
            fixes: self.config.fixes,
        };
        let settled = &facts.resolved_status;
        let last = settled.last_scale_time.as_ref().map(conditions::from_timestamp);
        // What somebody else wrote meanwhile stays, but for what a change that was never made had taken.
        let base = |before: &WatermarkPodAutoscalerStatus| {
            let mut base = before.clone();
            base.last_scale_time.clone_from(&settled.last_scale_time);
            base.scaling_events_count = settled.scaling_events_count;
            base
        };
        let made = match (&decision.change, fresh) {
            (None, _) => ScaleOutcome::NoChange,
            (Some(_), _) if filled.dry_run => ScaleOutcome::DryRun,
            (Some(_), None) => ScaleOutcome::Done,
            (Some(change), Some(fresh)) => {
                if self.config.compat == Compat::Plimsoll {
                    let booked = self
                        .write_status(seat, now, |before| {
                            writing.status(&base(before), decision, &ScaleOutcome::Pending)
                        })
                        .await;
                    if let Err(why) = booked {
                        // What cannot be booked is not done.
                        self.report_write_failure(seat, &why, STATUS_UPDATE_FAILED);
                        return false;
                    }
                }
                match self.update_scale(seat, fresh, change.to).await {
                    Ok(()) => {
                        Self::record_moved_replicas(
                            seat,
                            shown,
                            fresh.state.spec_replicas,
                            change.to,
                        );
                        ScaleOutcome::Done
                    }
                    // It is not ours to say any more: the next look of whoever leads settles it.
                    Err(WriteError::NotLeader) if self.config.compat == Compat::Plimsoll => {
                        return false;
                    }
                    Err(WriteError::NoResponse(why) | WriteError::Indeterminate(why))
                        if self.config.compat == Compat::Plimsoll =>
                    {
                        self.report_unknown_scale_outcome(seat, why, now).await;
                        return false;
                    }
                    Err(why) => ScaleOutcome::Failed(why.to_string()),
                }
            }
        };
        let written = self
            .write_status(seat, now, |before| writing.status(&base(before), decision, &made))
            .await;
        if let Err(why) = written {
            self.report_write_failure(
                seat,
                &why,
                StatusBuilder::status_failure_reason(decision, &made),
            );
        }
        let events = writing.events(decision, &made, last);
        self.emit_events(seat, events);
        if let (ScaleOutcome::Done, Some(change)) = (&made, &decision.change) {
            let (name, from, to) =
                (seat.object.name_any(), decision.scale.spec_replicas, change.to);
            let reason = &change.reason;
            match fresh {
                Some(_) => {
                    tracing::info!(namespace, name, from, to, reason, "replicas were changed");
                }
                None => {
                    tracing::info!(namespace, name, from, to, reason, "replicas would be changed");
                }
            }
        }
        !matches!(made, ScaleOutcome::Failed(_))
    }

    fn record_moved_replicas(
        seat: &mut ObjectState,
        shown: &mut ExportedState,
        from: i32,
        to: i32,
    ) {
        let (up, down) = seat.replicas_moved.unwrap_or_default();
        let by = u64::from(from.abs_diff(to));
        seat.replicas_moved = Some(if to > from { (up + by, down) } else { (up, down + by) });
        shown.replicas_moved = seat.replicas_moved;
    }
}
