//! The reconcile of one object, from its spec to a decision that is compared with that of the HPA controller.

use std::sync::Arc;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use plimsoll_core::{
    hpa::{
        Answer, Config, Decision, Fetched, Fixes, HpaState, MetricRequest, Observed, Pod,
        ScaleError, ScaleValues, Selector, Spec,
        comparison::{Comparison, ShadowRules},
        decide,
        hpa_state::Windows,
        metric_requests,
        pod_groups::PodCounts,
        scale_decision,
        status_values::StatusValues,
    },
    types::ObjectKey,
};

use super::{
    super::replicas::{
        OwnershipRule, ReconcileResult, ReplicaAutoscaler as _, Requeue, matching_pods,
    },
    HorizontalController,
    autoscaler::{HorizontalAutoscaler, ObjectState},
    horizontal_pod::HorizontalPod,
};
use crate::{
    cluster::target::scale::{ScaleReadError, ScaleState},
    telemetry::ExportedState,
};

/// Reconciles an object: decides, and compares the decision with the status.
pub(super) async fn reconcile(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &mut ObjectState,
) -> ReconcileResult {
    let now = controller.clock.now();
    let object = Arc::clone(&state.object);
    let spec = object.spec.clone().unwrap_or_default();
    let spec = Spec::read(&spec);
    state.last_reconcile = Some(now);
    let Ok(spec) = spec else {
        // The API server stores no such quantities. Only a change of the object can fix it.
        state.exported = None;
        return ("invalid", Requeue::OnChange);
    };
    let status = object.status.clone().unwrap_or_default();
    let scale = read_scale(controller, key, state).await;
    let pods = match &scale {
        Ok(scale) => read_pods(controller, key, state, scale).await,
        Err(_) => Vec::new(),
    };
    let others = others(controller, key, scale.as_ref().ok(), &pods);
    let autoscaler = &controller.autoscaler;
    let uid = object.metadata.uid.as_deref();
    let scale = scale.as_ref().map(|scale| &scale.values);
    let behavior = spec.behavior.as_ref();
    if let Ok(scale) = scale
        && let Some((from, at)) = state.own.shadow.observe_scale(scale.replicas, &status)
        && let Some(behavior) = behavior
    {
        for memory in [&mut state.own.compared_memory, &mut state.own.memory] {
            memory.scaled(from, scale.replicas, behavior, at);
        }
    }
    // The API server accepts a minimum of 0 only with the feature gate HPAScaleToZero.
    let config = Config { scale_to_zero: spec.min_replicas == 0, ..autoscaler.config.hpa };
    let observed = Observed {
        namespace: &key.namespace,
        name: &key.name,
        uid,
        spec: &spec,
        status: &status,
        scale,
        pods: &pods,
        others: &others,
        memory: &state.own.compared_memory,
        config: &config,
        fixes: Fixes::UPSTREAM,
        now,
    };
    let period = autoscaler.config.period;
    let reported_replicas =
        scale.map_or(0, |scale| state.own.shadow.reported_replicas(scale, &status, period, now));
    let answers = fetch(autoscaler, key, &observed, reported_replicas).await;
    let compared = decide(&observed, &answers);
    let own = Observed { memory: &state.own.memory, fixes: autoscaler.config.fixes, ..observed };
    let decision = decide(&own, &answers);
    let record = scale_decision(&decision, &own, &state.own.last_decision);
    let record = Arc::new(record);
    let mut exported = exported_state(&spec, &object, state.exported.as_deref(), autoscaler);
    exported.reconciled_at = now;
    exported.pods = pod_counts(&decision, &pods);
    exported.shadow_difference =
        decision.desired.map(|desired| desired.saturating_sub(status.desired_replicas));
    exported.set_decision(Arc::clone(&record));
    let windows = Windows::of(behavior, autoscaler.config.hpa.downscale_stabilization);
    let rules = ShadowRules { period, windows };
    for result in state.own.shadow.compare(&compared, &status, rules) {
        autoscaler.metrics.count_comparison(result);
        if result == Comparison::Unexplained {
            tracing::debug!(
                %key, ours = compared.desired, theirs = status.desired_replicas,
                "decision differs from that of the HPA controller"
            );
        }
    }
    let is_error = compared.desired.is_none();
    let compact = |memory: &HpaState| memory.compact(windows, now);
    state.own.compared_memory = compact(&compared.memory);
    state.own.memory = compact(&decision.memory);
    state.own.last_decision = record;
    state.exported = Some(Arc::new(exported));
    (if is_error { "held" } else { "decided" }, Requeue::Periodic)
}

/// The scale of a target.
struct TargetScale {
    state: ScaleState,
    values: ScaleValues,
}

