//! Creates a pod as a dry run: admission runs as for any pod, and nothing is persisted.

use kube::Client;
use serde_json::Value;

use crate::cluster::list_stream::encode_query;

/// Returns the pod as it would be created.
pub(crate) async fn create_pod_dry_run(
    client: &Client,
    namespace: &str,
    pod: &Value,
) -> kube::Result<Value> {
    let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", encode_query(namespace));
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(pod.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}
