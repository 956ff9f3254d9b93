//! What is known of the cluster: VPAs, pods, and which pods belong to which VPA. Every change costs by what
//! it touches, never pods times VPAs.
//!
//! ```text
//! Index ─ Namespace ─┬─ Vpa  selector, status as last read, names of its pods
//!                    ├─ Pod  labels, containers, names of its VPAs
//!                    ├─ pods by each pair of their labels        (for a selector that is new)
//!                    └─ VPAs by one pair that they insist on     (for a pod that is new)
//! ```

mod namespace;
#[cfg(test)]
mod tests;
mod usage_coverage;
mod vpa;

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::types::ObjectKey;

use self::namespace::{NamespaceIndex, PodEntry};
pub use self::{
    usage_coverage::MissingUsage,
    vpa::{IndexedVpa, TargetState},
};
use super::{
    recommender_pod::{
        ObservedOomKill, OomKillSource, RecommenderPod, RequestSourceCounts, StringInterner,
    },
    selector::Selector,
};
use crate::cluster::watch::partial_objects::PartialPod;
use plimsoll_core::{
    api::vpa::VerticalPodAutoscaler, recommender::namespace_scope::NamespaceScope,
};

/// The index.
#[derive(Debug)]
pub struct VpaIndex {
    scope: NamespaceScope,
    /// Name of this recommender: VPAs that name another one are not ours.
    recommender: Box<str>,
    namespaces: HashMap<Arc<str>, NamespaceIndex>,
    names: StringInterner,
    oom_kills: Vec<ObservedOomKill>,
    request_sources: RequestSourceCounts,
    /// The list of each kind that is being read or was read last; what an older one brought is gone when it ends.
    lists: Lists,
    /// How many whole readings of usage there were.
    complete_usage_fetches: u32,
    pods: usize,
    vpas: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lists {
    vpas: u32,
    pods: u32,
}

/// What became of an object that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// It is new.
    New,
    /// It was known; whether its spec or annotations may have changed.
    Changed {
        /// Whether it points to another workload than before.
        retargeted: bool,
    },
    /// It is none of ours.
    Ignored,
    /// It is older than what is known, so nothing of it was taken.
    Old,
}

impl VpaIndex {
    /// An empty index of what lies in this scope.
    pub fn new(scope: NamespaceScope, recommender: &str) -> Self {
        Self {
            scope,
            recommender: recommender.into(),
            namespaces: HashMap::new(),
            names: StringInterner::default(),
            oom_kills: Vec::new(),
            request_sources: RequestSourceCounts::default(),
            lists: Lists::default(),
            complete_usage_fetches: 0,
            pods: 0,
            vpas: 0,
        }
    }

    // === VPAs ===

    /// A list of VPAs begins.
    pub fn restart_vpas(&mut self) {
        self.lists.vpas += 1;
    }

    /// The list is complete. Answers the VPAs that are gone.
    pub fn finish_vpa_list(&mut self) -> Vec<ObjectKey> {
        let list = self.lists.vpas;
        let mut gone = Vec::new();
        for (namespace, known) in &mut self.namespaces {
            known.foreign_vpas.retain(|_, brought| *brought == list);
            let stale = known.vpas.iter().filter(|(_, vpa)| vpa.list != list);
            gone.extend(stale.map(|(name, _)| ObjectKey::new(namespace.clone(), name.clone())));
        }
        for key in &gone {
            self.remove_vpa(key);
        }
        self.namespaces.retain(|_, known| !known.is_empty());
        gone
    }

    /// Takes in a VPA. One that was handed to another recommender is gone for this one.
    pub fn put_vpa(&mut self, vpa: &VerticalPodAutoscaler) -> (ObjectKey, PutResult) {
        let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
        let name = vpa.metadata.name.as_deref().unwrap_or_default();
        if !self.scope.includes(namespace) {
            return (ObjectKey::new(namespace, name), PutResult::Ignored);
        }
        let (namespace, name) = (self.names.intern(namespace), self.names.intern(name));
        let key = ObjectKey::new(Arc::clone(&namespace), Arc::clone(&name));
        let list = self.lists.vpas;
        if !is_handled_by(vpa, &self.recommender) {
            self.remove_vpa(&key);
            let known = self.namespaces.entry(namespace).or_default();
            known.foreign_vpas.insert((*name).into(), list);
            return (key, PutResult::Ignored);
        }
        let known = self.namespaces.entry(namespace).or_default();
        known.foreign_vpas.remove(&*name);
        let mut put = PutResult::New;
        let entry = known.vpas.entry(name).or_insert_with(|| {
            self.vpas += 1;
            IndexedVpa::default()
        });
        // A watch tells later of what was read or written by ourselves. A list begins anew, whatever its versions.
        if entry.list == list.max(1) && entry.is_newer_than(vpa) {
            return (key, PutResult::Old);
        }
        if entry.list != 0 {
            put = PutResult::Changed { retargeted: entry.target_ref != vpa.spec.target_ref };
        }
        entry.list = list.max(1);
        entry.update_from(vpa);
        (key, put)
    }

