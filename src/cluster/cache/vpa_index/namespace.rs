//! The VPAs and pods of one namespace, and which pods match which VPA.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::IndexedVpa;
use crate::cluster::cache::{
    object_store::ObjectStore,
    recommender_pod::RecommenderPod,
    selector::{LabelIndex, Labels, Selector, label_hash, remove_name},
};

#[derive(Debug, Default)]
pub(super) struct NamespaceIndex {
    /// `None` is a VPA of another recommender: its history is not orphaned.
    pub(super) vpas: ObjectStore<Arc<str>, Option<Box<IndexedVpa>>>,
    pub(super) pods: ObjectStore<Arc<str>, Box<PodEntry>>,
    pub(super) pods_by_label: LabelIndex,
    pub(super) vpas_by_label: HashMap<u64, Vec<Arc<str>>>,
    /// VPAs whose selector requires no label.
    pub(super) unanchored_vpas: Vec<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct PodEntry {
    pub(super) pod: RecommenderPod,
    pub(super) vpas: Vec<Arc<str>>,
    /// The usage fetch that last contained the pod; 0 before the first.
    pub(super) last_usage_fetch: u32,
}

impl NamespaceIndex {
    pub(super) fn vpa(&self, name: &str) -> Option<&IndexedVpa> {
        self.vpas.get(name)?.as_deref()
    }

    pub(super) fn vpa_mut(&mut self, name: &str) -> Option<&mut IndexedVpa> {
        self.vpas.get_mut(name)?.as_deref_mut()
    }

    /// Adds a pod to the index. Returns the VPAs that match it.
    pub(super) fn add_pod(&mut self, name: &Arc<str>, labels: &Labels) -> Vec<Arc<str>> {
        let mut vpas: Vec<Arc<str>> = Vec::new();
        self.pods_by_label.insert(name, labels);
        let matches =
            |name: &&Arc<str>| self.vpa(name).is_some_and(|vpa| vpa.selector.matches(labels));
        for pair in labels.iter().map(label_hash) {
            if let Some(vpas_with_label) = self.vpas_by_label.get(&pair) {
                vpas.extend(vpas_with_label.iter().filter(matches).cloned());
            }
        }
        vpas.extend(self.unanchored_vpas.iter().filter(matches).cloned());
        for vpa in &vpas {
            if let Some(vpa) = self.vpa_mut(vpa) {
                vpa.pods.insert(Arc::clone(name));
            }
        }
        vpas.shrink_to_fit();
        vpas
    }

    pub(super) fn remove_pod(&mut self, name: &Arc<str>, labels: &Labels, vpas: &[Arc<str>]) {
        self.pods_by_label.remove(name, labels);
        self.remove_from_vpas(name, vpas);
    }

    pub(super) fn remove_from_vpas(&mut self, name: &Arc<str>, vpas: &[Arc<str>]) {
        for vpa in vpas {
            if let Some(vpa) = self.vpa_mut(vpa) {
                vpa.pods.remove(name);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vpas.is_empty() && self.pods.is_empty()
    }

    pub(super) fn unlink_vpa(&mut self, name: &str, pods: &BTreeSet<Arc<str>>, label: Option<u64>) {
        for pod in pods {
            if let Some(entry) = self.pods.get_mut(pod) {
                entry.vpas.retain(|vpa| **vpa != *name);
            }
        }
        match label {
            Some(label) => remove_name(&mut self.vpas_by_label, label, |vpa| **vpa == *name),
            None => self.unanchored_vpas.retain(|vpa| **vpa != *name),
        }
    }

    /// Sets the selector of a VPA, and finds its pods. Returns the pods that did not match before.
    pub(super) fn match_pods(&mut self, name: &Arc<str>, selector: Selector) -> Vec<Arc<str>> {
        let mut new = Vec::new();
        let Some(vpa) = self.vpa_mut(name) else { return new };
        let (previous, label) = (std::mem::take(&mut vpa.pods), vpa.indexed_label.take());
        self.unlink_vpa(name, &previous, label);
        let (mut label, mut pods) = (None, BTreeSet::new());
        if !selector.is_nothing() {
            // The label that the fewest VPAs require is the most selective.
            let pairs = selector.required_labels().map(label_hash);
            label = pairs.min_by_key(|pair| self.vpas_by_label.get(pair).map_or(0, Vec::len));
            match label {
                Some(label) => {
                    self.vpas_by_label.entry(label).or_default().push(Arc::clone(name));
                }
                None => self.unanchored_vpas.push(Arc::clone(name)),
            }
            let candidates: Vec<Arc<str>> = match self.pods_by_label.candidates(&selector) {
                Some(names) => names.to_vec(),
                None => self.pods.iter().map(|(name, _)| Arc::clone(name)).collect(),
            };
            for pod in candidates {
                let Some(entry) = self.pods.get_mut(&pod) else { continue };
                if selector.matches(&entry.pod.labels) && !entry.vpas.contains(name) {
                    entry.vpas.push(Arc::clone(name));
                    if !previous.contains(&pod) {
                        new.push(Arc::clone(&pod));
                    }
                    pods.insert(pod);
                }
            }
        }
        if let Some(vpa) = self.vpa_mut(name) {
            (vpa.selector, vpa.indexed_label, vpa.pods) = (selector, label, pods);
        }
        new
    }
}
