//! What the recommender knows, behind one lock: the index of the cluster and the fleet of histories, kept
//! in step with each other. Locks are short: a change, or a page of VPAs.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use plimsoll_core::types::{ObjectKey, Time};

use super::slow_history::SlowHistory;
use crate::{
    cluster::{
        cache::{
            eviction_events::NodePressureEviction,
            nodes::NodeCache,
            recommender_pod::{ContainerType, ObservedOomKill, OomKillSource},
            vpa_index::{IndexedVpa, PutResult, TargetState, VpaIndex},
        },
        target::TargetResolution,
        watch::{
            ObjectChange,
            partial_objects::{PartialNode, PartialPod},
        },
    },
    controllers::runtime::annotation_checks::find_invalid_for_writers,
};
use plimsoll_core::{
    api::vpa::{Condition, VerticalPodAutoscaler},
    recommender::{
        HistoryState, OomKill, Recommendation, RecommendationReason, ResourceAmounts, VpaRegistry,
        VpaSettings,
        conditions::{self, ConditionInput},
        node_capacity::{NodeCapacities, Toleration},
        pod_cap::{self, PodCapacity, PodLimits, ResourceLimit},
        status::PublishedStatus,
    },
};

/// So many VPAs are looked at before the lock is given back.
const PAGE_SIZE: usize = 256;

/// The state behind its lock.
#[derive(Debug)]
pub struct SharedState(Mutex<RecommenderState>);

/// Index and fleet.
#[derive(Debug)]
pub struct RecommenderState {
    /// The cluster.
    pub index: VpaIndex,
    /// The histories.
    pub vpa_registry: VpaRegistry,
    /// Statuses that were sent and not answered yet, as they will be when they are stored.
    pub unconfirmed: HashMap<ObjectKey, PublishedStatus>,
    /// Who waits for long.
    pub slow_history: SlowHistory,
    /// The nodes, where recommendations are kept within one of them.
    nodes: Option<NodeCache>,
    /// What the nodes have left, and the operator's limit, as of the latest pass.
    node_capacity: NodeCapacities,
    pod_cap: ResourceAmounts,
    /// Whether init containers that keep running are recommended for.
    native_sidecars: bool,
}

/// What is to be written about a VPA, all of one moment.
#[derive(Debug)]
pub struct DesiredStatus {
    /// What its containers should request.
    pub recommendation: Recommendation,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// What its containers may request together.
    pub pod_limits: PodLimits,
}

impl SharedState {
    /// Nothing is known yet. `nodes`: whether recommendations are kept within one of them.
    pub fn new(index: VpaIndex, fleet: VpaRegistry, sidecars: bool, nodes: bool) -> Self {
        let (sent, nodes) = (HashMap::new(), nodes.then(NodeCache::default));
        let (shapes, cap) = (NodeCapacities::default(), ResourceAmounts::default());
        let fetching = SlowHistory::default();
        Self(Mutex::new(RecommenderState {
            index,
            vpa_registry: fleet,
            unconfirmed: sent,
            slow_history: fetching,
            nodes,
            node_capacity: shapes,
            pod_cap: cap,
            native_sidecars: sidecars,
        }))
    }

    /// Takes the lock. Nothing that waits may be done while it is held.
    pub fn lock(&self) -> MutexGuard<'_, RecommenderState> {
        // A panic would have ended the process.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits all VPAs in order, a page at a time: others get their turn between two pages.
    pub fn for_each_page(&self, mut visit: impl FnMut(&mut RecommenderState, &[ObjectKey])) {
        let mut after: Option<ObjectKey> = None;
        loop {
            let mut core = self.lock();
            let page: Vec<ObjectKey> =
                core.vpa_registry.keys_after(after.as_ref()).take(PAGE_SIZE).cloned().collect();
            visit(&mut core, &page);
            drop(core);
            after = page.into_iter().next_back();
            if after.is_none() {
                return;
            }
        }
    }
}

