//! In-place resize on a hollow node: pending, in progress, done, as a kubelet reports it. Pure.

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodStatus, ResourceRequirements,
};

use super::behaviour::ResizeBehaviour;
use super::pod_lifecycle::{StepContext, end, set_condition};
use super::resource_amounts::{ResourceAmounts, long_running_containers, same_resources};

const PENDING: &str = "PodResizePending";
const IN_PROGRESS: &str = "PodResizeInProgress";

/// Advances a pod's resize by one step; removes the conditions once the pod has the requested resources.
pub fn advance(pod: &Pod, status: &mut PodStatus, context: &StepContext) {
    let wanted: Vec<_> =
        long_running_containers(pod).filter(|container| differs(container, status)).collect();
    if wanted.is_empty() {
        remove(status, PENDING);
        remove(status, IN_PROGRESS);
        return;
    }
    if let Some((reason, message)) = pending_reason(pod, context) {
        set(pod, status, context, PENDING, Some(reason), Some(&message));
        return;
    }
    remove(status, PENDING);
    // A kubelet resizes all containers of a pod or none.
    let mut newly = false;
    for container in &wanted {
        let requests = requirements(container).requests;
        if let Some(found) = find(status, &container.name)
            && ResourceAmounts::of(found.allocated_resources.as_ref())
                != ResourceAmounts::of(requests.as_ref())
        {
            found.allocated_resources = requests;
            newly = true;
        }
    }
    let under_way = has(status, IN_PROGRESS);
    match &context.behaviour.resize {
        ResizeBehaviour::Failing(why) => {
            set(pod, status, context, IN_PROGRESS, Some("Error"), Some(why));
        }
        ResizeBehaviour::Stalled => set(pod, status, context, IN_PROGRESS, None, None),
        _ if newly || !under_way => set(pod, status, context, IN_PROGRESS, None, None),
        _ => {
            remove(status, IN_PROGRESS);
            for container in wanted {
                actuate(container, status, context);
            }
        }
    }
}

/// Whether a pod's resize is pending.
pub fn is_pending(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| has(status, PENDING))
}

/// Why a resize is pending, in a kubelet's words.
fn pending_reason(pod: &Pod, context: &StepContext) -> Option<(&'static str, String)> {
    let desired = ResourceAmounts::desired(pod);
    let infeasible = |what| ("Infeasible", format!("Node didn't have enough capacity: {what}"));
    let deferred = |what| ("Deferred", format!("Node didn't have enough resource: {what}"));
    match context.behaviour.resize {
        ResizeBehaviour::Infeasible => Some(infeasible("cpu")),
        ResizeBehaviour::Deferred => Some(deferred("cpu")),
        ResizeBehaviour::ByCapacity => desired
            .exceeded_resource(context.allocatable)
            .map(infeasible)
            .or_else(|| desired.exceeded_resource(context.free).map(deferred)),
        ResizeBehaviour::Stalled | ResizeBehaviour::Failing(_) => None,
    }
}

fn actuate(container: &Container, status: &mut PodStatus, context: &StepContext) {
    let Some(found) = find(status, &container.name) else { return };
    let (before, after) = (found.resources.clone().unwrap_or_default(), requirements(container));
    let changed = |pick: fn(ResourceAmounts) -> i64| {
        pick(ResourceAmounts::of(before.requests.as_ref()))
            != pick(ResourceAmounts::of(after.requests.as_ref()))
            || pick(ResourceAmounts::of(before.limits.as_ref()))
                != pick(ResourceAmounts::of(after.limits.as_ref()))
    };
    let restarts = container.resize_policy.iter().flatten().any(|policy| {
        policy.restart_policy == "RestartContainer"
            && if policy.resource_name == "cpu" {
                changed(|of| of.cpu)
            } else {
                changed(|of| of.memory)
            }
    });
    found.resources = Some(after);
    if restarts {
        end(found, 137, "Error", context.now);
    }
}

fn differs(container: &Container, status: &PodStatus) -> bool {
    statuses(status)
        .find(|found| found.name == container.name)
        .and_then(|found| found.resources.as_ref())
        .is_some_and(|actual| !same_resources(actual, &requirements(container)))
}

fn requirements(container: &Container) -> ResourceRequirements {
    container.resources.clone().unwrap_or_default()
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status.init_container_statuses.iter().chain(&status.container_statuses).flatten()
}

fn find<'a>(status: &'a mut PodStatus, name: &str) -> Option<&'a mut ContainerStatus> {
    status
        .init_container_statuses
        .iter_mut()
        .chain(&mut status.container_statuses)
        .flatten()
        .find(|found| found.name == name)
}

fn has(status: &PodStatus, kind: &str) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == kind)
}

fn remove(status: &mut PodStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
    }
}

fn set(
    pod: &Pod,
    status: &mut PodStatus,
    context: &StepContext,
    kind: &str,
    reason: Option<&str>,
    message: Option<&str>,
) {
    set_condition(status, kind, "True", reason, message, pod.metadata.generation, context.now);
}
