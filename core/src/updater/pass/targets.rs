//! The targets of autoscalers of replicas that change together with the requests of pods.

use super::workload::{PassWorkload, PodView};
use crate::{
    api::{ResourceList, ResourceName},
    coordination::{Retargetable, SharedRequest, SharedRequestRule, TargetChange},
    sizing::{self, SizedContainer},
    types::Quantity,
    updater::action::{Action, StepResult, UpdateStep},
};

/// The targets that have to be written before a step. `steps` are the earlier ones of the pass.
pub(super) fn before_step(
    workload: &PassWorkload<'_>,
    steps: &[(UpdateStep, StepResult)],
    step: &UpdateStep,
) -> Vec<TargetChange> {
    if !changes_requests(&step.action) {
        return Vec::new();
    }
    let earlier: Vec<_> = steps
        .iter()
        .filter(|(_, result)| matches!(result, StepResult::Done | StepResult::Indeterminate))
        .filter(|(step, _)| changes_requests(&step.action))
        .map(|(step, _)| (step.pod, sizes_after(workload, step)))
        .collect();
    let own = (step.pod, sizes_after(workload, step));
    let change = |request: &SharedRequest| {
        let found = retargetable(request)?;
        let mean = |is_after: bool| {
            let views = workload.views.iter().enumerate();
            let counted = views.filter(|(pod, view)| *pod == step.pod || !view.is_boosted);
            let requests = counted.filter_map(|(pod, view)| {
                let changed = earlier.iter().chain(is_after.then_some(&own)).rev();
                let sizes = changed.into_iter().find(|(changed, _)| *changed == pod);
                request_of(view, request, sizes.map_or(&[], |(_, sizes)| sizes))
            });
            mean_of(requests)
        };
        let (before, after) = (mean(false)?, mean(true)?);
        (before != after).then(|| TargetChange {
            hpa: request.hpa.clone(),
            target: found.target.clone(),
            percent: found.target.percent_for_step(before, after),
        })
    };
    workload.subject.sizing.spec.shared_requests.iter().filter_map(change).collect()
}

/// The targets that were written for earlier steps and differ from those that belong to the requests of the pods, while no pod
/// changes.
pub(super) fn of_settled_pods(workload: &PassWorkload<'_>) -> Vec<TargetChange> {
    let is_settled = |view: &PodView<'_>| {
        let is_moving = view.is_evicted || view.is_boosted || view.resize_phase.is_under_way();
        view.pod.status.is_ready() && !is_moving && !view.pod.status.is_resizing()
    };
    if workload.missing_pods() > 0 || !workload.views.iter().all(is_settled) {
        return Vec::new();
    }
    let change = |request: &SharedRequest| {
        let target = &retargetable(request).filter(|found| found.is_recorded)?.target;
        let requests: Option<Vec<i64>> =
            workload.views.iter().map(|view| request_of(view, request, &[])).collect();
        let percent = target.percent(mean_of(requests?.into_iter())?);
        (percent != target.written).then(|| TargetChange {
            hpa: request.hpa.clone(),
            target: target.clone(),
            percent,
        })
    };
    workload.subject.sizing.spec.shared_requests.iter().filter_map(change).collect()
}

fn retargetable(request: &SharedRequest) -> Option<&Retargetable> {
    let is_changeable = matches!(request.rule, SharedRequestRule::Within { .. });
    request.target.as_ref().filter(|_| is_changeable)?.as_ref().ok()
}

const fn changes_requests(action: &Action) -> bool {
    matches!(action, Action::Evict { .. } | Action::Resize { .. })
}

/// The sizes of a pod after a step. A replacement gets the recommendation of the moment, whether or not a change of the
/// request waits.
fn sizes_after(workload: &PassWorkload<'_>, step: &UpdateStep) -> Vec<SizedContainer> {
    if let Action::Resize { sized_containers, .. } = &step.action {
        return sized_containers.clone();
    }
    let sizing = &workload.subject.sizing;
    let pod = &workload.views[step.pod].pod.spec;
    let sizes = sizing::size_containers(pod, &sizing.spec, sizing.limit_ranges, sizing.rules);
    // If it cannot be sized, the pod is not evicted.
    sizes.unwrap_or_default()
}

/// The request of a pod that counts, with these sizes; `None` if a container that counts has none. While a resize is not
/// actuated, the lower of both requests counts: it has the higher target, with which replicas are not added.
fn request_of(
    view: &PodView<'_>,
    request: &SharedRequest,
    sizes: &[SizedContainer],
) -> Option<i64> {
    let resource = ResourceName::from(request.resource);
    let milli = |list: &ResourceList| list.get(&resource).map(Quantity::milli_value);
    let containers = view.pod.spec.sized_containers(true);
    let mut counted =
        containers.filter(|(_, container)| request.counts(&container.name)).peekable();
    counted.peek()?;
    counted.try_fold(0_i64, |sum, (container_ref, container)| {
        let size = sizes.iter().find(|size| size.container == container_ref);
        let of_pod = || {
            let spec = milli(container.spec.requests())?;
            let actual = milli(container.actual().requests());
            Some(actual.map_or(spec, |actual| actual.min(spec)))
        };
        let own = size.and_then(|size| milli(&size.requests)).or_else(of_pod)?;
        Some(sum.saturating_add(own))
    })
}

fn mean_of(requests: impl Iterator<Item = i64>) -> Option<i64> {
    let (sum, count) =
        requests.fold((0_i64, 0_i64), |(sum, count), one| (sum.saturating_add(one), count + 1));
    sum.checked_div(count)
}
