//! A workload as a pass sees it: its pods, their groups, and what may be done to them.

use std::time::Duration;

use super::{PassContext, VpaWithPods, shared_requests::PodSharedRequests};
use crate::{
    api::vpa::{Recommendation, UpdateMode},
    coordination::SharedRequest,
    sizing,
    types::{Time, compat::Fix},
    updater::{
        action::Action,
        guard::{
            ChangeKind, Health, PodChange, WorkloadState,
            infeasible::{InfeasibleResize, RecommendedTarget, recommended_targets},
            regression::ObservedPod,
            workload_state::spec_hash,
        },
        in_place::{
            InPlaceContext, InPlaceDecision, ResizeCandidate, ResizesFirstSeen, is_non_disruptive,
        },
        observed_containers::ObservedContainers,
        pod_sizing::PodSizing,
        pod_status::{Phase, PodStatus},
        priority::Priority,
        replica_group::{GroupMember, GroupRules, ReplicaGroup, ReplicaGroups},
        requirement,
        resize::ResizePhase,
        settings::Settings,
        skip_reason::SkipReason,
        update_reason::{UpdateReason, had_quick_oom, update_reason},
    },
};

/// Problems of pods within this time before a change count as the baseline.
const BASELINE_PERIOD: Duration = Duration::from_hours(1);

/// Used if the circuit breaker is disabled.
const NO_READY_TIMEOUT: Duration = Duration::ZERO;

/// A VPA with its pods and their groups.
pub(super) struct PassWorkload<'a> {
    pub subject: VpaWithPods<'a>,
    pub context: PassContext<'a>,
    pub settings: &'a Settings,
    pub views: Vec<PodView<'a>>,
    /// The requests of each pod that autoscalers of replicas use too.
    pub shared_requests: Vec<PodSharedRequests<'a>>,
    pub groups: ReplicaGroups,
}

impl<'a> PassWorkload<'a> {
    pub fn new(
        subject: VpaWithPods<'a>,
        context: PassContext<'a>,
        settings: &'a Settings,
        state: &WorkloadState,
    ) -> Self {
        let view = |pod| PodView::new(pod, &subject, state, settings, context.now);
        let views: Vec<PodView<'_>> = subject.pods.iter().map(view).collect();
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
        let groups = ReplicaGroups::count(members, context.desired_replicas, &rules, settings);
        let shared = |view| PodSharedRequests::new(view, &subject, &context, state, settings);
        let shared_requests = views.iter().map(shared).collect();
        Self { subject, context, settings, views, shared_requests, groups }
    }

