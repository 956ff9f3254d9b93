//! Sends a copy of a pod through the real webhook, as a dry run.

use plimsoll_core::{
    api::vpa::UpdateMode,
    diagnosis::facts::{LivePod, Reading, VpaFacts},
    rightsizing::survey::Survey,
};
use serde_json::{Map, Value};

use super::ListReader;
use crate::cluster::{
    list_stream::error_message, path_segment::path_segment, write::create_pod_dry_run,
};

/// The annotation that the webhook adds to pods that it changes.
const UPDATES: &str = "vpaUpdates";
/// Annotations that the webhook writes.
const WRITTEN: [&str; 2] = [UPDATES, "vpaObservedContainers"];

/// Copies the pod of a VPA that changes new pods, so that its webhook has to change the copy. Nothing is persisted.
pub(crate) async fn live_pod(
    reader: &ListReader<'_>,
    vpas: &Reading<Vec<VpaFacts>>,
    survey: &Survey,
) -> Reading<LivePod> {
    let vpas = vpas.as_ref().map_err(Clone::clone)?;
    let acting = vpas
        .iter()
        .filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off && !vpa.targets.is_empty());
    let mut pods = acting.filter_map(|vpa| {
        let target = &vpa.spec.target_ref;
        let workload = survey.workloads.iter().find(|one| {
            (&*one.namespace, &*one.kind, &*one.name)
                == (&*vpa.namespace, &*target.kind, &*target.name)
        })?;
        Some((&*workload.namespace, &**workload.pods.first()?))
    });
    let Some((namespace, name)) = pods.next() else {
        return Err(
            "no VPA that changes new pods has a recommendation and a pod to copy".to_owned()
        );
    };
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}",
        path_segment("namespace", namespace)?,
        path_segment("resource name", name)?
    );
    let what = format!("pod {namespace}/{name}");
    let pod: Value = reader.get(&path, &what).await?;
    let copy = copy_of(&pod).ok_or_else(|| format!("{what} has no metadata"))?;
    let created = create_pod_dry_run(reader.client, namespace, &copy).await;
    let created = created
        .map_err(|error| format!("a copy of {what} is rejected: {}", error_message(&error)))?;
    let is_changed = created["metadata"]["annotations"].get(UPDATES).is_some();
    Ok(LivePod { pod: format!("{namespace}/{name}"), is_changed })
}

/// A new pod with the labels, owner and containers of a pod.
fn copy_of(pod: &Value) -> Option<Value> {
    let from = pod.get("metadata")?.as_object()?;
    let mut metadata: Map<String, Value> = from
        .iter()
        .filter(|(key, _)| matches!(&***key, "labels" | "annotations" | "ownerReferences"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !WRITTEN.contains(&&**key));
    }
    metadata.insert("generateName".to_owned(), Value::from("plimsoll-doctor-"));
    let mut spec = pod.get("spec")?.as_object()?.clone();
    spec.remove("nodeName");
    Some(serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_is_a_new_pod_of_the_same_owner_without_the_webhooks_annotations() {
        let pod = json!({
            "metadata": {
                "name": "web-0", "uid": "1", "resourceVersion": "2", "labels": {"app": "web"},
                "annotations": {"vpaUpdates": "x", "team": "shop"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web"}],
            },
            "spec": {"nodeName": "node-1", "containers": [{"name": "main"}]},
            "status": {"phase": "Running"},
        });
        let wanted = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "generateName": "plimsoll-doctor-", "labels": {"app": "web"},
                "annotations": {"team": "shop"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web"}],
            },
            "spec": {"containers": [{"name": "main"}]},
        });
        assert_eq!(copy_of(&pod), Some(wanted));
    }
}