impl RecommenderState {
    /// A VPA appeared, changed or went. Answers whether its workload or its history is to be found: most
    /// changes are the writes of this very process.
    pub fn apply_vpa_change(&mut self, change: ObjectChange<VerticalPodAutoscaler>) -> bool {
        match change {
            ObjectChange::Restart => self.index.restart_vpas(),
            ObjectChange::Applied(vpa) => return self.upsert_vpa(&vpa),
            ObjectChange::Invalid { namespace, name, .. } => {
                self.index.keep_unreadable_vpa(&namespace, &name);
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                self.remove_vpa(&ObjectKey::new(namespace, name));
            }
            ObjectChange::Synced => {
                for key in self.index.finish_vpa_list() {
                    self.vpa_registry.untrack(&key);
                    self.unconfirmed.remove(&key);
                }
                return true;
            }
        }
        false
    }

    /// Takes in a VPA as it is now. Answers whether its workload or its history is to be found.
    pub fn upsert_vpa(&mut self, vpa: &VerticalPodAutoscaler) -> bool {
        let (key, put) = self.index.put_vpa(vpa);
        match put {
            PutResult::Ignored => {
                self.vpa_registry.untrack(&key);
                self.unconfirmed.remove(&key);
                return false;
            }
            PutResult::Old => return false,
            PutResult::New | PutResult::Changed { .. } => {}
        }
        let policies =
            vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let annotations = vpa.metadata.annotations.as_ref();
        let none = std::collections::BTreeMap::new();
        let annotations = annotations.unwrap_or(&none);
        let mut directives = VpaSettings::new(policies.map(Into::into).collect(), annotations);
        if !self.vpa_registry.settings().per_vpa_tuning {
            // Nobody reads these, so nothing is wrong with them.
            directives.invalid_annotations.clear();
        }
        directives.invalid_annotations.extend(find_invalid_for_writers(annotations));
        let created = self.index.vpa(&key).map_or(Time::EPOCH, |known| known.created);
        self.vpa_registry.track(&key, directives, created);
        let status = vpa.status.as_ref();
        let recommended = status.and_then(|status| status.recommendation.as_ref());
        if recommended.is_some_and(|said| !said.container_recommendations.is_empty()) {
            self.vpa_registry.mark_recommended(&key);
        }
        self.is_waiting_for_history(&key)
            || self.index.vpa(&key).is_some_and(|known| *known.target() == TargetState::Unknown)
    }

    /// A VPA is gone.
    pub fn remove_vpa(&mut self, key: &ObjectKey) {
        self.index.remove_vpa(key);
        self.vpa_registry.untrack(key);
        self.unconfirmed.remove(key);
    }

