//! A Deployment with pods in the state that its controllers and nodes would write.

use serde_json::{Value, json};

use super::support::bulk_objects::{ApiWrite, collection};

/// The pod template hash of all Deployments.
const HASH: &str = "6d4b9c7f5d";

/// A Deployment and its pods, which have the label `app` with its name.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// Number of pods.
    pub pods: usize,
}

impl Workload<'_> {
    /// Creates the Deployment and its pods.
    pub fn objects(self) -> Vec<ApiWrite> {
        let pods = (0..self.pods).map(|number| self.pod(number));
        [self.deployment()].into_iter().chain(pods).collect()
    }

    /// Writes the statuses of the Deployment and its pods, which have to exist.
    pub fn statuses(self) -> Vec<ApiWrite> {
        let pods = (0..self.pods).map(|number| self.pod_status(number));
        [self.deployment_status()].into_iter().chain(pods).collect()
    }

    /// The name of a pod.
    pub fn pod_name(self, number: usize) -> String {
        format!("{}-{HASH}-{number}", self.name)
    }

    fn labels(self) -> Value {
        json!({"app": self.name, "pod-template-hash": HASH, "team": "shop"})
    }

    fn template(self) -> Value {
        json!({"metadata": {"labels": self.labels()}, "spec": {
            "containers": [{"name": "main", "image": "example/any",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}],
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        }})
    }

    fn deployment(self) -> ApiWrite {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": {"app": self.name}},
            "spec": {"replicas": self.pods, "selector": {"matchLabels": {"app": self.name}},
                "template": self.template()},
        });
        ApiWrite::create(collection("apps/v1", self.namespace, "deployments"), &object)
    }

    /// The status that the Deployment controller would write.
    fn deployment_status(self) -> ApiWrite {
        let deployments = collection("apps/v1", self.namespace, "deployments");
        let status = json!({"replicas": self.pods, "readyReplicas": self.pods,
            "updatedReplicas": self.pods, "availableReplicas": self.pods, "observedGeneration": 1});
        ApiWrite::patch(format!("{deployments}/{}/status", self.name), &json!({ "status": status }))
    }

    fn pod(self, number: usize) -> ApiWrite {
        let set = format!("{}-{HASH}", self.name);
        let mut pod = self.template();
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        // No agent runs this node: the pods' status is written here.
        pod["spec"]["nodeName"] = "nowhere".into();
        pod["metadata"] = json!({
            "name": self.pod_name(number), "namespace": self.namespace, "labels": self.labels(),
            // The garbage collector would notice that the ReplicaSet does not exist; it does not run.
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set,
                "uid": format!("uid-of-{set}"), "controller": true}],
        });
        ApiWrite::create(collection("v1", self.namespace, "pods"), &pod)
    }

    fn pod_status(self, number: usize) -> ApiWrite {
        let pods = collection("v1", self.namespace, "pods");
        let since = "2026-01-01T00:00:00Z";
        let status = json!({
            "phase": "Running", "startTime": since,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
            "containerStatuses": [{"name": "main", "image": "example/any", "imageID": "example/any",
                "ready": true, "restartCount": 0, "state": {"running": {"startedAt": since}}}],
        });
        let path = format!("{pods}/{}/status", self.pod_name(number));
        ApiWrite::patch(path, &json!({ "status": status }))
    }
}
