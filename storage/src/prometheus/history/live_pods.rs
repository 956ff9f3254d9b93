//! Existing pods whose names do not follow the rules of their controllers. They are queried by name.

use std::collections::HashMap;

use super::{pod_name_rules::OwnerRef, workload_batch::WorkloadBatch};
use plimsoll_core::types::ObjectKey;

/// Existing pods with unexpected names, and the VPAs that select them.
#[derive(Clone, Debug, Default)]
pub struct LivePods(HashMap<Box<str>, HashMap<Box<str>, Vec<ObjectKey>>>);

impl LivePods {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the pods of a VPA with a known owner. Pods whose names match the owner are found without this and are not added.
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

    pub(super) fn assign_to(&self, batch: &mut WorkloadBatch) {
        if let Some(pods) = self.0.get(&*batch.namespace) {
            let claimed = batch.match_pods(pods.iter().map(|(pod, vpas)| (&**pod, &**vpas)));
            batch.live_pods = claimed.into();
        }
    }
}

/// What is known about pods without querying a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownPods<'a> {
    pub by_label: Option<&'a super::PodOwnership>,
    pub live: Option<&'a LivePods>,
}
