//! Each pod as a pass sees it: with what is remembered of it, and what it counts as.

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

/// A pod: what it has, and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pod {
    /// What it has.
    pub spec: sizing::Pod,
    /// What became of it.
    pub status: PodStatus,
}

/// For how long a pod that was evicted may still be seen. After that the eviction was never made.
const TERMINATION_TIMEOUT: Duration = Duration::from_mins(10);

/// For how long the kubelet may say nothing about a resize that it has not made.
const KUBELET_ACK_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct PodView<'a> {
    pub pod: &'a Pod,
    /// The last change of it.
    pub last_change: Option<PodChange>,
    /// When it was made, or resized last.
    pub created_or_resized: Time,
    pub resize_phase: ResizePhase,
    /// It does not serve, and will not by itself.
    pub is_dead: bool,
    /// It was evicted, and is still seen.
    pub is_evicted: bool,
    /// It may be restarted at any moment for a resize.
    pub is_at_risk: bool,
    pub is_boosted: bool,
    pub observed: ObservedContainers,
    pub infeasible: Option<InfeasibleResize>,
}

impl<'a> PodView<'a> {
    fn new(
        pod: &'a Pod,
        subject: &VpaWithPods<'_>,
        memory: &WorkloadState,
        settings: &Settings,
        now: Time,
    ) -> Self {
        let touch = memory.pod_change(&pod.spec.uid).cloned();
        let resized = touch.as_ref().filter(|touch| touch.what == ChangeKind::Resized);
        let resized = resized.map(|touch| touch.at);
        let is_noticed = resized.is_none_or(|at| at.later(KUBELET_ACK_TIMEOUT) <= now);
        let sizing = &subject.sizing;
        let phase = if !is_noticed && is_outdated(pod, touch.as_ref(), sizing.rules.sidecars) {
            ResizePhase::Proposed { since: resized }
        } else {
            ResizePhase::from_pod_status(
                &pod.status,
                resized,
                is_noticed || status_matches_spec(&pod.spec),
            )
        };
        let is_leaving = touch.as_ref().is_some_and(|touch| {
            touch.what == ChangeKind::Evicted && touch.at.later(TERMINATION_TIMEOUT) > now
        });
        let expiry = settings.fixes.has(Fix::InfeasibleResizesExpire);
        let expiry = expiry.then_some(settings.infeasible_expiry);
        Self {
            pod,
            created_or_resized: resized.map_or(pod.status.created, |at| at.max(pod.status.created)),
            last_change: touch,
            resize_phase: phase,
            is_dead: is_dead(&pod.status, settings.dead_after, now),
            is_evicted: is_leaving,
            is_at_risk: phase.is_under_way() && !is_non_disruptive(&pod.spec),
            is_boosted: sizing::boost::boosted_containers(&pod.spec).next().is_some(),
            observed: ObservedContainers::from_pod(&pod.spec, sizing.spec.managed_sidecars),
            infeasible: memory.refusals.find(&pod.spec.uid, expiry, now).cloned(),
        }
    }

    pub fn resized_at(&self) -> Option<Time> {
        let touch = self.last_change.as_ref().filter(|touch| touch.what == ChangeKind::Resized);
        touch.map(|touch| touch.at)
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

    /// Whether it will probably serve soon.
    pub fn is_starting(&self) -> bool {
        !self.is_dead && !self.pod.status.is_ready()
    }
}

/// Whether a pod is seen as it was before its last resize: by a list that is a little old.
fn is_outdated(pod: &Pod, touch: Option<&PodChange>, sidecars: bool) -> bool {
    let Some(touch) = touch else { return false };
    let generations = pod.status.generation.zip(touch.generation);
    let is_later = generations.is_some_and(|(now, before)| now > before);
    let spec = pod.spec.sized_containers(sidecars).map(|(_, one)| (&*one.name, &one.spec));
    !is_later && touch.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
}

/// Whether a pod has what its spec says, as far as its status tells.
fn status_matches_spec(pod: &sizing::Pod) -> bool {
    pod.containers.iter().chain(&pod.init_containers).all(|one| {
        one.status.as_ref().is_none_or(|status| {
            let (spec, status) = (one.spec.requests(), status.requests());
            spec.cpu() == status.cpu() && spec.memory() == status.memory()
        })
    })
}

fn is_dead(life: &PodStatus, dead_after: Duration, now: Time) -> bool {
    let backs_off = life.containers.iter().any(|one| one.backing_off);
    let since = match life.phase {
        Phase::Pending => Some(life.created),
        Phase::Running | Phase::Other => life.unready_since(),
    };
    since.is_some_and(|since| backs_off || since.later(dead_after) <= now)
}

/// All pods.
pub(super) fn pod_views<'a>(
    subject: &VpaWithPods<'a>,
    memory: &WorkloadState,
    settings: &Settings,
    now: Time,
) -> Vec<PodView<'a>> {
    subject.pods.iter().map(|pod| PodView::new(pod, subject, memory, settings, now)).collect()
}

/// Their groups.
pub(super) fn replica_groups(
    subject: &VpaWithPods<'_>,
    views: &[PodView<'_>],
    world: &PassContext<'_>,
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
    ReplicaGroups::count(members, world.desired_replicas, &rules, settings)
}
