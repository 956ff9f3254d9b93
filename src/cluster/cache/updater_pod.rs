//! A pod as the updater uses it: its resources and its status.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use plimsoll_core::types::Time;
use serde::{Deserialize, de::Error as _};
use serde_json::value::RawValue;

use super::selector::Labels;
use crate::cluster::watch::{
    maybe_object::without_position,
    partial_objects::{self, Condition, RESIZE_CONDITIONS, lean_metadata},
};
use plimsoll_core::{
    sizing,
    updater::{
        Phase, PodOwner, PodStatus, Readiness,
        pod_status::{ContainerStatus, ResizeCondition, Termination},
    },
};

/// Prefixes of the annotations that are read; others may be long, and there are thousands of pods.
const KEPT_ANNOTATION_PREFIXES: [&str; 2] = ["vpa", "plimsoll.dev/"];

#[derive(kube::Resource, Clone, Debug)]
#[resource(inherit = "Pod")]
pub struct UpdaterPod {
    /// Object metadata without labels and annotations; `sizing` has the annotations.
    pub metadata: ObjectMeta,
    /// Its labels, in one string instead of a map.
    pub labels: Labels,
    /// Its containers and their resources; without labels.
    pub sizing: sizing::Pod,
    pub status: PodStatus,
}

/// Deserializes the JSON of a pod twice: `sizing` and `status` share no fields but the names of containers.
impl<'de> Deserialize<'de> for UpdaterPod {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        let invalid = |why: serde_json::Error| D::Error::custom(without_position(&why.to_string()));
        let mut sizing_pod: sizing::Pod = serde_json::from_str(text).map_err(invalid)?;
        let mut raw_pod: RawPod = serde_json::from_str(text).map_err(invalid)?;
        if let Some(annotations) = &mut sizing_pod.annotations {
            annotations.retain(|key, _| {
                KEPT_ANNOTATION_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
            });
            if annotations.is_empty() {
                // A map that was emptied keeps its allocation.
                *annotations = BTreeMap::new();
            }
        }
        let labels = Labels::from(std::mem::take(&mut sizing_pod.labels));
        sizing_pod.containers.shrink_to_fit();
        sizing_pod.init_containers.shrink_to_fit();
        let mut status = raw_pod.pod_status();
        status.containers.shrink_to_fit();
        raw_pod.metadata.labels = None;
        raw_pod.metadata.annotations = None;
        if let Some(owners) = &mut raw_pod.metadata.owner_references {
            owners.shrink_to_fit();
        }
        Ok(Self { metadata: raw_pod.metadata, labels, sizing: sizing_pod, status })
    }
}

#[derive(Deserialize)]
struct RawPod {
    #[serde(default, deserialize_with = "lean_metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<Box<str>>,
    start_time: Option<Time>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<partial_objects::ContainerStatus>>,
    init_container_statuses: Option<Vec<partial_objects::ContainerStatus>>,
}

impl UpdaterPod {
    pub fn is_boosted(&self) -> bool {
        sizing::boost::boosted_containers(&self.sizing).next().is_some()
    }

    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl RawPod {
    fn pod_status(&self) -> PodStatus {
        let conditions = self.status.conditions.as_deref().unwrap_or_default();
        let find = |kind: &str| conditions.iter().find(|condition| &*condition.kind == kind);
        // Kubelets remove conditions that no longer apply. Where one of the two has the status False, upstream only checks the
        // status of the first one, and then reads both.
        let first =
            conditions.iter().find(|condition| RESIZE_CONDITIONS.contains(&&*condition.kind));
        let is_resizing = first.is_some_and(|condition| &*condition.status == "True");
        let active = |kind| find(kind).filter(|_| is_resizing).map(resize_condition);
        let statuses = [&self.status.container_statuses, &self.status.init_container_statuses];
        let containers = statuses.into_iter().flatten().flatten().map(container_status);
        PodStatus {
            owner: self.metadata.owner_references.as_deref().and_then(controller),
            phase: match self.status.phase.as_deref() {
                Some("Pending") => Phase::Pending,
                Some("Running") => Phase::Running,
                _ => Phase::Other,
            },
            created: self
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Time::EPOCH, |at| Time::from_secs(at.0.as_second())),
            started: self.status.start_time,
            readiness: match find("Ready") {
                Some(Condition { status, last_transition_time: Some(at), .. }) => match &**status {
                    "True" => Readiness::Ready(*at),
                    "False" => Readiness::Unready(*at),
                    _ => Readiness::Unknown,
                },
                _ => Readiness::Unknown,
            },
            generation: self.metadata.generation,
            resize_pending: active(RESIZE_CONDITIONS[0]),
            resize_in_progress: active(RESIZE_CONDITIONS[1]),
            containers: containers.collect(),
        }
    }
}

/// `lean_metadata` leaves only the references with `controller: true`; of several the last one is used, as upstream does.
fn controller(references: &[OwnerReference]) -> Option<PodOwner> {
    let owner = references.last()?;
    Some(PodOwner { kind: owner.kind.as_str().into(), name: owner.name.as_str().into() })
}

