//! One pass over one object: turns an observation into a decision.

use super::{
    bounds::{self, LimitedBy},
    combine::combine,
    conditions::{
        ABLE_TO_SCALE, Condition, Conditions, SCALE_DOWN_STABILIZED, SCALE_UP_STABILIZED,
        SCALED_TO_ZERO, SCALING_ACTIVE, SCALING_LIMITED,
    },
    decision::{Decision, EventStage, EventType, Zone},
    evaluation::{Context, Evaluation, evaluate, request},
    fixes::Fix,
    labels::{Action, Failure},
    observed::{Bounds, Observed, ScaleError, ScaleValues, is_podless},
    pod::Pod,
    pod_groups::ReadinessRules,
    proposal::{Calculator, UnchangedReason},
    samples::{Answer, Fetched, MetricRequest},
    scale_rate::Rates,
    selector::Selector,
    spec::Metric,
    stabilization::{self, Direction},
};
use crate::scaling::Restriction;

/// The metric requests to send: one entry per metric, `None` if it needs no request. Empty if metrics are not used.
pub fn metric_requests(observed: &Observed<'_>) -> Vec<Option<MetricRequest>> {
    let Ok(scale) = observed.scale else { return Vec::new() };
    if observed.zone(scale) != Zone::Metrics {
        return Vec::new();
    }
    let Ok(selector) = observed.select(scale) else { return Vec::new() };
    let metrics = observed.metrics();
    metrics.map(|metric| request(metric, &selector, observed.namespace)).collect()
}

/// Decides how many replicas the target gets. `answers` are the responses to [`metric_requests`], in the same order.
pub fn decide(observed: &Observed<'_>, answers: &[Option<Fetched>]) -> Decision {
    let config = observed.options.config(observed.config);
    let fixes = observed.options.fixes(observed.fixes);
    let observed = &Observed { config: &config, fixes, ..*observed };
    let mut decision = undecided(observed);
    let scale = match observed.scale {
        Ok(scale) => scale,
        Err(error) => {
            let message =
                format!("the HPA controller was unable to get the target's current scale: {error}");
            decision.emit(
                EventType::Warning,
                "FailedGetScale",
                error.to_string(),
                EventStage::Target,
            );
            decision.set_condition(Condition::new(ABLE_TO_SCALE, false, "FailedGetScale", message));
            decision.restrict(Restriction::NoScale);
            decision.failure = match error {
                ScaleError::InvalidApiVersion(_) => Failure::Spec,
                ScaleError::Failed(_) => Failure::Internal,
            };
            decision.error = Some(error.to_string());
            decision.show_conditions();
            return decision;
        }
    };
    let message = "the HPA controller was able to get the target's current scale";
    decision.set_condition(Condition::new(ABLE_TO_SCALE, true, "SucceededGetScale", message));
    decision.current = Some(scale.replicas);
    decision.memory.seed(scale.replicas, observed.now);
    decision.memory.scaled_to_zero &= scale.replicas == 0;
    decision.zone = observed.zone(scale);
    if decision.zone != Zone::Metrics || observed.options.fallback.is_none() {
        decision.memory.failing_since = None;
    }
    let desired = match decision.zone {
        Zone::AboveMax => {
            "Current number of replicas above Spec.MaxReplicas"
                .clone_into(&mut decision.rescale_reason);
            decision.restrict(Restriction::Max);
            Some(observed.spec.max_replicas)
        }
        Zone::BelowMin => {
            below_min(observed, &mut decision);
            decision.restrict(Restriction::Min);
            Some(observed.bounds().min)
        }
        Zone::Disabled | Zone::NoScale => {
            let message = "scaling is disabled since the replica count of the target is zero";
            decision.set_condition(Condition::new(
                SCALING_ACTIVE,
                false,
                "ScalingDisabled",
                message,
            ));
            if !observed.config.scale_to_zero {
                decision.conditions.remove(SCALED_TO_ZERO);
            }
            decision.restrict(Restriction::Disabled);
            Some(scale.replicas)
        }
        Zone::Metrics => by_metrics(observed, scale, answers, &mut decision),
    };
    let desired = paused(observed, scale.replicas, desired, &mut decision);
    let Some(desired) = desired else {
        decision.failure = Failure::Internal;
        let message = decision.error.clone().unwrap_or_default();
        decision.emit(
            EventType::Warning,
            "FailedComputeMetricsReplicas",
            message,
            EventStage::AfterStatus,
        );
        decision.fill_status(None, false);
        return decision;
    };
    decision.desired = Some(desired);
    decision.write = (desired != scale.replicas).then_some(desired);
    if decision.error.is_some() {
        decision.failure = Failure::Internal;
    }
    decision.scaled_to_zero = observed.config.scale_to_zero.then(|| {
        let is_podless = observed.spec.has_object_or_external_metric();
        scale.replicas > 0 && desired == 0 && observed.spec.min_replicas == 0 && is_podless
    });
    if decision.write.is_none() {
        decision.fill_status(Some(desired), false);
    }
    decision
}

