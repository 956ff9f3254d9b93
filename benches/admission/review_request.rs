//! Admission reviews of a new pod of each workload, with everything that an API server sends.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

use super::{
    cluster::Cluster,
    support::{
        Testbed,
        bulk_objects::{Workload, collection},
    },
};

const AT_ONCE: usize = 16;

/// A review and the expected response.
#[derive(Clone, Debug)]
pub struct ReviewRequest {
    /// The serialized review.
    pub body: Bytes,
    /// The uid as it appears in a response.
    uid: String,
    /// The expected CPU request of the first container.
    cpu: String,
}

/// A review for a pod of each workload of a cluster.
pub async fn about(bed: &Testbed, cluster: &Cluster) -> Vec<ReviewRequest> {
    let client = bed.client();
    let ask = |(index, workload)| ReviewRequest::new(&client, index, workload);
    let questions = futures::stream::iter(cluster.workloads.iter().enumerate()).map(ask);
    questions.buffered(AT_ONCE).try_collect().await.expect("the API server accepts such pods")
}

impl ReviewRequest {
    async fn new(client: &Client, index: usize, workload: &Workload) -> kube::Result<Self> {
        let namespace = &workload.namespace;
        let path = format!("{}?dryRun=All", collection("v1", namespace, "pods"));
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(realistic_pod(workload).to_string().into_bytes())
            .expect("a request");
        // The API server fills in defaults and managed fields.
        let mut pod: Value = client.request(request).await?;
        let metadata = pod["metadata"].as_object_mut().expect("an object");
        metadata.retain(|field, _| !matches!(field.as_str(), "uid" | "resourceVersion"));
        metadata.insert("creationTimestamp".to_owned(), Value::Null);
        pod["status"] = json!({});
        let uid = format!("705ab4f5-6393-11e8-b7cc-{index:012}");
        let body = review(&uid, namespace, &pod).to_string().into();
        Ok(Self { body, uid: format!(r#""uid":"{uid}""#), cpu: Cluster::cpu(index) })
    }

    /// A cheap check of whether a response has a patch for this pod, for use between two measurements.
    pub fn is_answered_by(&self, answer: &[u8]) -> bool {
        let answer = std::str::from_utf8(answer).unwrap_or_default();
        answer.contains(r#""patch":""#) && answer.contains(&self.uid)
    }

    /// Whether a response is the patch for this pod.
    pub fn is_patched_by(&self, answer: &[u8]) -> bool {
        let Ok(answer) = serde_json::from_slice::<Value>(answer) else { return false };
        let response = &answer["response"];
        let patch = STANDARD.decode(response["patch"].as_str().unwrap_or_default());
        let patch = patch.ok().and_then(|patch| serde_json::from_slice::<Vec<Value>>(&patch).ok());
        let says = |operation: &Value| {
            operation["path"] == "/spec/containers/0/resources/requests/cpu"
                && operation["value"] == *self.cpu
        };
        self.is_answered_by(answer.to_string().as_bytes())
            && response["allowed"] == true
            && response["patchType"] == "JSONPatch"
            && patch.is_some_and(|patch| patch.iter().any(says))
    }
}

/// A realistic pod: with probes, an environment, volumes and limits.
fn realistic_pod(workload: &Workload) -> Value {
    let mut pod = workload.pod_object(0);
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 8080 } });
    let environment: Vec<Value> = (0..6)
        .map(|number| json!({ "name": format!("SETTING_{number}"), "value": "of the service" }))
        .chain([json!({
            "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } },
        })])
        .collect();
    for container in pod["spec"]["containers"].as_array_mut().expect("a list") {
        container["ports"] = json!([{ "name": "http", "containerPort": 8080 }]);
        container["env"] = environment.clone().into();
        container["readinessProbe"] = probe.clone();
        container["livenessProbe"] = probe.clone();
        container["resources"]["limits"] = json!({ "cpu": "500m", "memory": "512Mi" });
        container["volumeMounts"] = json!([
            { "name": "settings", "mountPath": "/etc/service" },
            { "name": "scratch", "mountPath": "/tmp" },
        ]);
    }
    pod["spec"]["volumes"] = json!([
        { "name": "settings", "configMap": { "name": "settings" } },
        { "name": "scratch", "emptyDir": {} },
    ]);
    pod["metadata"]["annotations"] = json!({ "prometheus.io/scrape": "true" });
    pod
}

fn review(uid: &str, namespace: &str, pod: &Value) -> Value {
    let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
    let resource = json!({ "group": "", "version": "v1", "resource": "pods" });
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uid, "kind": kind, "resource": resource, "requestKind": kind,
            "requestResource": resource, "name": pod["metadata"]["name"], "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {
                "username": "system:serviceaccount:kube-system:replicaset-controller",
                "uid": "4bc4e1a0-6fa1-4b7e-9d1d-3a5d5c0f0d4d",
                "groups": [
                    "system:serviceaccounts", "system:serviceaccounts:kube-system",
                    "system:authenticated",
                ],
            },
            "object": pod, "oldObject": null, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        },
    })
}
