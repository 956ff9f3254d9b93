//! Indexes the cluster: VPAs, pods, and which pods match which VPA. A change costs in proportion to the objects that it
//! affects, never pods times VPAs.
//!
//! ```text
//! VpaIndex ─ NamespaceIndex ─┬─ IndexedVpa      selector, published status, names of its pods
//!                            ├─ RecommenderPod  labels, containers, names of its VPAs
//!                            ├─ pods by each of their labels     (to match a new selector)
//!                            └─ VPAs by one required label each  (to match a new pod)
//! ```

mod namespace;
#[cfg(test)]
mod tests;
mod usage_coverage;
mod vpa;

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::types::ObjectKey;

use self::{
    namespace::{NamespaceIndex, PodEntry},
    usage_coverage::missing_usage,
};
pub(crate) use self::{
    usage_coverage::MissingUsage,
    vpa::{IndexedVpa, TargetState},
};
use super::{
    recommender_pod::{
        ObservedOomKill, OomKillSource, PodInterner, RecommenderPod, RequestSourceCounts,
    },
    selector::Selector,
};
use crate::cluster::watch::partial_objects::PartialPod;
use plimsoll_core::{
    api::vpa::VerticalPodAutoscaler, recommender::namespace_scope::NamespaceScope,
};

/// The VPAs and pods of the cluster.
#[derive(Debug)]
pub struct VpaIndex {
    pub scope: NamespaceScope,
    /// Name of this recommender: VPAs of other recommenders are ignored.
    recommender: Box<str>,
    namespaces: HashMap<Arc<str>, NamespaceIndex>,
    interner: PodInterner,
    /// OOM kills that were found and not ingested yet.
    pub oom_kills: Vec<ObservedOomKill>,
    pub request_sources: RequestSourceCounts,
    /// Complete usage fetches so far.
    usage_fetches: u32,
    pub pod_count: usize,
    pub vpa_count: usize,
}

/// The outcome of storing an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    New,
    /// The object was known; its spec or annotations may have changed.
    Changed {
        /// Whether its target reference changed.
        retargeted: bool,
    },
    /// The object is out of scope, or of another recommender.
    Ignored,
    /// The object is older than the stored one, and was dropped.
    Old,
}

impl VpaIndex {
    pub fn new(scope: NamespaceScope, recommender: &str) -> Self {
        Self {
            scope,
            recommender: recommender.into(),
            namespaces: HashMap::new(),
            interner: PodInterner::default(),
            oom_kills: Vec::new(),
            request_sources: RequestSourceCounts::default(),
            usage_fetches: 0,
            pod_count: 0,
            vpa_count: 0,
        }
    }

    pub fn restart_vpas(&mut self) {
        self.namespaces.values_mut().for_each(|index| index.vpas.restart());
    }

    /// The list is complete. Returns the VPAs that are gone.
    pub fn finish_vpa_list(&mut self) -> Vec<ObjectKey> {
        let mut gone = Vec::new();
        self.namespaces.retain(|namespace, index| {
            for (name, vpa) in index.vpas.finish_list() {
                let Some(vpa) = vpa else { continue };
                index.unlink_vpa(&name, &vpa.pods, vpa.indexed_label);
                gone.push(ObjectKey::new(Arc::clone(namespace), name));
            }
            !index.is_empty()
        });
        self.vpa_count -= gone.len();
        gone
    }

    /// Stores a VPA. Removes one that changed to another recommender.
    pub fn put_vpa(&mut self, vpa: &VerticalPodAutoscaler) -> (ObjectKey, PutResult) {
        let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
        let name = vpa.metadata.name.as_deref().unwrap_or_default();
        if !self.scope.includes(namespace) {
            return (ObjectKey::new(namespace, name), PutResult::Ignored);
        }
        let (namespace, name) =
            (self.interner.names.intern(namespace), self.interner.names.intern(name));
        let key = ObjectKey::new(Arc::clone(&namespace), Arc::clone(&name));
        if !is_handled_by(vpa, &self.recommender) {
            self.remove_vpa(&key);
            self.namespaces.entry(namespace).or_default().vpas.put(name, None);
            return (key, PutResult::Ignored);
        }
        let vpas = &mut self.namespaces.entry(namespace).or_default().vpas;
        let is_listed = vpas.is_listed(&*name);
        if let Some(Some(stored)) = vpas.keep(&*name) {
            // A watch may deliver an older object than the last read or write. A new list is stored whatever its versions.
            if is_listed && stored.is_newer_than(vpa) {
                return (key, PutResult::Old);
            }
            let retargeted = stored.target_ref != vpa.spec.target_ref;
            stored.update_from(vpa);
            return (key, PutResult::Changed { retargeted });
        }
        let mut new = Box::<IndexedVpa>::default();
        new.update_from(vpa);
        vpas.put(name, Some(new));
        self.vpa_count += 1;
        (key, PutResult::New)
    }