/// The reason for adding replicas up to the minimum.
fn below_min(observed: &Observed<'_>, decision: &mut Decision) {
    let Bounds { min, .. } = observed.bounds();
    decision.rescale_reason = if min == observed.spec.min_replicas {
        "Current number of replicas below Spec.MinReplicas".to_owned()
    } else {
        format!("Current number of replicas below {min} of the schedule")
    };
}

/// The replicas in place of the desired ones if the object is paused. The bounds of the spec apply nevertheless.
fn paused(
    observed: &Observed<'_>,
    current: i32,
    desired: Option<i32>,
    decision: &mut Decision,
) -> Option<i32> {
    let pause = observed.options.pause.filter(|pause| pause.is_active(observed.now));
    let Some(pause) = pause.filter(|_| decision.zone != Zone::Disabled) else { return desired };
    let mut replicas = pause.apply(current, desired)?;
    if current > 0 {
        let min = observed.spec.min_replicas;
        let min = desired.map_or(min, |desired| min.min(desired));
        replicas = replicas.max(min).min(observed.spec.max_replicas);
    }
    if Some(replicas) != desired {
        decision.restrict(Restriction::Paused);
        decision.rescale_reason = match pause.at {
            Some(at) if replicas != current => format!("scaling is paused at {at} replicas"),
            _ => String::new(),
        };
    }
    Some(replicas)
}

fn undecided(observed: &Observed<'_>) -> Decision {
    let Bounds { min, max } = observed.bounds();
    Decision {
        at: observed.now,
        zone: Zone::NoScale,
        current: None,
        bounds: (min, max),
        evaluations: Vec::new(),
        winner: None,
        stabilization: None,
        limited: None,
        restrictions: Vec::new(),
        desired: None,
        write: None,
        rescale_reason: String::new(),
        error: None,
        events: Vec::new(),
        status: observed.status.clone(),
        memory: observed.memory.clone().of_object(observed.uid, observed.fixes),
        action: Action::None,
        failure: Failure::None,
        conditions: Conditions(observed.status.conditions.clone().unwrap_or_default()),
        behavior: observed.spec.behavior.clone(),
        may_be_zero: observed.may_be_zero(),
        scaled_to_zero: None,
    }
}