    /// A pod appeared, changed or went.
    pub fn apply_pod_change(&mut self, change: ObjectChange<PartialPod>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.apply_pod(&change, self.index.scope());
        }
        match change {
            ObjectChange::Restart => self.index.restart_pods(),
            ObjectChange::Applied(pod) => self.index.put_pod(&pod),
            ObjectChange::Invalid { namespace, name, .. } => {
                self.index.keep_unreadable_pod(&namespace, &name);
            }
            ObjectChange::Deleted { namespace, name, .. } => {
                self.index.remove_pod(&namespace, &name);
            }
            ObjectChange::Synced => self.index.finish_pod_list(),
        }
    }

    /// A node appeared, changed or went.
    pub fn apply_node_change(&mut self, change: ObjectChange<PartialNode>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.apply_node(change);
        }
    }

    /// A node under memory pressure evicted a pod.
    pub fn add_eviction(&mut self, eviction: &NodePressureEviction) {
        let namespace = self.index.namespace(&eviction.namespace).cloned();
        let Some(namespace) = namespace else { return };
        for blamed in &eviction.offending_containers {
            self.index.add_oom_kill(ObservedOomKill {
                namespace: Arc::clone(&namespace),
                pod: Arc::from(&*eviction.pod),
                container: Arc::from(&*blamed.container),
                at: eviction.at,
                kill: OomKill { request: blamed.usage, limit: None, usage: Some(blamed.usage) },
                source: OomKillSource::Eviction,
                vpas: Vec::new(),
            });
        }
    }

    /// The search for a VPA's workload came to an end.
    pub fn set_target(&mut self, key: &ObjectKey, outcome: TargetResolution) {
        if let Some(known) = self.index.vpa(key).map(IndexedVpa::target) {
            log_target_change(key, known, &outcome);
        }
        match outcome {
            TargetResolution::Found { selector, owner } => {
                self.index.set_target(key, TargetState::Found, Some(selector));
                self.vpa_registry.set_owner(key, &owner);
            }
            TargetResolution::Unsupported { message } => {
                let nothing = crate::cluster::cache::selector::Selector::nothing();
                self.index.set_target(key, TargetState::Unsupported(message.into()), Some(nothing));
            }
            // What was found last still holds.
            TargetResolution::Unavailable { message } => {
                self.index.set_target(key, TargetState::Unavailable(message.into()), None);
            }
        }
    }

    /// Registers the containers of the pods of a VPA, so that each has a history. Finished pods keep no container alive.
    pub fn register_containers(&mut self, key: &ObjectKey, now: Time) {
        // Replicas have the same containers, so the list stays short.
        let mut containers: Vec<(Arc<str>, bool)> = Vec::new();
        for (_, pod) in self.index.pods_of(key) {
            let is_live = !pod.is_finished;
            for container in
                pod.containers.iter().filter(|one| self.counts_usage(one.container_type))
            {
                match containers.iter_mut().find(|(name, _)| *name == container.name) {
                    Some((_, known)) => *known |= is_live,
                    None => containers.push((Arc::clone(&container.name), is_live)),
                }
            }
        }
        for (name, is_live) in containers {
            if is_live {
                self.vpa_registry.register_container(key, &name, now);
            } else {
                self.vpa_registry.register_finished_container(key, &name, now);
            }
        }
    }

    /// Notes what nodes have left now, and the operator's limit.
    pub fn update_node_capacity(&mut self, cap: ResourceAmounts) {
        self.pod_cap = cap;
        if let Some(nodes) = &self.nodes {
            self.node_capacity = nodes.free_capacity(self.index.pods());
        }
    }

    /// What a pod of this VPA may have: on the nodes that take all of its pods, and by the operator's limit.
    fn pod_capacity(&self, key: &ObjectKey) -> PodCapacity {
        let mut tolerated: Vec<&[Toleration]> = Vec::new();
        if !self.node_capacity.accept_all_pods() {
            for (_, pod) in self.index.pods_of(key).filter(|(_, pod)| !pod.is_finished) {
                // Replicas share one list.
                let of_pod = pod.tolerations.as_deref().unwrap_or_default();
                if !tolerated.iter().any(|known| std::ptr::eq(*known, of_pod)) {
                    tolerated.push(of_pod);
                }
            }
        }
        PodCapacity { cap: self.pod_cap, node_capacities: self.node_capacity.for_pods(&tolerated) }
    }

    /// Whether usage of this container counts: what runs before the others and ends does not.
    pub fn counts_usage(&self, part: ContainerType) -> bool {
        match part {
            ContainerType::Main => true,
            ContainerType::Sidecar => self.native_sidecars,
            ContainerType::Init => false,
        }
    }

    /// Whether the stored history of a VPA is still to be read.
    pub fn is_waiting_for_history(&self, key: &ObjectKey) -> bool {
        self.vpa_registry.get(key).is_some_and(|known| known.state() == HistoryState::Waiting)
    }

    /// When the status of a VPA was last written, for those who write the stalest first.
    pub fn status_written_at(&self, key: &ObjectKey) -> Option<Time> {
        self.index.vpa(key)?.last_written
    }

    /// A status was written. If somebody else has written the VPA since, and the watch was faster than the response, what
    /// the watch brought stays.
    pub fn record_status_write(
        &mut self,
        key: &ObjectKey,
        sent: Option<PublishedStatus>,
        resource_version: &str,
        now: Time,
    ) {
        let Some(vpa) = self.index.vpa_mut(key) else { return };
        vpa.last_written = Some(now);
        if let Some(sent) = sent.filter(|_| !vpa.is_newer_than_version(resource_version)) {
            vpa.published_status = sent;
            vpa.resource_version = resource_version.into();
        }
    }

    /// The annotation that explains a status was written; what the watch brought since stays here, too.
    pub fn record_explanation_write(
        &mut self,
        key: &ObjectKey,
        explained: Option<u64>,
        resource_version: &str,
    ) {
        let vpa =
            self.index.vpa_mut(key).filter(|vpa| !vpa.is_newer_than_version(resource_version));
        if let Some(vpa) = vpa {
            vpa.explained_hash = explained;
            vpa.resource_version = resource_version.into();
        }
    }

    /// What is to be said about a VPA now. `None` while its history is not loaded, or while its workload is
    /// still looked for: what was true of another one must not be said of this.
    pub fn desired_status(&self, key: &ObjectKey, now: Time) -> Option<DesiredStatus> {
        let vpa = self.index.vpa(key)?;
        let watched = self.vpa_registry.get(key)?;
        let mut said = self.vpa_registry.recommend(key, now)?;
        let unsupported = match vpa.target() {
            TargetState::Found => None,
            TargetState::Unknown => return None,
            TargetState::Unsupported(message) | TargetState::Unavailable(message) => {
                Some(&**message)
            }
        };
        let upstream = self.vpa_registry.is_upstream();
        let ignored = if upstream { &[] } else { &*watched.settings().invalid_annotations };
        let limits = pod_cap::cap_to_pod(&mut said, &self.pod_capacity(key));
        let by: Vec<&str> = pod_cap::restricted_by(&said).map(RecommendationReason::name).collect();
        let words = (!by.is_empty()).then(|| (by.join(","), describe_limits(limits)));
        let circumstances = ConditionInput {
            pods: vpa.pod_count(),
            recommended: !said.containers.is_empty(),
            unsupported,
            ignored,
            pod_cap: words.as_ref().map(|(by, words)| (&**by, &**words)),
            fetching: (!upstream).then(|| {
                self.slow_history.is_enabled() && watched.state() == HistoryState::Missing
            }),
            not_found: watched.is_without_history(now),
        };
        let conditions = conditions::merge(&vpa.published_status.conditions, now, &circumstances);
        Some(DesiredStatus { recommendation: said, conditions, pod_limits: limits })
    }
}

