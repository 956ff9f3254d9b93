//! Pods that are there now, of workloads whose pods have other names than their controllers would give them: they are asked for
//! by their own names.

use std::collections::{BTreeSet, HashMap};

use super::{pod_name_rules::OwnerRef, workload_batch::WorkloadBatch};
use plimsoll_core::types::ObjectKey;

/// Pods that are there now, with the VPAs that select them.
#[derive(Clone, Debug, Default)]
pub struct LivePods(HashMap<Box<str>, HashMap<Box<str>, Vec<ObjectKey>>>);

impl LivePods {
    /// Without pods yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the pods of a VPA whose owner is known. One whose name tells its owner is found without this, and is not kept.
    pub fn add<'a>(
        &mut self,
        vpa: &ObjectKey,
        owner: &str,
        pods: impl IntoIterator<Item = &'a str>,
    ) {
        let Some(owner) = OwnerRef::parse(owner) else { return };
        for pod in pods.into_iter().filter(|pod| !owner.matches(pod)) {
            let known = self.0.entry((*vpa.namespace).into()).or_default();
            known.entry(pod.into()).or_default().push(vpa.clone());
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tells a batch which of them are its own.
    pub(super) fn assign_to(&self, batch: &mut WorkloadBatch) {
        if let Some(pods) = self.0.get(&*batch.namespace) {
            let claimed = batch.match_pods(pods.iter().map(|(pod, vpas)| (&**pod, &**vpas)));
            batch.live_pods = claimed.into();
        }
    }
}

/// What is known of pods before a server is asked about them.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownPods<'a> {
    /// Whose pods there were, as their labels tell.
    pub by_label: Option<&'a super::PodOwnership>,
    /// Those that are there now.
    pub live: Option<&'a LivePods>,
}

/// Splits names into groups whose patterns are about this long at most.
pub(super) fn groups(names: BTreeSet<&str>, longest: usize) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&str>> = Vec::new();
    let mut so_far = 0;
    for name in names {
        match groups.last_mut() {
            Some(group) if so_far + length(&[name]) <= longest => group.push(name),
            _ => {
                groups.push(vec![name]);
                so_far = 0;
            }
        }
        so_far += length(&[name]);
    }
    groups
}

/// How long a pattern of these names is at most: each dot is escaped.
pub(super) fn length(names: &[&str]) -> usize {
    names.iter().map(|name| 1 + name.len() + name.matches('.').count()).sum()
}