/// Computes the desired replicas from metrics, windows, rates and bounds; `None` if nothing may be changed.
fn by_metrics(
    observed: &Observed<'_>,
    scale: &ScaleValues,
    answers: &[Option<Fetched>],
    decision: &mut Decision,
) -> Option<i32> {
    let selector = match observed.select(scale) {
        Ok(selector) => selector,
        Err(unselected) => {
            let (reason, message) = unselected.event;
            let condition = unselected.condition;
            decision.error = Some(message.clone());
            decision.emit(EventType::Warning, reason, message, EventStage::Target);
            decision.set_condition(Condition::new(
                SCALING_ACTIVE,
                false,
                unselected.reason,
                condition,
            ));
            decision.restrict(unselected.restriction);
            return None;
        }
    };
    evaluate_metrics(observed, &selector, scale, answers, decision);
    let partial_holds = observed.options.partial_metrics_hold;
    let combined = combine(&decision.evaluations, scale.replicas, partial_holds);
    decision.winner = combined.winner;
    decision.error = combined.error;
    decision.set_condition(combined.condition);
    let all_failed = decision.evaluations.iter().all(|evaluation| evaluation.outcome.is_err());
    if all_failed || decision.error.is_some() {
        decision.restrict(if all_failed {
            Restriction::MetricUnknown
        } else {
            Restriction::PartialMetrics
        });
    }
    let current = scale.replicas;
    let fallback = fallback_replicas(observed, current, combined.replicas, decision);
    let idle = is_idle(observed, current, decision);
    let recommended = match fallback.or(combined.replicas) {
        Some(_) if idle => 0,
        Some(replicas) => replicas.max(0),
        // Without any metric there is no error either, and upstream continues with 0 replicas.
        None if decision.error.is_none() && observed.fixes.has(Fix::NoMetricHolds) => {
            decision.error = Some("the HorizontalPodAutoscaler has no metrics".to_owned());
            return None;
        }
        None if decision.error.is_none() => 0,
        None => return None,
    };
    if let Some(fallback) = fallback {
        decision.winner = None;
        decision.restrict(Restriction::Fallback);
        decision.rescale_reason =
            format!("metrics are not available, scaling to the fallback of {fallback} replicas");
    } else if recommended > current {
        let winner = combined.winner.and_then(|index| decision.evaluations.get(index));
        decision.rescale_reason =
            format!("{} above target", winner.map_or("", |evaluation| evaluation.name.as_str()));
    } else if recommended < current {
        "All metrics below target".clone_into(&mut decision.rescale_reason);
    }
    if let Some(kept) = decision
        .winner
        .and_then(|index| decision.evaluations.get(index)?.outcome.as_ref().ok()?.kept)
    {
        decision.restrict(match kept {
            UnchangedReason::WithinTolerance => Restriction::WithinTolerance,
            _ => Restriction::Padding,
        });
    }
    // A metric that is not available does not start a workload either.
    let stays_zero = current == 0 && recommended == 0 && observed.may_be_zero();
    let mut desired = normalize(observed, current, recommended, idle || stays_zero, decision);
    let Bounds { min, .. } = observed.bounds();
    if current == 0 && min != 0 && desired < min && !stays_zero {
        // The target was scaled to zero while the minimum was 0.
        desired = min;
        if decision.rescale_reason.is_empty() {
            below_min(observed, decision);
        }
    }
    Some(desired)
}

/// The fallback, if some metric has not been available for long enough and the others ask for less. It never removes
/// replicas, and never starts a workload that has none.
fn fallback_replicas(
    observed: &Observed<'_>,
    current: i32,
    proposed: Option<i32>,
    decision: &mut Decision,
) -> Option<i32> {
    let fallback = observed.options.fallback?;
    let has_failed = decision.evaluations.iter().any(|evaluation| evaluation.outcome.is_err());
    let since = decision.memory.failing_since.unwrap_or(observed.now);
    decision.memory.failing_since = has_failed.then_some(since);
    let is_due = has_failed && since.later(fallback.after) <= observed.now;
    let known = proposed.unwrap_or(current).max(current);
    (is_due && current > 0 && fallback.replicas > known).then_some(fallback.replicas)
}

/// Whether the target may be scaled to zero: it is at the minimum, each metric is available, all that exist without pods are
/// zero, and the others do not ask for more.
fn is_idle(observed: &Observed<'_>, current: i32, decision: &Decision) -> bool {
    let is_quiet = |(metric, evaluation): (&Metric, &Evaluation)| match &evaluation.outcome {
        Ok(proposal) if is_podless(metric) => proposal.value == 0,
        Ok(proposal) => proposal.replicas <= current,
        // Without pods they have no usage.
        Err(_) => current == 0 && !is_podless(metric),
    };
    observed.may_be_zero()
        && current <= observed.bounds().min.max(1)
        && observed.metrics().zip(&decision.evaluations).all(is_quiet)
}

fn evaluate_metrics(
    observed: &Observed<'_>,
    selector: &Selector,
    scale: &ScaleValues,
    answers: &[Option<Fetched>],
    decision: &mut Decision,
) {
    let selected = observed.pods.iter().filter(|pod| selector.matches(&pod.labels));
    let (foreign, own): (Vec<&Pod>, Vec<&Pod>) =
        selected.partition(|pod| pod.is_foreign && observed.fixes.has(Fix::OnlyOwnPodsCount));
    let context = Context {
        namespace: observed.namespace,
        previous_replicas: observed.status.current_replicas.unwrap_or(0),
        calculator: Calculator {
            replicas: scale.replicas,
            status_replicas: scale.status_replicas,
            pods: &own,
            tolerance: observed.tolerance(),
            missing_pods_percent: observed.options.missing_pods_percent,
            readiness: ReadinessRules::new(observed.config, observed.now),
            fixes: observed.fixes,
        },
        pod_level_resources: observed.config.pod_level_resources,
        utilization_of: observed.options.utilization_of.unwrap_or_default(),
    };
    for (index, metric) in observed.metrics().enumerate() {
        let fetched = answers.get(index).and_then(Option::as_ref);
        let without_foreign =
            fetched.filter(|_| !foreign.is_empty()).map(|fetched| without(fetched, &foreign));
        let evaluation = evaluate(metric, without_foreign.as_ref().or(fetched), &context);
        if let Err(failed) = &evaluation.outcome {
            let message = failed.error.to_string();
            decision.emit(EventType::Warning, failed.reason, message, EventStage::Metric(index));
        }
        decision.evaluations.push(evaluation);
    }
}

