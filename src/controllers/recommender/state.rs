//! The state of the recommender behind one lock: the cluster index and the registry of histories, which are updated
//! together. The lock is held only briefly: for one change, or one page of VPAs.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use kube::ResourceExt as _;
use parking_lot::{Mutex, MutexGuard};
use plimsoll_core::{
    api::vpa::VerticalPodAutoscaler,
    recommender::{
        HistoryState, OomKill, ResourceAmounts, VpaRegistry, VpaSettings,
        node_capacity::{NodeCapacities, Toleration},
        pod_cap::PodCapacity,
        published_status::PublishedStatus,
    },
    types::{ObjectKey, Time},
};
use tokio::sync::Notify;

use super::slow_history::SlowHistory;
use crate::{
    cluster::{
        cache::{
            eviction_events::NodePressureEviction,
            recommender_pod::{ContainerType, ObservedOomKill, OomKillSource},
            schedulable_nodes::NodeCache,
            vpa_index::{PutResult, TargetState, VpaIndex},
        },
        target::TargetResolution,
        watch::{
            ObjectChange,
            partial_objects::{PartialNode, PartialPod},
        },
    },
    controllers::runtime::annotation_checks::find_invalid_for_writers,
};

/// Number of VPAs visited before the lock is released.
const PAGE_SIZE: usize = 256;

#[derive(Debug)]
pub struct SharedState {
    state: Mutex<RecommenderState>,
    /// Signals to the loops that wait for changes.
    pub signals: Arc<StateSignals>,
}

#[derive(Debug, Default)]
pub struct StateSignals {
    /// A VPA appeared whose history must be read.
    pub history_wanted: Notify,
    /// A VPA appeared whose target must be resolved.
    pub target_wanted: Notify,
    pub history_loaded: Notify,
}

/// The cluster index and the histories.
#[derive(Debug)]
pub struct RecommenderState {
    pub index: VpaIndex,
    pub vpa_registry: VpaRegistry,
    /// Statuses that were sent and not confirmed yet, as they will be once stored.
    pub unconfirmed: HashMap<ObjectKey, PublishedStatus>,
    /// VPAs that have been waiting for their history for long.
    pub slow_history: SlowHistory,
    /// Whether the last attempt to read history failed.
    pub history_unreadable: bool,
    /// The nodes, if recommendations are capped to the largest node.
    nodes: Option<NodeCache>,
    /// Free capacity of the nodes, as of the last pass.
    node_capacity: NodeCapacities,
    pod_cap: ResourceAmounts,
    /// Whether sidecars (restartable init containers) get recommendations.
    native_sidecars: bool,
    signals: Arc<StateSignals>,
}

impl SharedState {
    /// An empty state. `nodes`: whether recommendations are capped to the largest node.
    pub fn new(index: VpaIndex, registry: VpaRegistry, native_sidecars: bool, nodes: bool) -> Self {
        let signals = Arc::<StateSignals>::default();
        let state = Mutex::new(RecommenderState {
            index,
            vpa_registry: registry,
            unconfirmed: HashMap::new(),
            slow_history: SlowHistory::default(),
            history_unreadable: false,
            nodes: nodes.then(NodeCache::default),
            node_capacity: NodeCapacities::default(),
            pod_cap: ResourceAmounts::default(),
            native_sidecars,
            signals: Arc::clone(&signals),
        });
        Self { state, signals }
    }

    /// Locks the state. Do not block or await while holding the lock.
    pub fn lock(&self) -> MutexGuard<'_, RecommenderState> {
        self.state.lock()
    }

    /// Visits all VPAs in order, a page at a time. The lock is released between pages.
    pub fn for_each_page(&self, mut visit: impl FnMut(&mut RecommenderState, &[ObjectKey])) {
        let mut after: Option<ObjectKey> = None;
        loop {
            let mut state = self.lock();
            let page: Vec<ObjectKey> =
                state.vpa_registry.keys_after(after.as_ref()).take(PAGE_SIZE).cloned().collect();
            visit(&mut state, &page);
            drop(state);
            after = page.into_iter().next_back();
            if after.is_none() {
                return;
            }
        }
    }
}

