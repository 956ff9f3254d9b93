//! Each pod as a pass sees it: with its persisted state, and derived facts.

use std::time::Duration;

use crate::types::Time;

use super::{PassContext, VpaWithPods};
use crate::{
    api::vpa::UpdateMode,
    sizing,
    types::compat::Fix,
    updater::{
        guard::{
            ChangeKind, PodChange, WorkloadState, infeasible::InfeasibleResize,
            workload_state::spec_hash,
        },
        in_place::{ResizeCandidate, is_non_disruptive},
        observed_containers::ObservedContainers,
        pod_status::{Phase, PodStatus},
        replica_group::{GroupMember, GroupRules, ReplicaGroups},
        resize::ResizePhase,
        settings::Settings,
    },
};

/// A pod: its spec and its status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// Containers and their resources.
    pub spec: sizing::Pod,
    /// Status without resources.
    pub status: PodStatus,
}

/// How long an evicted pod may still be listed. After that, the eviction is assumed to have failed.
const TERMINATION_TIMEOUT: Duration = Duration::from_mins(10);

/// How long the kubelet may take to report on a resize.
const KUBELET_ACK_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct PodView<'a> {
    pub pod: &'a Pod,
    /// The last change of the pod.
    pub last_change: Option<PodChange>,
    /// When the pod was created or last resized.
    pub created_or_resized: Time,
    pub resize_phase: ResizePhase,
    /// It has been unavailable for long, and will probably not recover.
    pub is_dead: bool,
    /// It was evicted, but is still listed.
    pub is_evicted: bool,
    /// A resize may restart it at any time.
    pub is_at_risk: bool,
    pub is_boosted: bool,
    pub observed: ObservedContainers,
    pub infeasible: Option<InfeasibleResize>,
}

impl<'a> PodView<'a> {
    fn new(
        pod: &'a Pod,
        subject: &VpaWithPods<'_>,
        state: &WorkloadState,
        settings: &Settings,
        now: Time,
    ) -> Self {
        let change = state.pod_change(&pod.spec.uid).cloned();
        let resized = change.as_ref().filter(|change| change.what == ChangeKind::Resized);
        let resized = resized.map(|change| change.at);
        let is_noticed = resized.is_none_or(|at| at.later(KUBELET_ACK_TIMEOUT) <= now);
        let sizing = &subject.sizing;
        let phase = if !is_noticed && is_outdated(pod, change.as_ref(), sizing.rules.sidecars) {
            ResizePhase::Proposed { since: resized }
        } else {
            ResizePhase::from_pod_status(
                &pod.status,
                resized,
                is_noticed || status_matches_spec(&pod.spec),
            )
        };
        let is_evicted = change.as_ref().is_some_and(|change| {
            change.what == ChangeKind::Evicted && change.at.later(TERMINATION_TIMEOUT) > now
        });
        let expiry = settings.fixes.has(Fix::InfeasibleResizesExpire);
        let expiry = expiry.then_some(settings.infeasible_expiry);
        Self {
            pod,
            created_or_resized: resized.map_or(pod.status.created, |at| at.max(pod.status.created)),
            last_change: change,
            resize_phase: phase,
            is_dead: is_dead(&pod.status, settings.dead_after, now),
            is_evicted,
            is_at_risk: phase.is_under_way() && !is_non_disruptive(&pod.spec),
            is_boosted: sizing::boost::boosted_containers(&pod.spec).next().is_some(),
            observed: ObservedContainers::from_pod(&pod.spec, sizing.spec.managed_sidecars),
            infeasible: state.refusals.find(&pod.spec.uid, expiry, now).cloned(),
        }
    }

    pub fn resized_at(&self) -> Option<Time> {
        let change = self.last_change.as_ref().filter(|change| change.what == ChangeKind::Resized);
        change.map(|change| change.at)
    }

    pub fn candidate(&self) -> ResizeCandidate<'_> {
        ResizeCandidate {
            pod: &self.pod.spec,
            status: &self.pod.status,
            phase: self.resize_phase,
            is_down: self.is_dead || self.is_at_risk,
            infeasible: self.infeasible.as_ref(),
        }
    }

    /// Whether it is not ready yet, but not dead.
    pub fn is_starting(&self) -> bool {
        !self.is_dead && !self.pod.status.is_ready()
    }
}

/// Whether the pod was read from a stale list, before its last resize.
fn is_outdated(pod: &Pod, change: Option<&PodChange>, sidecars: bool) -> bool {
    let Some(change) = change else { return false };
    let generations = pod.status.generation.zip(change.generation);
    let is_later = generations.is_some_and(|(now, before)| now > before);
    let containers = pod.spec.sized_containers(sidecars);
    let spec = containers.map(|(_, container)| (&*container.name, &container.spec));
    !is_later && change.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
}

/// Whether the resources in the status match the spec, as far as they are reported.
fn status_matches_spec(pod: &sizing::Pod) -> bool {
    pod.containers.iter().chain(&pod.init_containers).all(|container| {
        container.status.as_ref().is_none_or(|status| {
            let (spec, status) = (container.spec.requests(), status.requests());
            spec.cpu() == status.cpu() && spec.memory() == status.memory()
        })
    })
}

fn is_dead(status: &PodStatus, dead_after: Duration, now: Time) -> bool {
    let backs_off = status.containers.iter().any(|container| container.backing_off);
    let since = match status.phase {
        Phase::Pending => Some(status.created),
        Phase::Running | Phase::Other => status.unready_since(),
    };
    since.is_some_and(|since| backs_off || since.later(dead_after) <= now)
}

/// Returns the views of all pods.
pub(super) fn pod_views<'a>(
    subject: &VpaWithPods<'a>,
    state: &WorkloadState,
    settings: &Settings,
    now: Time,
) -> Vec<PodView<'a>> {
    subject.pods.iter().map(|pod| PodView::new(pod, subject, state, settings, now)).collect()
}

/// Returns the replica groups of the pods.
pub(super) fn replica_groups(
    subject: &VpaWithPods<'_>,
    views: &[PodView<'_>],
    context: &PassContext<'_>,
    settings: &Settings,
) -> ReplicaGroups {
    let spec = subject.sizing.spec.spec;
    let own = spec.update_policy.as_ref().and_then(|policy| policy.min_replicas);
    let in_place =
        matches!(spec.update_mode(), UpdateMode::InPlaceOrRecreate | UpdateMode::InPlace);
    let rules = GroupRules {
        min_replicas: i64::from(own.unwrap_or(settings.min_replicas)),
        tolerance: settings.eviction_tolerance,
        in_place_skips_budget: in_place && settings.in_place_skips_budget,
        surges: settings.guards.surge,
    };
    let members = views.iter().map(|view| GroupMember {
        status: &view.pod.status,
        boosted: view.is_boosted,
        counts_as_down: view.is_evicted || view.is_at_risk,
    });
    ReplicaGroups::count(members, context.desired_replicas, &rules, settings)
}