/// Applies stabilization windows, then rates and bounds.
fn normalize(
    observed: &Observed<'_>,
    current: i32,
    recommended: i32,
    may_be_zero: bool,
    decision: &mut Decision,
) -> i32 {
    let window = observed.config.downscale_stabilization;
    let memory = &mut decision.memory;
    let behavior = observed.spec.behavior.as_ref();
    let stabilization = match behavior {
        None => stabilization::without_behavior(
            memory,
            recommended,
            current,
            window,
            observed.now,
            observed.fixes,
        ),
        Some(behavior) => stabilization::with_behavior(
            memory,
            recommended,
            current,
            behavior,
            window,
            observed.now,
        ),
    };
    let (reason, message) = match stabilization.held.map(|held| held.direction) {
        None => ("ReadyForNewScale", "recommended size matches current size"),
        Some(Direction::Down) => (
            SCALE_DOWN_STABILIZED,
            "recent recommendations were higher than current one, applying the highest recent recommendation",
        ),
        Some(Direction::Up) => (
            SCALE_UP_STABILIZED,
            "recent recommendations were lower than current one, applying the lowest recent recommendation",
        ),
    };
    decision.set_condition(Condition::new(ABLE_TO_SCALE, true, reason, message));
    match stabilization.held.map(|held| held.direction) {
        None => {}
        Some(Direction::Down) => decision.restrict(Restriction::StabilizedDown),
        Some(Direction::Up) => decision.restrict(Restriction::StabilizedUp),
    }
    let Bounds { mut min, mut max } = observed.bounds();
    if may_be_zero && stabilization.stabilized == 0 {
        // The minimum applies while there is load.
        min = 0;
    }
    if decision.error.is_some() {
        // Some metric is not available, so nothing may be removed.
        max = max.max(current);
    }
    // A maximum of the schedule may be below the current replicas, which the rules below do not expect.
    let wanted = stabilization.stabilized;
    let is_capped = wanted > max && max < observed.spec.max_replicas;
    let wanted = if is_capped { max } else { wanted };
    let mut limited = match behavior {
        None => bounds::without_behavior(current, wanted, min, max),
        Some(behavior) => {
            let rates = Rates {
                behavior,
                memory: &decision.memory,
                now: observed.now,
                fixes: observed.fixes,
            };
            rates.limit(current, wanted, min, max)
        }
    };
    if is_capped {
        limited.wanted = stabilization.stabilized;
        if limited.by == LimitedBy::Nothing {
            limited.by = LimitedBy::Max;
        }
    }
    let (reason, message) = limited.by.condition();
    let is_limited = limited.replicas != limited.wanted;
    decision.set_condition(Condition::new(SCALING_LIMITED, is_limited, reason, message));
    match limited.by {
        LimitedBy::Nothing => {}
        LimitedBy::Min => decision.restrict(Restriction::Min),
        LimitedBy::Max => decision.restrict(Restriction::Max),
        LimitedBy::ScaleUpRate => decision.restrict(Restriction::ScaleUpLimit),
        LimitedBy::ScaleDownRate => decision.restrict(Restriction::ScaleDownLimit),
    }
    let replicas = limited.replicas;
    decision.stabilization = Some(stabilization);
    decision.limited = Some(limited);
    replicas
}

/// A response without the samples of some pods.
fn without(fetched: &Fetched, pods: &[&Pod]) -> Fetched {
    let is_listed = |name: &str| pods.iter().any(|pod| pod.name == name);
    let mut answer = fetched.clone()?;
    match &mut answer {
        Answer::Resource(samples) => samples.retain(|sample| !is_listed(&sample.pod)),
        Answer::Pods(samples) => samples.retain(|sample| !is_listed(&sample.pod)),
        Answer::Object(_) | Answer::External(_) => {}
    }
    Ok(answer)
}
