//! A pod as the horizontal controller uses it: its readiness, and the requests of its containers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use plimsoll_core::hpa;

use crate::cluster::cache::{
    label_store::HasLabels,
    replica_pod::{CachedPod, OwnerRef},
    selector::Labels,
};

/// A pod, its labels and its owners.
#[derive(Clone, Debug)]
pub struct HorizontalPod {
    labels: Labels,
    owners: Box<[OwnerRef]>,
    /// The pod, without what depends on the target that reads it.
    pub pod: hpa::Pod,
}

impl HasLabels for HorizontalPod {
    fn labels(&self) -> &Labels {
        &self.labels
    }
}

impl CachedPod for HorizontalPod {
    type Object = Pod;

    fn from_object(object: Pod) -> Self {
        Self {
            labels: Labels::from(object.labels()),
            owners: object.owner_references().iter().map(OwnerRef::from).collect(),
            pod: hpa::Pod::read(&object),
        }
    }

    fn name(&self) -> Arc<str> {
        Arc::from(&*self.pod.name)
    }

    fn owners(&self) -> &[OwnerRef] {
        &self.owners
    }

    fn is_ready(&self) -> bool {
        self.pod.is_ready() && !self.pod.is_terminating
    }
}
