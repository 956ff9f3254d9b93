//! What is known of one namespace, and which of its pods belong to which of its VPAs.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::Vpa;
use crate::observe::{
    pod::Pod,
    selector::{Labels, Selector},
};

#[derive(Debug, Default)]
pub(super) struct Namespace {
    pub(super) vpas: HashMap<Arc<str>, Vpa>,
    /// VPAs of other recommenders, with the list that brought them: their histories are not orphans.
    pub(super) others: HashMap<Box<str>, u32>,
    pub(super) pods: HashMap<Arc<str>, Entry>,
    pub(super) pods_by_pair: HashMap<u64, Vec<Arc<str>>>,
    pub(super) vpas_by_pair: HashMap<u64, Vec<Arc<str>>>,
    /// VPAs whose selector insists on no pair.
    pub(super) loose: Vec<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) pod: Pod,
    pub(super) vpas: Vec<Arc<str>>,
    pub(super) list: u32,
    /// The reading of usage that had it last; 0 before the first.
    pub(super) read: u32,
}

impl Namespace {
    /// Enters a pod into the index, and answers the VPAs that match it.
    pub(super) fn link(&mut self, name: &Arc<str>, labels: &Labels) -> Vec<Arc<str>> {
        let mut vpas: Vec<Arc<str>> = Vec::new();
        let matches = |vpa: &&Arc<str>| self.vpas[&***vpa].selector.matches(labels);
        for pair in labels.iter().map(hash) {
            self.pods_by_pair.entry(pair).or_default().push(Arc::clone(name));
            if let Some(anchored) = self.vpas_by_pair.get(&pair) {
                vpas.extend(anchored.iter().filter(matches).cloned());
            }
        }
        vpas.extend(self.loose.iter().filter(matches).cloned());
        for vpa in &vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.pods.insert(Arc::clone(name));
            }
        }
        vpas.shrink_to_fit();
        vpas
    }

    /// Takes a pod out of the index.
    pub(super) fn unlink(&mut self, name: &Arc<str>, labels: &Labels, vpas: &[Arc<str>]) {
        for pair in labels.iter().map(hash) {
            // The name in the index is the very one that the pod is known by, so nothing is compared by letter.
            take_out(&mut self.pods_by_pair, pair, |known| Arc::ptr_eq(known, name));
        }
        for vpa in vpas {
            if let Some(vpa) = self.vpas.get_mut(vpa) {
                vpa.pods.remove(name);
            }
        }
    }

    /// Whether nothing is known of it any more.
    pub(super) fn is_empty(&self) -> bool {
        self.vpas.is_empty() && self.others.is_empty() && self.pods.is_empty()
    }

    /// Gives a VPA another selector, and finds its pods anew. Answers those that it did not have before.
    pub(super) fn match_pods(&mut self, name: &Arc<str>, selector: Selector) -> Vec<Arc<str>> {
        let mut new = Vec::new();
        let Some(vpa) = self.vpas.get_mut(name) else { return new };
        let former = std::mem::take(&mut vpa.pods);
        for pod in &former {
            if let Some(entry) = self.pods.get_mut(pod) {
                entry.vpas.retain(|vpa| vpa != name);
            }
        }
        match vpa.anchor.take() {
            Some(anchor) => take_out(&mut self.vpas_by_pair, anchor, |known| known == name),
            None => self.loose.retain(|loose| loose != name),
        }
        if !selector.is_nothing() {
            // The pair that the fewest VPAs insist on tells most.
            let pairs = selector.anchors().map(hash);
            vpa.anchor = pairs.min_by_key(|pair| self.vpas_by_pair.get(pair).map_or(0, Vec::len));
            match vpa.anchor {
                Some(anchor) => {
                    self.vpas_by_pair.entry(anchor).or_default().push(Arc::clone(name));
                }
                None => self.loose.push(Arc::clone(name)),
            }
            // The pair that the fewest pods have leaves least to look at.
            let pairs = selector.anchors().map(hash);
            let rarest = pairs.min_by_key(|pair| self.pods_by_pair.get(pair).map_or(0, Vec::len));
            let candidates: Vec<Arc<str>> = match rarest {
                Some(pair) => self.pods_by_pair.get(&pair).cloned().unwrap_or_default(),
                None => self.pods.keys().cloned().collect(),
            };
            for pod in candidates {
                let Some(entry) = self.pods.get_mut(&pod) else { continue };
                if selector.matches(&entry.pod.labels) && !entry.vpas.contains(name) {
                    entry.vpas.push(Arc::clone(name));
                    if !former.contains(&pod) {
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

fn hash(pair: (&str, &str)) -> u64 {
    let mut hasher = DefaultHasher::new();
    pair.hash(&mut hasher);
    hasher.finish()
}

fn take_out(map: &mut HashMap<u64, Vec<Arc<str>>>, pair: u64, is_it: impl Fn(&Arc<str>) -> bool) {
    if let Some(names) = map.get_mut(&pair) {
        if let Some(index) = names.iter().position(is_it) {
            names.swap_remove(index);
        }
        if names.is_empty() {
            map.remove(&pair);
        }
    }
}