    /// A VPA is there and cannot be read: what was known of it stays.
    pub fn keep_unreadable_vpa(&mut self, namespace: &str, name: &str) {
        let list = self.lists.vpas;
        if !self.scope.includes(namespace) {
            return;
        }
        let known = self.namespaces.entry(self.names.intern(namespace)).or_default();
        if let Some(vpa) = known.vpas.get_mut(name) {
            vpa.list = list.max(1);
        } else {
            // Whoever it is for, its history is no orphan.
            known.foreign_vpas.insert(name.into(), list);
        }
    }

    /// Forgets a VPA. Answers whether it was one of this recommender.
    pub fn remove_vpa(&mut self, key: &ObjectKey) -> bool {
        let Some(known) = self.namespaces.get_mut(&key.namespace) else { return false };
        known.foreign_vpas.remove(&*key.name);
        // Takes it out of the index as well.
        known.match_pods(&key.name, Selector::nothing());
        let was_ours = known.vpas.remove(&key.name).is_some();
        self.vpas -= usize::from(was_ours);
        self.drop_if_empty(&key.namespace);
        was_ours
    }

    /// Notes where the search for a VPA's workload has come to. Answers whether its pods may have changed.
    pub fn set_target(
        &mut self,
        key: &ObjectKey,
        target: TargetState,
        selector: Option<Selector>,
    ) -> bool {
        let Some(known) = self.namespaces.get_mut(&key.namespace) else { return false };
        let Some(vpa) = known.vpas.get_mut(&key.name) else { return false };
        vpa.target = target;
        match selector {
            Some(selector) if vpa.selector != selector => {
                // What a pod shows counts for a VPA that is found to be its own only now.
                for pod in known.match_pods(&key.name, selector) {
                    let Some(entry) = known.pods.get(&pod) else { continue };
                    for container in &entry.pod.containers {
                        let Some((at, kill)) = container.last_oom_kill.as_deref().copied() else {
                            continue;
                        };
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

    /// A VPA of this recommender.
    pub fn vpa(&self, key: &ObjectKey) -> Option<&IndexedVpa> {
        self.namespaces.get(&key.namespace)?.vpas.get(&key.name)
    }

    /// The same, for what is read back after a write.
    pub fn vpa_mut(&mut self, key: &ObjectKey) -> Option<&mut IndexedVpa> {
        self.namespaces.get_mut(&key.namespace)?.vpas.get_mut(&key.name)
    }

    /// Whether there is a VPA of this name, of whichever recommender.
    pub fn has_any_vpa(&self, key: &ObjectKey) -> bool {
        self.namespaces.get(&key.namespace).is_some_and(|known| {
            known.vpas.contains_key(&key.name) || known.foreign_vpas.contains_key(&*key.name)
        })
    }

    /// Whether this VPA is there, and not known to be one of this recommender's.
    pub fn belongs_to_other_recommender(&self, key: &ObjectKey) -> bool {
        let known = self.namespaces.get(&key.namespace);
        known.is_some_and(|known| known.foreign_vpas.contains_key(&*key.name))
    }

    /// All VPAs of this recommender, in no order.
    pub fn vpas(&self) -> impl Iterator<Item = (ObjectKey, &IndexedVpa)> {
        self.namespaces.iter().flat_map(|(namespace, known)| {
            let key = |name: &Arc<str>| ObjectKey::new(Arc::clone(namespace), Arc::clone(name));
            known.vpas.iter().map(move |(name, vpa)| (key(name), vpa))
        })
    }

    /// Number of VPAs of this recommender.
    pub fn vpa_count(&self) -> usize {
        self.vpas
    }

    /// What this index is about.
    pub fn scope(&self) -> &NamespaceScope {
        &self.scope
    }

    // === Pods ===

    /// A list of pods begins.
    pub fn restart_pods(&mut self) {
        self.lists.pods += 1;
    }

    /// The list is complete: pods that it did not bring are gone.
    pub fn finish_pod_list(&mut self) {
        let list = self.lists.pods;
        let mut gone = Vec::new();
        for (namespace, known) in &mut self.namespaces {
            let NamespaceIndex { pods, pods_by_label: pods_by_pair, .. } = known;
            let stale = || pods.iter().filter(|(_, entry)| entry.list != list);
            pods_by_pair.remove_all(stale().map(|(name, entry)| (name, &entry.pod.labels)));
            gone.extend(stale().map(|(name, _)| (Arc::clone(namespace), Arc::clone(name))));
        }
        for (namespace, name) in gone {
            self.forget_pod(&namespace, &name);
        }
    }

    /// Takes in a pod, and keeps the kills that it shows and did not show before.
    pub fn put_pod(&mut self, slim: &PartialPod) {
        let namespace = slim.metadata.namespace.as_deref().unwrap_or_default();
        if !self.scope.includes(namespace) {
            return;
        }
        let namespace = self.names.intern(namespace);
        let name = slim.metadata.name.as_deref().unwrap_or_default();
        let mut pod = RecommenderPod::new(slim, &mut self.names, &mut self.request_sources);
        let known = self.namespaces.entry(Arc::clone(&namespace)).or_default();
        let (name, former) = match known.pods.remove_entry(name) {
            Some((name, former)) => (name, Some(former)),
            None => (Arc::from(name), None),
        };
        let same = former.as_ref().filter(|former| former.pod.uid == pod.uid);
        let read = same.map_or(0, |former| former.last_usage_fetch);
        let source =
            if same.is_some() { OomKillSource::PodUpdate } else { OomKillSource::FirstObserved };
        let kills = &mut self.oom_kills;
        pod.detect_oom_kills(same.map(|former| &former.pod), slim, |container, at, kill| {
            kills.push(ObservedOomKill {
                namespace: Arc::clone(&namespace),
                pod: Arc::clone(&name),
                container: Arc::clone(&container.name),
                at,
                kill,
                source,
                vpas: Vec::new(),
            });
        });
        if former.is_none() {
            self.pods += 1;
        }
        let list = self.lists.pods;
        let vpas = match former {
            Some(former) if former.pod.labels == pod.labels => former.vpas,
            former => {
                if let Some(former) = former {
                    known.remove_pod(&name, &former.pod.labels, &former.vpas);
                }
                known.add_pod(&name, &pod.labels)
            }
        };
        known.pods.insert(name, PodEntry { pod, vpas, list, last_usage_fetch: read });
    }

    /// A pod is there and cannot be read: what was known of it stays.
    pub fn keep_unreadable_pod(&mut self, namespace: &str, name: &str) {
        let list = self.lists.pods;
        let known = self.namespaces.get_mut(namespace);
        if let Some(entry) = known.and_then(|known| known.pods.get_mut(name)) {
            entry.list = list;
        }
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(known) = self.namespaces.get_mut(namespace) else { return };
        let Some((name, entry)) = known.pods.get_key_value(name) else { return };
        known.pods_by_label.remove(name, &entry.pod.labels);
        let name = Arc::clone(name);
        self.forget_pod(namespace, &name);
    }

    /// Forgets a pod that is no longer found by its labels.
    fn forget_pod(&mut self, namespace: &str, name: &str) {
        let Some(known) = self.namespaces.get_mut(namespace) else { return };
        let Some((name, entry)) = known.pods.remove_entry(name) else { return };
        known.remove_from_vpas(&name, &entry.vpas);
        // A kill that waits to be counted would not find the VPAs of its pod any more.
        let of_it = |kill: &&mut ObservedOomKill| {
            kill.vpas.is_empty() && *kill.pod == *name && *kill.namespace == *namespace
        };
        for kill in self.oom_kills.iter_mut().filter(of_it) {
            kill.vpas.clone_from(&entry.vpas);
        }
        self.pods -= 1;
        self.drop_if_empty(namespace);
    }

    /// A pod, and the names of the VPAs that match it.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<(&RecommenderPod, &[Arc<str>])> {
        let entry = self.namespaces.get(namespace)?.pods.get(name)?;
        Some((&entry.pod, &entry.vpas))
    }

    /// The shared name of a namespace, if anything is known there.
    pub fn namespace(&self, name: &str) -> Option<&Arc<str>> {
        self.namespaces.get_key_value(name).map(|(name, _)| name)
    }

    /// The pods that match a VPA, by name.
    pub fn pods_of<'a>(
        &'a self,
        key: &ObjectKey,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a RecommenderPod)> {
        let known = self.namespaces.get(&key.namespace);
        let found = known.and_then(|known| Some((known, known.vpas.get(&key.name)?)));
        found.into_iter().flat_map(|(known, vpa)| {
            vpa.pods.iter().filter_map(|name| Some((name, &known.pods.get(name)?.pod)))
        })
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &RecommenderPod> {
        self.namespaces.values().flat_map(|known| known.pods.values().map(|entry| &entry.pod))
    }

    /// Number of pods.
    pub fn pod_count(&self) -> usize {
        self.pods
    }

    /// How often requests were read from where.
    pub fn request_sources(&self) -> RequestSourceCounts {
        self.request_sources
    }

    /// The kills that were found since the last call.
    pub fn take_oom_kills(&mut self) -> Vec<ObservedOomKill> {
        std::mem::take(&mut self.oom_kills)
    }

    /// Puts a kill among those that were found.
    pub fn add_oom_kill(&mut self, kill: ObservedOomKill) {
        self.oom_kills.push(kill);
    }

    fn drop_if_empty(&mut self, namespace: &str) {
        if self.namespaces.get(namespace).is_some_and(NamespaceIndex::is_empty) {
            self.namespaces.remove(namespace);
        }
    }
}

/// Whether this recommender is the one that a VPA asks for.
fn is_handled_by(vpa: &VerticalPodAutoscaler, recommender: &str) -> bool {
    let named = &vpa.spec.recommenders;
    if named.is_empty() {
        return recommender == "default";
    }
    named.iter().any(|one| one.name == recommender)
}