impl RecommenderState {
    pub fn apply_vpa_change(&mut self, change: ObjectChange<VerticalPodAutoscaler>) {
        match change {
            ObjectChange::Restart => self.index.restart_vpas(),
            ObjectChange::Applied(vpa) => self.upsert_vpa(&vpa),
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
                self.request_lookups();
            }
        }
    }

    /// Inserts or updates a VPA. Requests a lookup only if its target or its history is missing: most changes are this
    /// process's own writes.
    pub fn upsert_vpa(&mut self, vpa: &VerticalPodAutoscaler) {
        let (key, result) = self.index.put_vpa(vpa);
        match result {
            PutResult::Ignored => {
                self.vpa_registry.untrack(&key);
                self.unconfirmed.remove(&key);
                return;
            }
            PutResult::Old => return,
            PutResult::New | PutResult::Changed { .. } => {}
        }
        let policies =
            vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let annotations = vpa.annotations();
        let mut settings = VpaSettings::new(policies.cloned().collect(), annotations)
            .with_update_mode(vpa.spec.update_mode());
        if !self.vpa_registry.settings.per_vpa_tuning {
            // They have no effect, so they are not reported as invalid.
            settings.invalid_annotations.clear();
        }
        settings.invalid_annotations.extend(find_invalid_for_writers(annotations));
        let created = self.index.vpa(&key).map_or(Time::EPOCH, |vpa| vpa.created);
        self.vpa_registry.track(&key, settings, created);
        let status = vpa.status.as_ref();
        let recommendation = status.and_then(|status| status.recommendation.as_ref());
        if recommendation
            .is_some_and(|recommendation| !recommendation.container_recommendations.is_empty())
        {
            self.vpa_registry.mark_recommended(&key);
        }
        if self.is_waiting_for_history(&key)
            || self.index.vpa(&key).is_some_and(|vpa| vpa.target == TargetState::Unknown)
        {
            self.request_lookups();
        }
    }

    fn request_lookups(&self) {
        self.signals.history_wanted.notify_one();
        self.signals.target_wanted.notify_one();
    }

    pub fn remove_vpa(&mut self, key: &ObjectKey) {
        self.index.remove_vpa(key);
        self.vpa_registry.untrack(key);
        self.unconfirmed.remove(key);
    }

    pub fn apply_pod_change(&mut self, change: ObjectChange<PartialPod>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.apply_pod(&change, &self.index.scope);
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

    pub fn apply_node_change(&mut self, change: ObjectChange<PartialNode>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.apply_node(change);
        }
    }

    /// Records that a node under memory pressure evicted a pod.
    pub fn add_eviction(&mut self, eviction: &NodePressureEviction) {
        let namespace = self.index.namespace(&eviction.namespace).cloned();
        let Some(namespace) = namespace else { return };
        for container in &eviction.offending_containers {
            self.index.oom_kills.push(ObservedOomKill {
                namespace: Arc::clone(&namespace),
                pod: Arc::from(&*eviction.pod),
                container: Arc::from(&*container.container),
                at: eviction.at,
                kill: OomKill {
                    request: container.usage,
                    limit: None,
                    usage: Some(container.usage),
                },
                source: OomKillSource::Eviction,
                vpas: Vec::new(),
            });
        }
    }

    /// Stores the result of resolving a VPA's target.
    pub fn set_target(&mut self, key: &ObjectKey, outcome: TargetResolution) {
        if let Some(previous) = self.index.vpa(key).map(|vpa| &vpa.target) {
            log_target_change(key, previous, &outcome);
        }
        match outcome {
            TargetResolution::Found { selector, owner } => {
                self.index.set_target(key, TargetState::Found, Some(selector));
                self.vpa_registry.set_owner(key, &owner);
            }
            TargetResolution::Unsupported { message } => {
                let match_none = crate::cluster::cache::selector::Selector::nothing();
                self.index.set_target(
                    key,
                    TargetState::Unsupported(message.into()),
                    Some(match_none),
                );
            }
            // Keep the previous selector.
            TargetResolution::Unavailable { message } => {
                self.index.set_target(key, TargetState::Unavailable(message.into()), None);
            }
        }
    }

    /// Registers the containers of a VPA's pods, so that each has a history. Finished pods do not keep containers
    /// alive.
    pub fn register_containers(&mut self, key: &ObjectKey, now: Time) {
        // Replicas have the same containers, so the list stays short.
        let mut containers: Vec<(Arc<str>, bool)> = Vec::new();
        for (_, pod) in self.index.pods_of(key) {
            let is_live = !pod.is_finished;
            for container in pod
                .containers
                .iter()
                .filter(|container| self.counts_usage(container.container_type))
            {
                match containers.iter_mut().find(|(name, _)| *name == container.name) {
                    Some((_, any_live)) => *any_live |= is_live,
                    None => containers.push((Arc::clone(&container.name), is_live)),
                }
            }
        }
        for (name, is_live) in containers {
            if is_live {
                self.vpa_registry.ingest().register_container(key, &name, now);
            } else {
                self.vpa_registry.ingest().register_finished_container(key, &name, now);
            }
        }
    }

    /// Updates the free capacity of the nodes, and the configured cap.
    pub fn update_node_capacity(&mut self, cap: ResourceAmounts) {
        self.pod_cap = cap;
        if let Some(nodes) = &self.nodes {
            self.node_capacity = nodes.free_capacity(self.index.pods());
        }
    }

    /// The capacity for a pod of this VPA: of the nodes that accept all of its pods, and the configured cap.
    pub fn pod_capacity(&self, key: &ObjectKey) -> PodCapacity {
        let mut tolerations: Vec<&[Toleration]> = Vec::new();
        if !self.node_capacity.accept_all_pods() {
            for (_, pod) in self.index.pods_of(key).filter(|(_, pod)| !pod.is_finished) {
                // Replicas usually share one list.
                let list = pod.tolerations.as_deref().unwrap_or_default();
                if !tolerations.iter().any(|known| std::ptr::eq(*known, list)) {
                    tolerations.push(list);
                }
            }
        }
        PodCapacity {
            cap: self.pod_cap,
            node_capacities: self.node_capacity.for_pods(&tolerations),
        }
    }

    /// Whether usage of this type of container counts. Init containers that run to completion do not.
    pub fn counts_usage(&self, container_type: ContainerType) -> bool {
        match container_type {
            ContainerType::Main => true,
            ContainerType::Sidecar => self.native_sidecars,
            ContainerType::Init => false,
        }
    }

    /// Whether the stored history of a VPA is not loaded yet.
    pub fn is_waiting_for_history(&self, key: &ObjectKey) -> bool {
        self.vpa_registry.get(key).is_some_and(|vpa| vpa.state == HistoryState::Waiting)
    }

    /// Stops waiting for the histories of these VPAs, which could not be loaded.
    pub fn continue_without_history<'a>(&mut self, vpas: impl Iterator<Item = &'a ObjectKey>) {
        for key in vpas {
            self.vpa_registry.mark_missing(key);
        }
        self.signals.history_loaded.notify_one();
    }

    /// When the status of a VPA was last written; the stalest are written first.
    pub fn status_written_at(&self, key: &ObjectKey) -> Option<Time> {
        self.index.vpa(key)?.last_written
    }

    /// Records a written status. If another client has written the VPA since, and the watch event arrived before the
    /// response, the state from the watch is kept.
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

    /// Records a written explanation. As above, newer state from the watch is kept.
    pub fn record_explanation_write(
        &mut self,
        key: &ObjectKey,
        explained_hash: Option<u64>,
        resource_version: &str,
    ) {
        let vpa =
            self.index.vpa_mut(key).filter(|vpa| !vpa.is_newer_than_version(resource_version));
        if let Some(vpa) = vpa {
            vpa.explained_hash = explained_hash;
            vpa.resource_version = resource_version.into();
        }
    }
}

/// Logs when a target cannot be resolved any more, and when it is resolved again.
fn log_target_change(key: &ObjectKey, previous: &TargetState, outcome: &TargetResolution) {
    match (previous, outcome) {
        (TargetState::Unsupported(previous), TargetResolution::Unsupported { message })
            if **previous == **message => {}
        (_, TargetResolution::Unsupported { message }) => {
            tracing::warn!(vpa = %key, error = %message, "failed to resolve target; keeping the previous selector");
        }
        (TargetState::Unsupported(_), TargetResolution::Found { .. }) => {
            tracing::info!(vpa = %key, "resolved target again");
        }
        _ => {}
    }
}
