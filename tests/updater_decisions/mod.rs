//! Which pods an updater changes, how, and in which order: golden vectors, fixes, and simulations of small replica groups.

mod eviction_requirements;
mod eviction_storms;
mod fixes;
mod hpa_same_resource;
mod in_place;
mod invariants;
mod maintenance_windows;
mod passes;
mod pod_regressions;
mod priorities;
mod quotas;
mod refusal_backoff;
mod request_turns;
mod simulated_cluster;
mod surges;
mod update_reason;

use std::time::Duration;

use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_core::{
    api::{
        VerticalPodAutoscalerSpec,
        vpa::{ContainerRecommendation, Recommendation},
    },
    coordination::SharedRequest,
    sizing::{Container, LimitPolicy, NamespaceLimitRanges, SizingRules, SizingSpec, quota::Quota},
    types::compat::Compat,
    updater::{
        Decision, DesiredReplicas, PassContext, PersistedState, Pod, PodOutcome, PodOwner,
        PodSizing, PodStatus, Readiness, ReplicaGroups, Settings, SkipReason, VpaWithPods,
        guard::{RecommenderHeartbeat, disruption_budget::PodCounts},
    },
};
use serde_json::json;

use crate::sizing::{list, resources};

pub const NOW: Time = Time::from_secs(1_800_000_000);

pub fn ago(minutes: u64) -> Time {
    NOW.earlier(Duration::from_mins(minutes))
}

/// Returns the spec of a VPA with this mode.
pub fn spec(mode: &str) -> VerticalPodAutoscalerSpec {
    serde_json::from_value(json!({
        "targetRef": {"kind": "Deployment", "name": "web"},
        "updatePolicy": {"updateMode": mode},
    }))
    .expect("valid spec")
}

/// Returns a recommendation for containers c1, c2, ... with these targets; bounds follow after `;`.
pub fn recommended(containers: &[&str]) -> Recommendation {
    let container = |(index, text): (usize, &&str)| {
        let mut parts = text.split(';');
        let mut next = || parts.next().map(list).unwrap_or_default();
        ContainerRecommendation {
            container_name: format!("c{}", index + 1),
            target: next(),
            lower_bound: next(),
            upper_bound: next(),
            ..ContainerRecommendation::default()
        }
    };
    let recommended = containers.iter().enumerate().filter(|(_, text)| !text.is_empty());
    Recommendation { container_recommendations: recommended.map(container).collect() }
}

/// Returns a pod with containers c1, c2, ... with these requests, that has been ready for a day.
pub fn pod(number: usize, containers: &[&str]) -> Pod {
    let container = |(index, text): (usize, &&str)| Container {
        name: format!("c{}", index + 1).into(),
        spec: resources(text),
        ..Container::default()
    };
    let mut pod = Pod::default();
    pod.spec.namespace = "default".into();
    pod.spec.name = format!("web-{number}").into();
    pod.spec.uid = format!("uid-{number}").into();
    pod.spec.containers = containers.iter().enumerate().map(container).collect();
    pod.spec.ready_since = Some(ago(24 * 60));
    pod.status = PodStatus {
        owner: Some(owner()),
        created: ago(24 * 60),
        started: Some(ago(24 * 60)),
        readiness: Readiness::Ready(ago(24 * 60)),
        generation: Some(1),
        ..PodStatus::default()
    };
    pod
}

pub fn owner() -> PodOwner {
    PodOwner { kind: "ReplicaSet".into(), name: "web-1".into() }
}

/// A VPA with its pods, and all other inputs of a pass.
#[derive(Clone, Debug)]
pub struct PassCase {
    pub settings: Settings,
    pub spec: VerticalPodAutoscalerSpec,
    pub recommendation: Option<Recommendation>,
    pub pods: Vec<Pod>,
    pub wanted: DesiredReplicas,
    pub recall: PersistedState,
    pub is_admission_ready: bool,
    pub can_resize: bool,
    pub heartbeat: RecommenderHeartbeat,
    pub namespace: String,
    pub quotas: Vec<Quota>,
    pub shared_requests: Vec<SharedRequest>,
    /// Whether the requests are planned.
    pub is_planned: bool,
    /// Number of pods in the cluster, if it has more than these.
    pub cluster: Option<u32>,
    pub now: Time,
}

