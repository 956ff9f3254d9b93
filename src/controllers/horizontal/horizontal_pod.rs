//! A pod as the horizontal controller stores it: what all pods of a template have in common is stored once.

use std::{mem, sync::Arc};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use plimsoll_core::{
    hpa::{
        self,
        pod::{Container, ReadyCondition, ReadyStatus},
    },
    scaling::pod_readiness::Phase,
    types::{Time, interner::Interner},
};

use crate::cluster::cache::{
    label_store::HasLabels,
    replica_pod::{CachedPod, OwnerRef},
    selector::Labels,
};

/// A pod, its labels and its owners.
#[derive(Clone, Debug)]
pub struct HorizontalPod {
    name: Arc<str>,
    labels: Labels,
    owners: Arc<[OwnerRef]>,
    phase: Phase,
    is_terminating: bool,
    start_time: Option<Time>,
    ready: Option<ReadyCondition>,
    /// The pod without the fields above: containers and requests.
    common: Arc<hpa::Pod>,
}

/// What pods have in common.
#[derive(Debug, Default)]
pub struct SharedParts {
    labels: Interner<str>,
    owners: Interner<[OwnerRef]>,
    pods: Interner<hpa::Pod>,
}

impl HasLabels for HorizontalPod {
    fn labels(&self) -> &Labels {
        &self.labels
    }
}

impl CachedPod for HorizontalPod {
    type Object = Pod;
    type Shared = SharedParts;

    fn from_object(object: Pod, shared: &mut SharedParts) -> Self {
        let owners = object.owner_references().iter().map(OwnerRef::from).collect();
        let mut pod = hpa::Pod::read(&object);
        for container in pod.containers.iter_mut().chain(&mut pod.init_containers) {
            leave_out_equal_requests(container);
        }
        Self {
            name: mem::take(&mut pod.name).into(),
            labels: Labels::from(mem::take(&mut pod.labels)).shared(&mut shared.labels),
            owners: shared.owners.share(owners),
            phase: mem::take(&mut pod.phase),
            is_terminating: mem::take(&mut pod.is_terminating),
            start_time: pod.start_time.take(),
            ready: pod.ready.take(),
            common: shared.pods.share(Arc::new(pod)),
        }
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn owners(&self) -> &[OwnerRef] {
        &self.owners
    }

    fn is_ready(&self) -> bool {
        let is_true = |ready: ReadyCondition| ready.status == ReadyStatus::True;
        self.phase == Phase::Running && self.ready.is_some_and(is_true) && !self.is_terminating
    }
}

impl HorizontalPod {
    /// The pod as decisions use it. Whether it is foreign depends on the target that reads it.
    pub fn to_pod(&self) -> hpa::Pod {
        let labels = self.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        hpa::Pod {
            name: self.name.to_string(),
            labels: labels.collect(),
            phase: self.phase,
            is_terminating: self.is_terminating,
            start_time: self.start_time,
            ready: self.ready,
            ..hpa::Pod::clone(&self.common)
        }
    }
}

/// Removes actuated requests that equal those of the spec, which stand in for them. So pods that are starting have the same
/// containers as those that run.
fn leave_out_equal_requests(container: &mut Container) {
    if container.actuated.as_ref() == Some(&container.requests) {
        container.actuated = None;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::*;
    use crate::cluster::{cache::label_store::LabelStore, watch::ObjectChange};

    /// A pod of a ReplicaSet, with labels as Helm charts set them, an application and a sidecar.
    fn object(set: usize, number: usize) -> Pod {
        let (app, hash) = (format!("checkout-{set:05}"), format!("{:010x}", 0x6d_4b9c_7f5d + set));
        let container = |name: &str, cpu: &str, memory: &str| {
            json!({"name": name, "image": "registry.example.com/any:1.2.3",
                "resources": {"requests": {"cpu": cpu, "memory": memory}}})
        };
        let status = |name: &str, cpu: &str, memory: &str| {
            json!({"name": name, "image": "any", "imageID": "any", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": cpu, "memory": memory}}})
        };
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("{app}-{hash}-{number:05}"), "namespace": "shop",
                "uid": format!("0b9a7c1e-52ff-4a4e-{set:04x}-{number:012x}"),
                "labels": {
                    "app.kubernetes.io/component": "server", "app.kubernetes.io/instance": app,
                    "app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "checkout",
                    "app.kubernetes.io/version": "1.2.3", "pod-template-hash": hash,
                },
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
                    "name": format!("{app}-{hash}"), "controller": true,
                    "uid": format!("7c1e0b9a-52ff-4a4e-8b0c-{set:012x}")}],
            },
            "spec": {"containers": [container("app", "250m", "512Mi"),
                container("proxy", "50m", "64Mi")]},
            "status": {
                "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:09Z"}],
                "containerStatuses": [status("app", "250m", "512Mi"),
                    status("proxy", "50m", "64Mi")],
            },
        }))
        .expect("a pod")
    }

    #[test]
    fn a_pod_takes_less_than_500_bytes() {
        const SETS: usize = 1_000;
        const PODS: usize = 10;
        let (mut pods, mut shared) = (LabelStore::default(), SharedParts::default());
        let used = allocation_counter::measure(|| {
            for number in 0..SETS * PODS {
                let object = object(number / PODS, number % PODS);
                let pod = HorizontalPod::from_object(object, &mut shared);
                pods.apply(ObjectChange::Applied(("shop".to_owned(), pod.name(), pod)));
            }
        });
        let each = used.bytes_current / (SETS * PODS) as i64;
        assert_eq!(pods.len(), SETS * PODS);
        assert!((100..500).contains(&each), "{each} bytes");
    }

    #[test]
    fn a_stored_pod_is_the_pod_that_was_read() {
        let mut resized = object(1, 1);
        let containers = resized.spec.as_mut().map(|spec| &mut spec.containers);
        let container = containers.and_then(|containers| containers.first_mut());
        let resources = container.and_then(|container| container.resources.as_mut());
        let requests = resources.and_then(|resources| resources.requests.as_mut());
        requests.expect("requests").insert("cpu".to_owned(), Quantity("300m".to_owned()));
        let mut starting = object(1, 2);
        starting.status = None;
        let mut shared = SharedParts::default();
        for object in [object(1, 0), resized, starting] {
            let expected = hpa::Pod::read(&object);
            let stored = HorizontalPod::from_object(object, &mut shared);
            assert_eq!(
                (stored.is_ready(), &*stored.name()),
                (expected.is_ready(), &*expected.name)
            );
            let mut pod = stored.to_pod();
            for (stored, read) in pod.containers.iter_mut().zip(&expected.containers) {
                // Actuated requests that equal those of the spec are left out.
                if read.actuated.as_ref() == Some(&read.requests) {
                    assert_eq!(stored.actuated.replace(read.requests.clone()), None);
                }
            }
            assert_eq!(pod, expected);
        }
        // The second is being resized; the first and the third have the same requests.
        assert_eq!([shared.labels.len(), shared.owners.len(), shared.pods.len()], [1, 1, 2]);
    }
}
