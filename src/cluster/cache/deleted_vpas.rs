//! Checks with the API server which VPAs are deleted. A watch that is behind does not know of VPAs that were created since,
//! and deleting the history of a VPA cannot be undone.

use std::{collections::HashSet, time::Duration};

use futures::StreamExt as _;
use kube::{Api, Client, core::response::StatusDetails};
use plimsoll_core::types::ObjectKey;

use crate::cluster::{list_stream::error_message, write::RateLimiter};
use plimsoll_core::api::VerticalPodAutoscaler;

const MAX_CONCURRENT_REQUESTS: usize = 8;
/// After this, the VPA is assumed to exist.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Returns those of these VPAs that the API server reports as not found. Each request is rate-limited.
pub async fn deleted_vpas(
    client: &Client,
    limiter: &RateLimiter,
    keys: impl IntoIterator<Item = ObjectKey>,
) -> HashSet<ObjectKey> {
    let requests = keys.into_iter().map(|key| async move {
        limiter.acquire().await;
        let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), &key.namespace);
        let response = tokio::time::timeout(ANSWER_LIMIT, vpas.get_metadata(&key.name)).await;
        (key, response)
    });
    let mut deleted = HashSet::new();
    let mut responses =
        std::pin::pin!(futures::stream::iter(requests).buffer_unordered(MAX_CONCURRENT_REQUESTS));
    while let Some((key, response)) = responses.next().await {
        let (namespace, name) = (&key.namespace, &key.name);
        match response {
            Ok(Err(why)) if is_gone(&why, name) => {
                deleted.insert(key);
            }
            Ok(Ok(_)) => tracing::warn!(
                %namespace, %name,
                "VPA exists but is missing from the watch; keeping its stored history"
            ),
            Ok(Err(why)) => {
                let error = error_message(&why);
                tracing::warn!(%namespace, %name, error, "failed to get VPA; keeping its stored history");
            }
            Err(_) => tracing::warn!(
                %namespace, %name, limit = ?ANSWER_LIMIT,
                "timed out getting VPA; keeping its stored history"
            ),
        }
    }
    deleted
}

/// Whether this object does not exist. A server that does not serve the kind, because it is starting or because the CRD was
/// deleted, returns a 404 without the object's name.
fn is_gone(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let is_this_object = |details: &StatusDetails| details.name == name;
    status.code == 404 && status.details.as_ref().is_some_and(is_this_object)
}