impl PassCase {
    /// Creates this many pods, each with requests `cpu 1, memory 100M` and twice that recommended (section 6.12).
    pub fn new(compat: Compat, mode: &str, pods: usize) -> Self {
        let mut recall = PersistedState::default();
        // Evictions are known to be effective.
        recall.budget.record_effect(ago(1));
        Self {
            settings: Settings::for_compat(compat),
            spec: spec(mode),
            recommendation: Some(recommended(&["cpu 2, memory 200M"])),
            pods: (0..pods).map(|number| pod(number, &["cpu 1, memory 100M"])).collect(),
            wanted: DesiredReplicas::Known(pods as u32),
            recall,
            is_admission_ready: true,
            can_resize: true,
            heartbeat: RecommenderHeartbeat::Fresh { history_loaded: true },
            namespace: "default".into(),
            quotas: Vec::new(),
            shared_requests: Vec::new(),
            is_planned: false,
            cluster: None,
            now: NOW,
        }
    }

    /// Calls `pass` with the inputs of one pass.
    pub fn with_subject<T>(&self, pass: impl FnOnce(VpaWithPods<'_>, PassContext<'_>) -> T) -> T {
        let key = ObjectKey { namespace: (&*self.namespace).into(), name: "web".into() };
        let ranges = NamespaceLimitRanges::default();
        let plan = SizingSpec {
            vpa: "web",
            spec: &self.spec,
            recommendation: self.recommendation.as_ref(),
            limit_policy: LimitPolicy::Ratio,
            managed_sidecars: &[],
            shared_requests: &self.shared_requests,
        };
        let rules =
            SizingRules { fixes: self.settings.fixes, sidecars: false, ..SizingRules::default() };
        let sizing =
            PodSizing { spec: plan, limit_ranges: Some(&ranges), quotas: &self.quotas, rules };
        let subject = VpaWithPods {
            vpa: &key,
            generation: Some(1),
            sizing,
            maintenance_window: self.settings.guards.maintenance_windows.state_at(self.now),
            is_planned: self.is_planned,
            surges: true,
            pods: &self.pods,
        };
        let wanted = |_: &PodOwner| self.wanted;
        let pods = self.pods.len() as u32;
        let world = PassContext {
            desired_replicas: &wanted,
            pod_counts: PodCounts { cluster: self.cluster.unwrap_or(pods), namespace: pods },
            heartbeat: self.heartbeat,
            is_admission_ready: self.is_admission_ready,
            can_resize: self.can_resize,
            now: self.now,
        };
        pass(subject, world)
    }

    pub fn decide(&self) -> Decision {
        self.with_subject(|subject, world| {
            plimsoll_core::updater::decide(subject, world, &self.settings, self.recall.clone())
        })
    }

    /// Returns why the first pod is skipped, if it is.
    pub fn skip_reasons(&self) -> Option<SkipReason> {
        match &self.decide().pod_outcomes[0] {
            PodOutcome::Skipped(skip) => Some(skip.clone()),
            PodOutcome::Changed(_) => None,
        }
    }
}

/// Counts the steps of this type.
pub fn steps(decision: &Decision, word: &str) -> usize {
    decision.steps.iter().filter(|(step, _)| step.action.into_str() == word).count()
}

/// Returns the replica groups of some pods.
pub fn groups(
    pods: &[Pod],
    wanted: DesiredReplicas,
    min: i64,
    settings: &Settings,
) -> ReplicaGroups {
    let rules = plimsoll_core::updater::GroupRules {
        min_replicas: min,
        tolerance: settings.eviction_tolerance,
        in_place_skips_budget: settings.in_place_skips_budget,
        surges: false,
    };
    let members = pods.iter().map(|pod| plimsoll_core::updater::replica_group::GroupMember {
        status: &pod.status,
        boosted: false,
        counts_as_down: false,
    });
    ReplicaGroups::count(members, |_| wanted, &rules, settings)
}