    /// A VPA exists but cannot be decoded: keeps its stored state.
    pub fn keep_unreadable_vpa(&mut self, namespace: &str, name: &str) {
        if !self.scope.includes(namespace) {
            return;
        }
        let vpas =
            &mut self.namespaces.entry(self.interner.names.intern(namespace)).or_default().vpas;
        if vpas.keep(name).is_none() {
            // Whatever its recommender, the VPA exists, so its history is not orphaned.
            vpas.put(self.interner.names.intern(name), None);
        }
    }

    /// Removes a VPA. Returns whether it was one of this recommender.
    pub fn remove_vpa(&mut self, key: &ObjectKey) -> bool {
        let Some(index) = self.namespaces.get_mut(&key.namespace) else { return false };
        let removed = index.vpas.remove(&*key.name).and_then(|(_, vpa)| vpa);
        if let Some(vpa) = &removed {
            index.unlink_vpa(&key.name, &vpa.pods, vpa.indexed_label);
            self.vpa_count -= 1;
        }
        self.drop_if_empty(&key.namespace);
        removed.is_some()
    }

    /// Stores the target state and the selector of a VPA. Returns whether its pods may have changed.
    pub fn set_target(
        &mut self,
        key: &ObjectKey,
        target: TargetState,
        selector: Option<Selector>,
    ) -> bool {
        let Some(index) = self.namespaces.get_mut(&key.namespace) else { return false };
        let Some(vpa) = index.vpa_mut(&key.name) else { return false };
        vpa.target = target;
        match selector {
            Some(selector) if vpa.selector != selector => {
                // Report the pods' earlier OOM kills for a VPA that did not match them before.
                for pod in index.match_pods(&key.name, selector) {
                    let Some(entry) = index.pods.get(&pod) else { continue };
                    for container in &entry.pod.containers {
                        let Some(kills) = container.oom_kills.as_deref() else { continue };
                        let (at, kill) = kills.last;
                        self.oom_kills.push(ObservedOomKill {
                            namespace: Arc::clone(&key.namespace),
                            pod: Arc::clone(&pod),
                            container: Arc::clone(&container.name),
                            at,
                            kill,
                            source: OomKillSource::FirstObserved,
                            vpas: vec![Arc::clone(&key.name)],
                        });
                    }
                }
                true
            }
            _ => false,
        }
    }

    pub fn vpa(&self, key: &ObjectKey) -> Option<&IndexedVpa> {
        self.namespaces.get(&key.namespace)?.vpa(&key.name)
    }

    /// A mutable VPA of this recommender, to store what a write returned.
    pub fn vpa_mut(&mut self, key: &ObjectKey) -> Option<&mut IndexedVpa> {
        self.namespaces.get_mut(&key.namespace)?.vpa_mut(&key.name)
    }

    /// Whether a VPA of this name exists, of any recommender.
    pub fn has_any_vpa(&self, key: &ObjectKey) -> bool {
        let index = self.namespaces.get(&key.namespace);
        index.is_some_and(|index| index.vpas.get(&*key.name).is_some())
    }

    /// Whether this VPA exists and is not of this recommender.
    pub fn belongs_to_other_recommender(&self, key: &ObjectKey) -> bool {
        let index = self.namespaces.get(&key.namespace);
        index.is_some_and(|index| matches!(index.vpas.get(&*key.name), Some(None)))
    }

    pub fn restart_pods(&mut self) {
        self.namespaces.values_mut().for_each(|index| index.pods.restart());
    }

    /// The list is complete: pods that it did not contain are gone.
    pub fn finish_pod_list(&mut self) {
        self.namespaces.retain(|namespace, index| {
            let gone = index.pods.finish_list();
            let labels = gone.iter().map(|(name, entry)| (name, &entry.pod.labels));
            index.pods_by_label.remove_all(labels);
            for (name, entry) in &gone {
                index.remove_from_vpas(name, &entry.vpas);
                keep_vpas_of_kills(&mut self.oom_kills, namespace, name, &entry.vpas);
            }
            self.pod_count -= gone.len();
            !index.is_empty()
        });
    }

