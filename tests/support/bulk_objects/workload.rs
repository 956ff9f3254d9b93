//! A workload with all its objects, from the target down to the pods, of every kind that a VPA can target.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::ApiWrite;

/// The kind of a workload. Some represent a whole owner chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Owns a ReplicaSet, which owns the pods.
    Deployment,
    /// Owns its pods.
    StatefulSet,
    /// Owns its pods.
    DaemonSet,
    /// Owns its pods, and has no owner.
    ReplicaSet,
    /// Owns its pods; of the core group.
    ReplicationController,
    /// Owns its pods, and has no owner.
    Job,
    /// Owns a Job, which owns the pods.
    CronJob,
    /// A custom resource with a scale subresource; owns a ReplicaSet, which owns the pods.
    Rollout,
}

/// A workload whose objects look as its controllers would have left them.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Namespace of all its objects.
    pub namespace: String,
    /// Name of the target; pods have it as the label `app`.
    pub name: String,
    /// Kind of the target.
    pub kind: WorkloadKind,
    /// Names of its containers.
    pub containers: Vec<String>,
    /// Whether its pods have an init container `setup`.
    pub has_init: bool,
    /// Memory requested by each container, in bytes.
    pub request: u64,
}

/// The state of a container of a pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContainerRun {
    /// Number of restarts.
    pub restarts: u32,
    /// Time of the last OOM kill.
    pub killed: Option<Timestamp>,
    /// Whether it has not been restarted since.
    pub is_down: bool,
}

// === impl WorkloadKind ===

impl WorkloadKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::ReplicaSet,
        Self::ReplicationController,
        Self::Job,
        Self::CronJob,
        Self::Rollout,
    ];

    /// Group with version, kind, and plural.
    fn api_names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Deployment => ("apps/v1", "Deployment", "deployments"),
            Self::StatefulSet => ("apps/v1", "StatefulSet", "statefulsets"),
            Self::DaemonSet => ("apps/v1", "DaemonSet", "daemonsets"),
            Self::ReplicaSet => ("apps/v1", "ReplicaSet", "replicasets"),
            Self::ReplicationController => {
                ("v1", "ReplicationController", "replicationcontrollers")
            }
            Self::Job => ("batch/v1", "Job", "jobs"),
            Self::CronJob => ("batch/v1", "CronJob", "cronjobs"),
            Self::Rollout => ("argoproj.io/v1alpha1", "Rollout", "rollouts"),
        }
    }

    /// The kind between the target and its pods.
    fn intermediate_owner(self) -> Option<Self> {
        match self {
            Self::Deployment | Self::Rollout => Some(Self::ReplicaSet),
            Self::CronJob => Some(Self::Job),
            _ => None,
        }
    }
}

// === impl Workload ===

impl Workload {
    /// The target as a VPA references it.
    pub fn target_ref(&self) -> Value {
        reference(self.kind, &self.name)
    }

    /// A reference to the owner between the target and its pods, which is not a valid target.
    pub fn intermediate_ref(&self) -> Option<Value> {
        Some(reference(self.kind.intermediate_owner()?, &self.intermediate_name()))
    }

    /// Its owners, from the target down, without pods.
    pub fn owners(&self) -> Vec<ApiWrite> {
        let mut writes = vec![self.owner(self.kind, &self.name, None)];
        if let Some(between) = self.kind.intermediate_owner() {
            writes.push(self.owner(
                between,
                &self.intermediate_name(),
                Some((self.kind, &self.name)),
            ));
        }
        writes
    }

    /// Status writes to send after the owners exist.
    pub fn statuses(&self) -> Vec<ApiWrite> {
        if self.kind != WorkloadKind::Rollout {
            return Vec::new();
        }
        let path = self.path(self.kind, &self.name);
        let selector = json!({ "status": { "selector": format!("app={}", self.name) } });
        vec![ApiWrite::patch(format!("{path}/status"), &selector)]
    }

    /// Creates one of its pods; the number is arbitrary.
    pub fn create_pod(&self, number: u64) -> ApiWrite {
        let mut pod = self.pod_object(number);
        // No agent runs this node: the test writes the status itself.
        pod["spec"]["nodeName"] = "nowhere".into();
        ApiWrite::create(self.collection("v1", "pods"), &pod)
    }

    /// The pod as its owner would create it.
    pub fn pod_object(&self, number: u64) -> Value {
        let owner = self
            .kind
            .intermediate_owner()
            .map_or((self.kind, self.name.clone()), |between| (between, self.intermediate_name()));
        let mut pod = self.template();
        let metadata = json!({
            "name": self.pod_name(number), "namespace": self.namespace,
            "labels": pod["metadata"]["labels"], "ownerReferences": [owner_reference(owner.0, &owner.1)],
        });
        pod["metadata"] = metadata;
        pod
    }

    /// The name of a pod.
    pub fn pod_name(&self, number: u64) -> String {
        format!("{}-{number}", self.name)
    }