    /// How a pod is sized now.
    pub fn sizing(&self, pod: usize) -> PodSizing<'_> {
        self.subject.sizing.with_shared(self.shared_requests[pod].first())
    }

    pub fn mode(&self) -> UpdateMode {
        self.subject.sizing.spec.update_mode()
    }

    /// Returns the recommended targets of all containers, before capping.
    pub fn uncapped_targets(&self) -> Option<Vec<RecommendedTarget>> {
        self.subject.sizing.spec.recommendation.map(recommended_targets)
    }

    pub fn in_place_decision(
        &self,
        pod: usize,
        first_seen: &mut ResizesFirstSeen,
    ) -> InPlaceDecision {
        let targets = self.uncapped_targets();
        let context = self.in_place_context(targets.as_deref());
        context.decide(self.views[pod].candidate(), first_seen)
    }

    pub fn may_evict(
        &self,
        pod: usize,
        first_seen: &mut ResizesFirstSeen,
    ) -> Result<(), SkipReason> {
        self.in_place_context(None).may_evict(self.views[pod].candidate(), first_seen)
    }

    fn in_place_context<'q>(
        &'q self,
        targets: Option<&'q [RecommendedTarget]>,
    ) -> InPlaceContext<'q> {
        InPlaceContext {
            mode: self.mode(),
            targets,
            groups: &self.groups,
            settings: self.settings,
            now: self.context.now,
        }
    }

    /// Returns an error if a pod does not meet the eviction requirements.
    pub fn ensure_requirements_met(
        &self,
        pod: usize,
        recommendation: &Recommendation,
    ) -> Result<(), SkipReason> {
        let Some(policy) = &self.subject.sizing.spec.spec.update_policy else { return Ok(()) };
        let sidecars = self.subject.sizing.rules.sidecars;
        let pod_spec = &self.views[pod].pod.spec;
        if requirement::are_met(&policy.eviction_requirements, pod_spec, recommendation, sidecars) {
            Ok(())
        } else {
            Err(SkipReason::Requirements)
        }
    }

    /// Returns why a pod needs an update, or why it does not.
    pub fn update_reason(
        &self,
        pod: usize,
        priority: &Priority,
    ) -> Result<UpdateReason, SkipReason> {
        self.update_reason_with(pod, priority, self.shared_requests[pod].first())
    }

    /// Returns an error if the pod may be resized in place, but not evicted, because of a request that an autoscaler of
    /// replicas uses.
    pub fn ensure_needs_eviction(&self, pod: usize) -> Result<(), SkipReason> {
        let Some(shared) = self.shared_requests[pod].other_if_evicted() else { return Ok(()) };
        let (view, sizing) = (&self.views[pod], self.subject.sizing.with_shared(shared));
        let recommendation = sizing.recommendation(&view.pod.spec)?;
        let sidecars = sizing.rules.sidecars;
        let priority = Priority::new(&view.pod.spec, &recommendation, &view.observed, sidecars);
        self.update_reason_with(pod, &priority, shared).map(|_| ())
    }

    fn update_reason_with(
        &self,
        pod: usize,
        priority: &Priority,
        shared: &[SharedRequest],
    ) -> Result<UpdateReason, SkipReason> {
        let (view, spec) = (&self.views[pod], self.subject.sizing.spec.spec);
        let (status, settings, now) = (&view.pod.status, self.settings, self.context.now);
        let quick_oom = had_quick_oom(status, &view.observed, spec, settings, now);
        let (resized, is_planned) = (view.resized_at(), self.subject.is_planned);
        let reason = |priority: &Priority| {
            update_reason(priority, quick_oom, status, resized, is_planned, settings, now)
        };
        reason(priority).map_err(|skip| self.held_request(pod, shared, reason).unwrap_or(skip))
    }

    /// Returns the first request without whose hold the pod would need an update.
    fn held_request(
        &self,
        pod: usize,
        shared: &[SharedRequest],
        reason: impl Fn(&Priority) -> Result<UpdateReason, SkipReason>,
    ) -> Option<SkipReason> {
        let (view, sizing) = (&self.views[pod], &self.subject.sizing);
        let mut held = shared.iter().filter(|request| request.is_held());
        held.find_map(|request| {
            // One that waits would be changed by its own rule.
            let without_hold = |(now, rule): (&SharedRequest, &SharedRequest)| {
                let kept = if now.resource == request.resource { rule } else { now };
                let is_dropped = kept.resource == request.resource && kept.is_held();
                (!is_dropped).then(|| kept.clone())
            };
            let rules = sizing.spec.shared_requests;
            let others: Vec<_> = shared.iter().zip(rules).filter_map(without_hold).collect();
            let recommendation = sizing.with_shared(&others).recommendation(&view.pod.spec).ok()?;
            let sidecars = sizing.rules.sidecars;
            let priority = Priority::new(&view.pod.spec, &recommendation, &view.observed, sidecars);
            reason(&priority).ok()?;
            Some(SkipReason::of_shared_request(request))
        })
    }

    /// Whether a second replica may be started before this pod is evicted.
    pub fn may_surge(&self, pod: usize) -> bool {
        let view = &self.views[pod];
        let owner = view.pod.status.owner.as_ref();
        let is_replica = owner.is_some_and(|owner| &*owner.kind == "ReplicaSet");
        self.settings.guards.surge && self.subject.surges && is_replica && !view.is_dead
    }

    pub fn count_in_group(&mut self, pod: usize, action: &Action) {
        let status = &self.views[pod].pod.status;
        let is_down = self.views[pod].candidate().is_down
            && self.settings.fixes.has(Fix::OnlyReadyPodsAreAlive);
        let Some(group) = self.groups.get_mut(status) else { return };
        match action {
            // A pod that is unavailable already does not reduce the availability of its group.
            Action::Evict { .. } if status.phase != Phase::Pending && !is_down => {
                group.budget.evicted += 1;
            }
            Action::Resize { .. } if !is_down => group.budget.resized += 1,
            _ => {}
        }
    }

    /// Reverts the count of an action.
    pub fn uncount_in_group(&mut self, pod: usize, action: &Action) {
        if let Some(group) = self.groups.get_mut(&self.views[pod].pod.status) {
            let budget = &mut group.budget;
            match action {
                Action::Evict { .. } => budget.evicted = budget.evicted.saturating_sub(1),
                Action::Resize { .. } => budget.resized = budget.resized.saturating_sub(1),
                _ => {}
            }
        }
    }

    pub fn missing_pods(&self) -> u32 {
        let groups = self.groups.iter().map(|(_, group)| group);
        groups.map(|group| group.budget.configured.saturating_sub(group.live)).sum()
    }

    pub fn ready_within(&self) -> Duration {
        self.settings.guards.breaker.map_or(NO_READY_TIMEOUT, |settings| settings.ready_within)
    }

    /// Returns the health of all pods, as the baseline for later comparison.
    pub fn health_of_all(&self) -> Health {
        let since = self.context.now.earlier(BASELINE_PERIOD);
        let observed = self.views.iter().map(|view| ObservedPod {
            status: &view.pod.status,
            since,
            restarts: 0,
        });
        let health = Health::count(observed, self.ready_within(), self.context.now);
        Health { missing: self.missing_pods(), ..health }
    }
}

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
        let is_outdated = |change| differs_from_resize(pod, change, false, sizing.rules.sidecars);
        let phase = if !is_noticed && change.as_ref().is_some_and(is_outdated) {
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

/// Whether a pod that was read after its last resize (`is_later`), or before, has other resources than that resize wrote.
pub(super) fn differs_from_resize(
    pod: &Pod,
    resize: &PodChange,
    is_later: bool,
    sidecars: bool,
) -> bool {
    let generations = pod.status.generation.zip(resize.generation);
    let containers = pod.spec.sized_containers(sidecars);
    let spec = containers.map(|(_, container)| (&*container.name, &container.spec));
    generations.is_some_and(|(now, before)| now > before) == is_later
        && resize.wrote.is_some_and(|wrote| wrote != spec_hash(spec))
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

/// What a pass knows about a pod before its first step.
#[derive(Clone, Debug)]
pub struct PodExplanation {
    pub recommendation: Result<Recommendation, SkipReason>,
    /// The update priority, if there is a recommendation.
    pub priority: Option<Priority>,
    /// Why the pod needs an update, even if it is blocked; or why it does not.
    pub reason: Result<UpdateReason, SkipReason>,
    /// The candidates of the pass, in order. The pod may not be among them.
    pub candidate_order: Vec<usize>,
    /// The replica group of the pod, or why its pods may not be updated.
    pub group: Result<ReplicaGroup, SkipReason>,
    pub last_change: Option<PodChange>,
}

impl PodExplanation {
    /// Explains a pod; `None` if the index is out of range.
    pub(super) fn new(
        workload: &PassWorkload<'_>,
        pod: usize,
        candidate_order: Vec<usize>,
    ) -> Option<Self> {
        let view = workload.views.get(pod)?;
        let (pod_spec, status, sizing) = (&view.pod.spec, &view.pod.status, &workload.sizing(pod));
        let recommendation = sizing.recommendation(pod_spec);
        let priority = recommendation.as_ref().ok().map(|recommendation| {
            Priority::new(pod_spec, recommendation, &view.observed, sizing.rules.sidecars)
        });
        let reason = match (&recommendation, &priority) {
            (Err(skip), _) => Err(skip.clone()),
            (Ok(_), None) => Err(SkipReason::NoRecommendation),
            (Ok(_), Some(priority)) => workload.update_reason(pod, priority),
        };
        Some(Self {
            recommendation,
            priority,
            reason,
            candidate_order,
            group: workload.groups.get(status).copied(),
            last_change: view.last_change.clone(),
        })
    }
}
