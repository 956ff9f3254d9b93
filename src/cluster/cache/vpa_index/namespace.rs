//! The VPAs and pods of one namespace, and which pods match which VPA.

use std::{collections::HashMap, sync::Arc};

use super::IndexedVpa;
use crate::cluster::cache::{
    recommender_pod::RecommenderPod,
    selector::{LabelIndex, Labels, Selector, label_hash, remove_name},
};

#[derive(Debug, Default)]
pub(super) struct NamespaceIndex {
    pub(super) vpas: HashMap<Arc<str>, IndexedVpa>,
    /// VPAs of other recommenders, with the list that contained them last: their histories are not orphaned.
    pub(super) foreign_vpas: HashMap<Box<str>, u32>,
    pub(super) pods: HashMap<Arc<str>, PodEntry>,
    pub(super) pods_by_label: LabelIndex,
    pub(super) vpas_by_label: HashMap<u64, Vec<Arc<str>>>,
    /// VPAs whose selector requires no label.
    pub(super) unanchored_vpas: Vec<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct PodEntry {
    pub(super) pod: RecommenderPod,
    pub(super) vpas: Vec<Arc<str>>,
    pub(super) list: u32,
    /// The usage fetch that last contained the pod; 0 before the first.
    pub(super) last_usage_fetch: u32,
}

impl NamespaceIndex {
    /// Adds a pod to the index. Returns the VPAs that match it.
    pub(super) fn add_pod(&mut self, name: &Arc<str>, labels: &Labels) -> Vec<Arc<str>> {
        let mut vpas: Vec<Arc<str>> = Vec::new();
        let matches = |vpa: &&Arc<str>| self.vpas[&***vpa].selector.matches(labels);
        self.pods_by_label.insert(name, labels);
        for pair in labels.iter().map(label_hash) {
            if let Some(vpas_with_label) = self.vpas_by_label.get(&pair) {
                vpas.extend(vpas_with_label.iter().filter(matches).cloned());
            }
        }
        vpas.extend(self.unanchored_vpas.iter().filter(matches).cloned());
        for vpa in &vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.pods.insert(Arc::clone(name));
            }
        }
        vpas.shrink_to_fit();
        vpas
    }

    /// Removes a pod from the index.
    pub(super) fn remove_pod(&mut self, name: &Arc<str>, labels: &Labels, vpas: &[Arc<str>]) {
        self.pods_by_label.remove(name, labels);
        self.remove_from_vpas(name, vpas);
    }

    /// Removes a pod from its VPAs.
    pub(super) fn remove_from_vpas(&mut self, name: &Arc<str>, vpas: &[Arc<str>]) {
        for vpa in vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.pods.remove(name);
            }
        }
    }

    /// Whether the namespace has no VPAs and no pods.
    pub(super) fn is_empty(&self) -> bool {
        self.vpas.is_empty() && self.foreign_vpas.is_empty() && self.pods.is_empty()
    }

    /// Sets the selector of a VPA, and finds its pods. Returns the pods that did not match before.
    pub(super) fn match_pods(&mut self, name: &Arc<str>, selector: Selector) -> Vec<Arc<str>> {
        let mut new = Vec::new();
        let Some(vpa) = self.vpas.get_mut(name) else { return new };
        let previous = std::mem::take(&mut vpa.pods);
        for pod in &previous {
            if let Some(entry) = self.pods.get_mut(pod) {
                entry.vpas.retain(|vpa| vpa != name);
            }
        }
        match vpa.indexed_label.take() {
            Some(label) => remove_name(&mut self.vpas_by_label, label, |vpa_name| vpa_name == name),
            None => self.unanchored_vpas.retain(|vpa_name| vpa_name != name),
        }
        if !selector.is_nothing() {
            // The label that the fewest VPAs require is the most selective.
            let pairs = selector.required_labels().map(label_hash);
            vpa.indexed_label =
                pairs.min_by_key(|pair| self.vpas_by_label.get(pair).map_or(0, Vec::len));
            match vpa.indexed_label {
                Some(label) => {
                    self.vpas_by_label.entry(label).or_default().push(Arc::clone(name));
                }
                None => self.unanchored_vpas.push(Arc::clone(name)),
            }
            let candidates: Vec<Arc<str>> = match self.pods_by_label.candidates(&selector) {
                Some(names) => names.to_vec(),
                None => self.pods.keys().cloned().collect(),
            };
            for pod in candidates {
                let Some(entry) = self.pods.get_mut(&pod) else { continue };
                if selector.matches(&entry.pod.labels) && !entry.vpas.contains(name) {
                    entry.vpas.push(Arc::clone(name));
                    if !previous.contains(&pod) {
                        new.push(Arc::clone(&pod));
                    }
                    vpa.pods.insert(pod);
                }
            }
        }
        vpa.selector = selector;
        new
    }
}