    /// Marks the pod as running, with containers in the state of `runs`; those without an entry run for the first
    /// time.
    pub fn report_pod_running(&self, number: u64, runs: &[ContainerRun]) -> ApiWrite {
        let statuses = self.containers.iter().enumerate().map(|(index, name)| {
            let run = runs.get(index).copied().unwrap_or_default();
            let up = json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } });
            let (state, last) = match run.killed {
                Some(at) if run.is_down => (killed_at(at), json!({})),
                Some(at) => (up, killed_at(at)),
                None => (up, json!({})),
            };
            json!({
                "name": name, "image": "example/any", "imageID": "example/any", "ready": !run.is_down,
                "restartCount": run.restarts, "state": state, "lastState": last,
            })
        });
        let path = format!("{}/{}/status", self.collection("v1", "pods"), self.pod_name(number));
        let statuses: Vec<_> = statuses.collect();
        ApiWrite::patch(
            path,
            &json!({ "status": { "phase": "Running", "containerStatuses": statuses } }),
        )
    }

    /// Deletes the pod.
    pub fn delete_pod(&self, number: u64) -> ApiWrite {
        ApiWrite::delete(format!("{}/{}", self.collection("v1", "pods"), self.pod_name(number)))
    }

    pub fn intermediate_name(&self) -> String {
        format!("{}-6d4b9c7f5d", self.name)
    }

    fn template(&self) -> Value {
        let container = |name: &String| {
            json!({
                "name": name, "image": "example/any",
                "resources": { "requests": { "cpu": "100m", "memory": self.request.to_string() } },
            })
        };
        let mut spec = json!({
            "containers": self.containers.iter().map(container).collect::<Vec<_>>(),
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        });
        if self.has_init {
            spec["initContainers"] = json!([{ "name": "setup", "image": "example/any" }]);
        }
        if matches!(self.kind, WorkloadKind::Job | WorkloadKind::CronJob) {
            spec["restartPolicy"] = "OnFailure".into();
        }
        let labels = json!({ "app": self.name, "pod-template-hash": "6d4b9c7f5d" });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "labels": labels }, "spec": spec })
    }

    fn owner(
        &self,
        kind: WorkloadKind,
        name: &str,
        owner: Option<(WorkloadKind, &str)>,
    ) -> ApiWrite {
        let (api_version, word, plural) = kind.api_names();
        let mut template = self.template();
        let fields = template.as_object_mut().expect("an object");
        fields.retain(|name, _| matches!(name.as_str(), "metadata" | "spec"));
        let labels = json!({ "app": self.name });
        let selector = json!({ "matchLabels": labels });
        let spec = match kind {
            WorkloadKind::Deployment | WorkloadKind::ReplicaSet => {
                json!({ "selector": selector, "template": template })
            }
            WorkloadKind::Rollout => json!({ "replicas": 1 }),
            WorkloadKind::StatefulSet => {
                json!({ "selector": selector, "template": template, "serviceName": self.name })
            }
            WorkloadKind::DaemonSet => json!({ "selector": selector, "template": template }),
            WorkloadKind::ReplicationController => {
                json!({ "selector": labels, "template": template })
            }
            WorkloadKind::Job => {
                json!({ "selector": selector, "template": template, "manualSelector": true })
            }
            WorkloadKind::CronJob => {
                let job = json!({ "spec": { "template": template } });
                json!({ "schedule": "0 0 1 1 *", "jobTemplate": job })
            }
        };
        let mut metadata = json!({ "name": name, "namespace": self.namespace, "labels": labels });
        if let Some((kind, name)) = owner {
            metadata["ownerReferences"] = json!([owner_reference(kind, name)]);
        }
        let object = json!({
            "apiVersion": api_version, "kind": word, "metadata": metadata, "spec": spec,
        });
        ApiWrite::create(self.collection(api_version, plural), &object)
    }

    fn path(&self, kind: WorkloadKind, name: &str) -> String {
        let (api_version, _, plural) = kind.api_names();
        format!("{}/{name}", self.collection(api_version, plural))
    }

    fn collection(&self, api_version: &str, plural: &str) -> String {
        collection(api_version, &self.namespace, plural)
    }
}

/// Path of a collection.
pub fn collection(api_version: &str, namespace: &str, plural: &str) -> String {
    let mut path = if api_version == "v1" { "/api/v1" } else { "/apis" }.to_owned();
    if api_version != "v1" {
        let _ = write!(path, "/{api_version}");
    }
    let _ = write!(path, "/namespaces/{namespace}/{plural}");
    path
}

fn reference(kind: WorkloadKind, name: &str) -> Value {
    let (api_version, kind, _) = kind.api_names();
    json!({ "apiVersion": api_version, "kind": kind, "name": name })
}

/// The uid differs from the owner's, which only the garbage collector would notice; it does not run.
fn owner_reference(kind: WorkloadKind, name: &str) -> Value {
    let mut owner = reference(kind, name);
    owner["controller"] = true.into();
    owner["uid"] = format!("uid-of-{name}").into();
    owner
}

fn killed_at(time: Timestamp) -> Value {
    let at = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({ "terminated": {
        "reason": "OOMKilled", "exitCode": 137, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": at,
    } })
}

/// Registers the custom resource of [`WorkloadKind::Rollout`].
pub fn create_definition() -> ApiWrite {
    let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let scale = json!({
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    });
    let schema =
        json!({ "type": "object", "properties": { "spec": anything, "status": anything } });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "rollouts.argoproj.io" },
        "spec": {
            "group": "argoproj.io", "scope": "Namespaced",
            "names": { "kind": "Rollout", "plural": "rollouts", "singular": "rollout", "listKind": "RolloutList" },
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {}, "scale": scale },
            }],
        },
    });
    ApiWrite::create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)
}
