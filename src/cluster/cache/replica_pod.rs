//! A pod as the watermark controller uses it: its owners and its readiness.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use plimsoll_core::types::Time;
use serde::Deserialize;

use super::{label_store::HasLabels, selector::Labels};
use crate::cluster::watch::{
    WatchableObject,
    partial_objects::{Condition, RESIZE_CONDITIONS, lean_references},
};
use plimsoll_core::scaling::{self, pod_readiness::Phase};

/// What a kind of replica autoscaler stores of a pod.
pub trait CachedPod: HasLabels + Send + 'static {
    type Object: WatchableObject;

    /// What pods have in common, stored once.
    type Shared: Debug + Default + Send + 'static;

    fn from_object(object: Self::Object, shared: &mut Self::Shared) -> Self;
    fn name(&self) -> Arc<str>;
    /// All owners of the pod, not only the controller.
    fn owners(&self) -> &[OwnerRef];
    fn is_ready(&self) -> bool;
}

#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "Pod")]
pub struct PartialReplicaPod {
    /// Object metadata with all owner references, without annotations.
    #[serde(default, deserialize_with = "lean_references")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<Box<str>>,
    start_time: Option<Time>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

#[derive(Clone, Debug)]
pub struct ReplicaPod {
    pub labels: Labels,
    pub owners: Box<[OwnerRef]>,
    /// The pod with `owned_by_target` unset: that depends on the target that reads it.
    pub pod: scaling::Pod,
}

impl HasLabels for ReplicaPod {
    fn labels(&self) -> &Labels {
        &self.labels
    }
}

impl CachedPod for ReplicaPod {
    type Object = PartialReplicaPod;
    type Shared = ();

    fn from_object(object: PartialReplicaPod, (): &mut ()) -> Self {
        object.into_replica_pod()
    }

    fn name(&self) -> Arc<str> {
        Arc::clone(&self.pod.name)
    }

    fn owners(&self) -> &[OwnerRef] {
        &self.owners
    }

    fn is_ready(&self) -> bool {
        matches!(self.pod.ready, Some((true, _))) && !self.pod.terminating
    }
}

impl From<&OwnerReference> for OwnerRef {
    fn from(owner: &OwnerReference) -> Self {
        Self {
            api_version: owner.api_version.as_str().into(),
            kind: owner.kind.as_str().into(),
            name: owner.name.as_str().into(),
            uid: owner.uid.as_str().into(),
        }
    }
}

impl PartialReplicaPod {
    pub fn into_replica_pod(mut self) -> ReplicaPod {
        let labels = Labels::from(self.metadata.labels.take().unwrap_or_default());
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let ready = conditions.iter().find(|condition| &*condition.kind == "Ready");
        let ready = ready.map(|condition| {
            (&*condition.status == "True", condition.last_transition_time.unwrap_or(Time::EPOCH))
        });
        ReplicaPod {
            labels,
            owners: owners.iter().map(OwnerRef::from).collect(),
            pod: scaling::Pod {
                name: Arc::from(self.metadata.name.as_deref().unwrap_or_default()),
                owned_by_target: false,
                phase: phase(self.status.phase.as_deref()),
                ready,
                started: self.status.start_time,
                terminating: self.metadata.deletion_timestamp.is_some(),
                resizing: conditions.iter().any(|condition| {
                    RESIZE_CONDITIONS.contains(&&*condition.kind) && &*condition.status == "True"
                }),
            },
        }
    }
}

fn phase(word: Option<&str>) -> Phase {
    match word {
        Some("Pending") => Phase::Pending,
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        _ => Phase::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(status: &serde_json::Value) -> ReplicaPod {
        let pod: PartialReplicaPod = serde_json::from_value(json!({
            "metadata": {
                "name": "web-5d9c-abcde", "namespace": "shop", "labels": {"app": "web"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "2"},
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c", "uid": "1",
                     "controller": true},
                ],
                "annotations": {"long": "text"},
            },
            "spec": {"containers": [{"name": "app"}]},
            "status": status,
        }))
        .expect("a pod");
        assert!(pod.metadata.annotations.is_none());
        pod.into_replica_pod()
    }

    #[test]
    fn a_cached_pod_has_its_readiness_and_all_owners() {
        let pod = kept(&json!({
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            ],
        }));
        assert_eq!(pod.owners.len(), 2, "not only the controller");
        let since = Time::from_secs(1_767_225_609);
        assert_eq!(pod.pod.ready, Some((true, since)));
        assert_eq!(pod.pod.started, Some(since.earlier(std::time::Duration::from_secs(9))));
        assert_eq!(
            (pod.pod.phase, pod.pod.terminating, pod.pod.owned_by_target),
            (Phase::Running, false, false)
        );
        assert!(!pod.pod.resizing);
    }

    #[test]
    fn a_pod_is_resizing_while_a_resize_is_pending_or_in_progress() {
        for (kind, status, expected) in [
            ("PodResizePending", "True", true),
            ("PodResizeInProgress", "True", true),
            ("PodResizeInProgress", "False", false),
            ("Initialized", "True", false),
        ] {
            let pod = kept(&json!({"conditions": [{"type": kind, "status": status}]}));
            assert_eq!(pod.pod.resizing, expected, "{kind} {status}");
        }
    }

    #[test]
    fn missing_pod_fields_are_unknown() {
        let pod = kept(&json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}));
        assert_eq!((pod.pod.phase, pod.pod.started), (Phase::Unknown, None));
        assert_eq!(pod.pod.ready, Some((false, Time::EPOCH)));
        assert_eq!(kept(&json!({"phase": "Pending"})).pod.ready, None);
    }
}