impl RecommenderState {
    /// The conditions of a VPA that has waited long for its history: nothing but that is said of it.
    pub fn history_pending_conditions(&self, key: &ObjectKey, now: Time) -> Option<Vec<Condition>> {
        if !self.is_waiting_for_history(key) || !self.slow_history.is_overdue(key, now) {
            return None;
        }
        Some(conditions::mark_fetching_history(
            &self.index.vpa(key)?.published_status.conditions,
            now,
        ))
    }
}

/// What a pod may have, and by whom.
fn describe_limits(limits: PodLimits) -> String {
    let text = |limit: Option<ResourceLimit>| {
        limit.map_or("any".to_owned(), |it| format!("{} ({})", it.amount, it.by.name()))
    };
    let (cpu, memory) = (text(limits.cpu), text(limits.memory));
    format!("A pod may have CPU: {cpu}, memory: {memory}")
}

/// One line when a target breaks, and one when it is whole again.
fn log_target_change(key: &ObjectKey, known: &TargetState, outcome: &TargetResolution) {
    match (known, outcome) {
        (TargetState::Unsupported(known), TargetResolution::Unsupported { message })
            if **known == **message => {}
        (_, TargetResolution::Unsupported { message }) => {
            tracing::warn!(vpa = %key, why = %message, "the workload cannot be found; what is known of it stays");
        }
        (TargetState::Unsupported(_), TargetResolution::Found { .. }) => {
            tracing::info!(vpa = %key, "the workload was found");
        }
        _ => {}
    }
}
