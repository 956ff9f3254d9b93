//! Requests that an autoscaler of replicas uses too: whether that of a pod may be changed now. A request that may not is
//! left out of the pod's recommendation, so that the other resources are changed as usual.

use std::{borrow::Cow, time::Duration};

use super::{PassContext, VpaWithPods, workload::PodView};
use crate::{
    api::{ResourceName, vpa::UpdateMode},
    coordination::{
        ChangeReason, Hold, RequestRange, Resource, SharedRequest, SharedRequestRule,
        change_timing::{MIN_CHANGE_INTERVAL, Timing, wanted_change},
        decide::Recommended,
    },
    types::Time,
    updater::{
        guard::WorkloadState, in_place::is_non_disruptive, priority::recommendation_for,
        settings::Settings, update_reason::had_quick_oom,
    },
};

/// How far the creation time of a pod may be before its change began, although it is a result of it: it is in whole seconds, and
/// of the clock of the API server.
const CREATION_TIME_ERROR: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct PodSharedRequests<'a> {
    resized: Cow<'a, [SharedRequest]>,
    evicted: Cow<'a, [SharedRequest]>,
    /// The resources whose change begins with that of this pod.
    begins: Vec<Resource>,
    /// Whether a pod of the VPA is resized if possible.
    is_in_place: bool,
}

impl<'a> PodSharedRequests<'a> {
    pub fn new(
        view: &PodView<'_>,
        subject: &VpaWithPods<'a>,
        context: &PassContext<'_>,
        state: &WorkloadState,
        settings: &Settings,
    ) -> Self {
        let shared = subject.sizing.spec.shared_requests;
        let mode = subject.sizing.spec.update_mode();
        let is_in_place = matches!(mode, UpdateMode::InPlace | UpdateMode::InPlaceOrRecreate)
            && context.can_resize;
        let mut requests = Self {
            resized: Cow::Borrowed(shared),
            evicted: Cow::Borrowed(shared),
            begins: Vec::new(),
            is_in_place,
        };
        // The request of a pod with a boost is not that of the workload.
        if view.is_boosted || shared.iter().all(|request| !is_changeable(request)) {
            return requests;
        }
        let Ok(recommendation) = subject.sizing.recommendation(&view.pod.spec) else {
            return requests;
        };
        for (index, request) in shared.iter().enumerate().filter(|(_, one)| is_changeable(one)) {
            let change = WantedChange::new(view, &recommendation, request, settings);
            let Some(change) = change else { continue };
            if change.is_raise
                && request.resource == Resource::Memory
                && had_quick_oom(
                    &view.pod.status,
                    &view.observed,
                    subject.sizing.spec.spec,
                    settings,
                    context.now,
                )
            {
                continue;
            }
            let changed = state.request_changed(request.resource);
            if changed.is_some_and(|at| is_under_way(at, view.created_or_resized, context.now)) {
                continue;
            }
            let timing = Timing {
                replicas: request.replicas,
                lacks_replicas: request.lacks_replicas,
                can_raise_in_place: is_in_place && is_non_disruptive(&view.pod.spec),
                changed,
                now: context.now,
            };
            let hold = |timing: Timing| timing.hold(change.is_raise, change.reason);
            let in_place = hold(timing);
            wait(&mut requests.resized, index, in_place);
            wait(
                &mut requests.evicted,
                index,
                hold(Timing { can_raise_in_place: false, ..timing }),
            );
            if in_place.is_none() {
                requests.begins.push(request.resource);
            }
        }
        requests
    }

    /// Those that apply to what is tried first.
    pub fn first(&self) -> &[SharedRequest] {
        if self.is_in_place { &self.resized } else { &self.evicted }
    }

    /// Those that apply if the pod is evicted; `None` if they are the same.
    pub fn other_if_evicted(&self) -> Option<&[SharedRequest]> {
        (self.first() != &*self.evicted).then_some(&*self.evicted)
    }

    /// The resources whose change begins with that of this pod.
    pub fn begins(&self, is_eviction: bool) -> impl Iterator<Item = Resource> {
        let shared = if is_eviction { &self.evicted } else { &self.resized };
        self.begins.iter().copied().filter(move |resource| {
            let mut of_resource = shared.iter().filter(|request| request.resource == *resource);
            of_resource.any(is_changeable)
        })
    }
}

/// Whether the request may be changed at all.
fn is_changeable(request: &SharedRequest) -> bool {
    match request.rule {
        SharedRequestRule::AtLeast(_)
        | SharedRequestRule::Within { .. }
        | SharedRequestRule::AtMaxReplicas(_)
        | SharedRequestRule::Idle => true,
        SharedRequestRule::Held | SharedRequestRule::Waits(_) => false,
    }
}

/// Whether a pod that was created or last resized at `pod_changed` is left of a change that began at `began`.
fn is_under_way(began: Time, pod_changed: Time, now: Time) -> bool {
    now < began.later(MIN_CHANGE_INTERVAL) && pod_changed.later(CREATION_TIME_ERROR) < began
}

fn wait(requests: &mut Cow<'_, [SharedRequest]>, index: usize, hold: Option<Hold>) {
    if let Some(hold) = hold
        && let Some(request) = requests.to_mut().get_mut(index)
    {
        request.rule = SharedRequestRule::Waits(hold);
    }
}

/// The change of a request that the recommendation of a pod asks for.
struct WantedChange {
    is_raise: bool,
    reason: ChangeReason,
}

impl WantedChange {
    /// `None` if the request would not change.
    fn new(
        view: &PodView<'_>,
        recommendation: &crate::api::vpa::Recommendation,
        request: &SharedRequest,
        settings: &Settings,
    ) -> Option<Self> {
        let resource = ResourceName::from(request.resource);
        let (mut current, mut is_below) = (0_i64, false);
        let mut recommended = Recommended { target: 0, lower: 0, upper: 0 };
        let containers = view.pod.spec.sized_containers(true).map(|(_, container)| container);
        for container in containers.filter(|container| request.counts(&container.name)) {
            let milli = |list: &crate::api::ResourceList| {
                list.get(&resource).map(crate::types::Quantity::milli_value)
            };
            let own = milli(container.actual().requests()).unwrap_or(0);
            let found = recommendation_for(recommendation, &container.name);
            let target = found.and_then(|found| milli(&found.target));
            let (target, lower, upper) = match found.zip(target) {
                Some((found, target)) => (
                    target,
                    milli(&found.lower_bound).unwrap_or(0),
                    milli(&found.upper_bound).unwrap_or(i64::MAX),
                ),
                // The VPA does not control it.
                None => (own, own, own),
            };
            is_below |= target > own && own < lower;
            current = current.saturating_add(own);
            recommended.target = recommended.target.saturating_add(target);
            recommended.lower = recommended.lower.saturating_add(lower);
            recommended.upper = recommended.upper.saturating_add(upper);
        }
        if recommended.target == current {
            return None;
        }
        let is_raise = recommended.target > current;
        let threshold = settings.update_threshold;
        let wanted = wanted_change(current, recommended, RequestRange::default(), threshold);
        let reason = match wanted {
            _ if is_raise && matches!(request.rule, SharedRequestRule::AtMaxReplicas(_)) => {
                ChangeReason::AtMaxReplicas
            }
            _ if is_raise && is_below => ChangeReason::BelowBounds,
            Some((_, reason)) => reason,
            // It would be changed together with another resource.
            None => ChangeReason::Drift,
        };
        Some(Self { is_raise, reason })
    }
}