async fn read_scale(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &mut ObjectState,
) -> Result<TargetScale, ScaleError> {
    let target = HorizontalAutoscaler::target(&state.object);
    let target = controller.workloads.target(&key.namespace, &target);
    let observed = controller.workloads.observe_scale(target, false, &mut state.scale_version);
    let observed = observed.await.map_err(|error| match error {
        ScaleReadError::InvalidVersion(_) => ScaleError::InvalidApiVersion(error.to_string()),
        _ => ScaleError::Failed(error.to_string()),
    })?;
    let state = observed.values().clone();
    let values = ScaleValues {
        replicas: state.spec_replicas,
        status_replicas: state.status_replicas,
        selector: state.selector.as_ref().map_or_else(|_| String::new(), ToString::to_string),
    };
    Ok(TargetScale { state, values })
}

async fn read_pods(
    controller: &HorizontalController,
    key: &ObjectKey,
    state: &ObjectState,
    scale: &TargetScale,
) -> Vec<Pod> {
    // Without a selector nothing is decided.
    if scale.values.selector.is_empty() {
        return Vec::new();
    }
    let target = HorizontalAutoscaler::target(&state.object);
    let (workloads, rule) = (&controller.workloads, OwnershipRule::OwnerChain);
    let to_pod = HorizontalPod::to_pod;
    let pods = matching_pods(workloads, &key.namespace, &target, &scale.state, rule, to_pod);
    let pods = pods.await.into_iter();
    pods.map(|(pod, is_own)| Pod { is_foreign: !is_own, ..pod }).collect()
}

/// Other objects that select the same pods.
fn others(
    controller: &HorizontalController,
    key: &ObjectKey,
    scale: Option<&TargetScale>,
    pods: &[Pod],
) -> Vec<(String, Selector)> {
    let index = &controller.autoscaler.selectors;
    let text = scale.map(|scale| &*scale.values.selector).filter(|text| !text.is_empty());
    let Some(Ok(selector)) = text.map(Selector::parse) else {
        index.remove(key);
        return Vec::new();
    };
    index.set(key, &selector);
    index.others(key, pods)
}

/// The responses to all requests: usage is fetched once for a namespace, everything else is taken from the status.
async fn fetch(
    autoscaler: &HorizontalAutoscaler,
    key: &ObjectKey,
    observed: &Observed<'_>,
    reported_replicas: i32,
) -> Vec<Option<Fetched>> {
    let (requests, empty) = (metric_requests(observed), ScaleValues::default());
    let is_usage =
        |request: &Option<MetricRequest>| matches!(request, Some(MetricRequest::Resource { .. }));
    let mut usage: Fetched = Err(String::new());
    if requests.iter().any(is_usage) {
        let namespace = autoscaler.usage.get(&key.namespace).await;
        usage = match &*namespace {
            Ok(namespace) => {
                let pods = observed.pods.iter();
                let usage = pods.filter_map(|pod| namespace.get(&pod.name).cloned());
                Ok(Answer::Resource(usage.collect()))
            }
            Err(error) => Err(error.clone()),
        };
    }
    let values = StatusValues {
        status: observed.status,
        scale: observed.scale.unwrap_or(&empty),
        reported_replicas,
        pods: observed.pods,
        now: observed.now,
    };
    let answers = requests.into_iter().zip(values.answers(observed.spec));
    let answer = |(request, from_status): (Option<MetricRequest>, Option<Fetched>)| {
        if is_usage(&request) { Some(usage.clone()) } else { request.and(from_status) }
    };
    answers.map(answer).collect()
}

/// The pods by how they counted for the metric that decided.
fn pod_counts(decision: &Decision, pods: &[Pod]) -> Option<PodCounts> {
    let winner = decision.evaluations.get(decision.winner?)?;
    let groups = winner.outcome.as_ref().ok()?.groups.as_ref()?;
    let foreign = pods.iter().filter(|pod| pod.is_foreign).count();
    Some(PodCounts::new(groups, foreign))
}

/// The exported state according to the spec, with the rest taken from the previous state.
fn exported_state(
    spec: &Spec,
    object: &HorizontalPodAutoscaler,
    before: Option<&ExportedState>,
    autoscaler: &HorizontalAutoscaler,
) -> ExportedState {
    let target = HorizontalAutoscaler::target(object);
    ExportedState {
        target: (target.kind.clone(), target.name.clone()),
        dry_run: true,
        bounds: (spec.min_replicas, spec.max_replicas),
        update_mode: autoscaler.config.mode.as_str(),
        decision: None,
        ..before.cloned().unwrap_or_default()
    }
}