fn resize_condition(condition: &Condition) -> ResizeCondition {
    ResizeCondition {
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time,
        generation: condition.observed_generation,
    }
}

fn container_status(status: &partial_objects::ContainerStatus) -> ContainerStatus {
    let waiting = status.state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
    let terminated = status.last_state.terminated.as_ref();
    ContainerStatus {
        name: Arc::clone(&status.name),
        restarts: u32::try_from(status.restart_count).unwrap_or(0),
        backing_off: waiting == Some("CrashLoopBackOff"),
        last_termination: terminated.and_then(|terminated| {
            Some(Termination {
                out_of_memory: terminated.reason.as_deref() == Some("OOMKilled"),
                started: terminated.started_at?,
                finished: terminated.finished_at?,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{
        "metadata": {
            "namespace": "shop", "name": "web-1", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"vpaObservedContainers": "main", "someone.else/long": "..."},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "1"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2", "controller": true}
            ]
        },
        "spec": {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {
            "phase": "Running", "startTime": "2026-11-21T10:00:05Z",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T10:00:20Z"},
                {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room",
                 "lastTransitionTime": "2026-11-21T11:00:00Z", "observedGeneration": 3},
                {"type": "PodResizeInProgress", "status": "False", "lastTransitionTime": "2026-11-21T11:00:00Z"}
            ],
            "containerStatuses": [{
                "name": "main", "restartCount": 2, "ready": true,
                "resources": {"requests": {"cpu": "90m"}},
                "state": {"running": {"startedAt": "2026-11-21T10:30:00Z"}},
                "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137,
                    "startedAt": "2026-11-21T10:00:06Z", "finishedAt": "2026-11-21T10:29:00Z"}}
            }]
        }
    }"#;

    fn at(text: &str) -> Time {
        serde_json::from_value(text.into()).expect("a time")
    }

    #[test]
    fn a_cached_pod_keeps_its_resources_and_status_and_drops_foreign_annotations() {
        let pod: UpdaterPod = serde_json::from_str(POD).expect("a pod");
        assert!(!pod.is_terminating());
        let annotations = pod.sizing.annotations.as_ref().expect("annotations are stored");
        assert_eq!(annotations.keys().collect::<Vec<_>>(), ["vpaObservedContainers"]);
        assert_eq!(pod.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!((&pod.metadata.labels, &pod.metadata.annotations), (&None, &None));
        assert_eq!(pod.labels.iter().collect::<Vec<_>>(), [("app", "web")]);
        assert!(pod.sizing.labels.is_empty(), "labels are stored once");
        let life = &pod.status;
        let owner = life.owner.as_ref().expect("a controller");
        assert_eq!((&*owner.kind, &*owner.name), ("ReplicaSet", "web"));
        assert_eq!((life.phase, life.generation), (Phase::Running, Some(3)));
        assert_eq!(life.readiness, Readiness::Ready(at("2026-11-21T10:00:20Z")));
        assert_eq!(life.started, Some(at("2026-11-21T10:00:05Z")));
        let pending = life.resize_pending.as_ref().expect("the condition is active");
        assert_eq!((&*pending.reason, pending.generation), ("Deferred", Some(3)));
        assert!(life.resize_in_progress.is_some(), "the status of the first condition counts");
        let main = life.containers.iter().find(|container| &*container.name == "main");
        let main = main.expect("the container exists");
        assert_eq!((main.restarts, main.backing_off), (2, false));
        assert!(main.last_termination.is_some_and(|ending| ending.out_of_memory));
    }

    #[test]
    fn a_pod_without_a_status_is_pending_with_unknown_readiness() {
        let text =
            r#"{"metadata": {"name": "a", "namespace": "b"}, "status": {"phase": "Pending"}}"#;
        let pod: UpdaterPod = serde_json::from_str(text).expect("a pod");
        assert_eq!((pod.status.phase, pod.status.readiness), (Phase::Pending, Readiness::Unknown));
        assert_eq!((pod.status.owner, pod.status.started), (None, None));
    }

    #[test]
    fn the_status_of_the_first_of_two_resize_conditions_counts_for_both() {
        let resizing = |statuses: [(usize, &str); 2]| {
            let conditions = statuses.map(|(kind, status)| {
                serde_json::json!({"type": RESIZE_CONDITIONS[kind], "status": status, "reason": "Deferred"})
            });
            let pod = serde_json::json!({
                "metadata": {"name": "web-0", "namespace": "shop"},
                "spec": {"containers": []},
                "status": {"conditions": conditions},
            });
            let pod: UpdaterPod = serde_json::from_str(&pod.to_string()).expect("a pod");
            (pod.status.resize_pending.is_some(), pod.status.resize_in_progress.is_some())
        };
        assert_eq!(resizing([(0, "True"), (1, "True")]), (true, true));
        assert_eq!(resizing([(0, "True"), (1, "False")]), (true, true));
        assert_eq!(resizing([(1, "True"), (0, "False")]), (true, true));
        assert_eq!(resizing([(0, "False"), (1, "True")]), (false, false));
        assert_eq!(resizing([(1, "False"), (0, "True")]), (false, false));
    }
}
