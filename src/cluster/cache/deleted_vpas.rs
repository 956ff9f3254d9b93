//! Asks the API server itself which VPAs are deleted. A watch that is behind does not know of those that came since, and what
//! hangs on that cannot be had back: the history of a VPA is deleted once.

use std::{collections::HashSet, time::Duration};

use futures::StreamExt as _;
use kube::{Api, Client, core::response::StatusDetails};
use plimsoll_core::types::ObjectKey;

use crate::cluster::{metrics_api::list_stream::error_message, target::scale::RequestGate};
use plimsoll_core::api::VerticalPodAutoscaler;

const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Without an answer by then, a VPA may be there.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Those of these VPAs of which the API server says that they are not there. The gate is passed before each question.
pub async fn deleted_vpas(
    client: &Client,
    gate: &RequestGate,
    keys: impl IntoIterator<Item = ObjectKey>,
) -> HashSet<ObjectKey> {
    let asked = keys.into_iter().map(|key| async move {
        gate().await;
        let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), &key.namespace);
        let answer = tokio::time::timeout(ANSWER_LIMIT, vpas.get_metadata(&key.name)).await;
        (key, answer)
    });
    let mut deleted = HashSet::new();
    let mut answers =
        std::pin::pin!(futures::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_REQUESTS));
    while let Some((key, answer)) = answers.next().await {
        let (namespace, name) = (&key.namespace, &key.name);
        match answer {
            Ok(Err(why)) if is_gone(&why, name) => {
                deleted.insert(key);
            }
            Ok(Ok(_)) => tracing::warn!(
                %namespace, %name,
                "VPA exists although the watch does not know it; keeping its stored history"
            ),
            Ok(Err(why)) => {
                let error = error_message(&why);
                tracing::warn!(%namespace, %name, error, "failed to get VPA; keeping its stored history");
            }
            Err(_) => tracing::warn!(
                %namespace, %name, limit = ?ANSWER_LIMIT,
                "no answer about VPA in time; keeping its stored history"
            ),
        }
    }
    deleted
}

/// Whether this object is not there. A server that does not serve the kind, because it is starting or its definition was taken
/// away, names no object.
fn is_gone(error: &kube::Error, name: &str) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let is_it = |details: &StatusDetails| details.name == name;
    status.code == 404 && status.details.as_ref().is_some_and(is_it)
}