    /// Stores a pod, and collects OOM kills that its previous version did not have.
    pub fn put_pod(&mut self, partial_pod: &PartialPod) {
        let namespace = partial_pod.metadata.namespace.as_deref().unwrap_or_default();
        if !self.scope.includes(namespace) {
            return;
        }
        let namespace = self.interner.names.intern(namespace);
        let name = partial_pod.metadata.name.as_deref().unwrap_or_default();
        let mut pod =
            RecommenderPod::new(partial_pod, &mut self.interner, &mut self.request_sources);
        let index = self.namespaces.entry(Arc::clone(&namespace)).or_default();
        let (name, previous) = match index.pods.remove(name) {
            Some((name, previous)) => (name, Some(previous)),
            None => (Arc::from(name), None),
        };
        let same_pod = previous.as_ref().filter(|previous| previous.pod.uid == pod.uid);
        let last_usage_fetch = same_pod.map_or(0, |previous| previous.last_usage_fetch);
        let source = if same_pod.is_some() {
            OomKillSource::PodUpdate
        } else {
            OomKillSource::FirstObserved
        };
        let kills = &mut self.oom_kills;
        pod.detect_oom_kills(
            same_pod.map(|previous| &previous.pod),
            partial_pod,
            |container, at, kill| {
                kills.push(ObservedOomKill {
                    namespace: Arc::clone(&namespace),
                    pod: Arc::clone(&name),
                    container: Arc::clone(&container.name),
                    at,
                    kill,
                    source,
                    vpas: Vec::new(),
                });
            },
        );
        if previous.is_none() {
            self.pod_count += 1;
        }
        let vpas = match previous {
            Some(previous) if previous.pod.labels == pod.labels => previous.vpas,
            previous => {
                if let Some(previous) = previous {
                    index.remove_pod(&name, &previous.pod.labels, &previous.vpas);
                }
                index.add_pod(&name, &pod.labels)
            }
        };
        index.pods.put(name, Box::new(PodEntry { pod, vpas, last_usage_fetch }));
    }

    /// A pod exists but cannot be decoded: keeps its stored state.
    pub fn keep_unreadable_pod(&mut self, namespace: &str, name: &str) {
        let index = self.namespaces.get_mut(namespace);
        index.and_then(|index| index.pods.keep(name));
    }

    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(index) = self.namespaces.get_mut(namespace) else { return };
        let Some((name, entry)) = index.pods.remove(name) else { return };
        index.remove_pod(&name, &entry.pod.labels, &entry.vpas);
        keep_vpas_of_kills(&mut self.oom_kills, namespace, &name, &entry.vpas);
        self.pod_count -= 1;
        self.drop_if_empty(namespace);
    }

    /// A pod, and the names of the VPAs that match it.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<(&RecommenderPod, &[Arc<str>])> {
        let entry = self.namespaces.get(namespace)?.pods.get(name)?;
        Some((&entry.pod, &entry.vpas))
    }

    /// The shared name of a namespace, if it has any VPA or pod.
    pub fn namespace(&self, name: &str) -> Option<&Arc<str>> {
        self.namespaces.get_key_value(name).map(|(name, _)| name)
    }

    /// The pods that match a VPA, ordered by name.
    pub fn pods_of<'a>(
        &'a self,
        key: &ObjectKey,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a RecommenderPod)> {
        let index = self.namespaces.get(&key.namespace);
        let found = index.and_then(|index| Some((index, index.vpa(&key.name)?)));
        found.into_iter().flat_map(|(index, vpa)| {
            vpa.pods.iter().filter_map(|name| Some((name, &index.pods.get(name)?.pod)))
        })
    }

    pub fn pods(&self) -> impl Iterator<Item = &RecommenderPod> {
        self.namespaces.values().flat_map(|index| index.pods.iter().map(|(_, entry)| &entry.pod))
    }

    pub fn record_pod_usage(&mut self, namespace: &str, pod: &str) {
        let index = self.namespaces.get_mut(namespace);
        if let Some(entry) = index.and_then(|index| index.pods.get_mut(pod)) {
            entry.last_usage_fetch = self.usage_fetches + 1;
        }
    }

    /// A complete usage fetch has ended. Returns the running pods with a VPA that the latest fetches did not contain although
    /// earlier ones did. Do not call it for incomplete fetches: they do not show which pods are missing.
    pub fn finish_usage_fetch(&mut self) -> MissingUsage {
        self.usage_fetches = self.usage_fetches.saturating_add(1);
        missing_usage(&self.namespaces, self.usage_fetches)
    }

    /// The OOM kills that were found since the last call.
    pub fn take_oom_kills(&mut self) -> Vec<ObservedOomKill> {
        std::mem::take(&mut self.oom_kills)
    }

    fn drop_if_empty(&mut self, namespace: &str) {
        if self.namespaces.get(namespace).is_some_and(NamespaceIndex::is_empty) {
            self.namespaces.remove(namespace);
        }
    }
}

/// A pod is gone: an OOM kill that is not recorded yet could no longer be matched to its VPAs.
fn keep_vpas_of_kills(
    kills: &mut [ObservedOomKill],
    namespace: &str,
    pod: &str,
    vpas: &[Arc<str>],
) {
    let is_of_pod = |kill: &&mut ObservedOomKill| {
        kill.vpas.is_empty() && *kill.pod == *pod && *kill.namespace == *namespace
    };
    for kill in kills.iter_mut().filter(is_of_pod) {
        kill.vpas = vpas.to_vec();
    }
}

fn is_handled_by(vpa: &VerticalPodAutoscaler, recommender: &str) -> bool {
    let recommenders = &vpa.spec.recommenders;
    if recommenders.is_empty() {
        return recommender == "default";
    }
    recommenders.iter().any(|selected| selected.name == recommender)
}
