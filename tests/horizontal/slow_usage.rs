//! The metrics API does not respond for one namespace. The objects of all others do not wait for it.

use std::{collections::BTreeMap, future::pending, time::Duration};

use http::Response;
use serde_json::json;

use super::{exported_series, in_memory};
use crate::support::{in_memory_api::InMemoryApiServer, wait};

/// The namespace whose usage hangs. Its objects are due before those of the others.
const SLOW: &str = "a-slow";
/// More objects than one worker could wait for.
const SLOW_OBJECTS: usize = 100;
const OTHERS: [&str; 3] = ["b", "c", "d"];
const USAGE: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/";

/// An API server whose metrics API never responds for the slow namespace, and has no usage in the others.
fn api() -> InMemoryApiServer {
    InMemoryApiServer::with_interceptor(|_, path| {
        let namespace = path.strip_prefix(USAGE).map(ToOwned::to_owned);
        Box::pin(async move {
            if namespace?.starts_with(SLOW) {
                pending::<()>().await;
            }
            let usage = json!({"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": []});
            Some(Response::new(usage.to_string().into()))
        })
    })
}

/// The requests for usage by namespace, and how many have a response.
fn usage_requests(api: &InMemoryApiServer) -> BTreeMap<String, (usize, usize)> {
    let mut counts = BTreeMap::<String, (usize, usize)>::new();
    for request in api.requests() {
        let Some(namespace) = request.path.strip_prefix(USAGE) else { continue };
        let namespace = namespace.trim_end_matches("/pods").to_owned();
        let count = counts.entry(namespace).or_default();
        count.0 += 1;
        count.1 += usize::from(request.answered.is_some());
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_other_namespaces_do_not_wait_for_a_namespace_whose_usage_hangs() {
    let api = api();
    let objects = [(SLOW, SLOW_OBJECTS)].into_iter().chain(OTHERS.map(|namespace| (namespace, 1)));
    for (namespace, count) in objects {
        for number in 0..count {
            in_memory::create(&api, namespace, &format!("web-{number}"), "{}").await;
        }
    }
    let role = in_memory::start(&api, &["--request-timeout=1h"]).await;
    wait::until_ok("usage of the other namespaces is read in five periods", || async {
        let counts = usage_requests(&api);
        let is_read = |namespace| counts.get(namespace).is_some_and(|(_, read)| *read >= 5);
        if OTHERS.into_iter().all(is_read) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    // One request is shared by all objects of the slow namespace, whose metric is unknown meanwhile.
    wait::until_ok("the objects of the slow namespace are decided without usage", || async {
        // An object that was never decided has no series.
        let decided = exported_series(&role, "plimsoll_restricted_scaling", "namespace").await;
        if decided.contains_key(SLOW) { Ok(()) } else { Err(format!("{decided:?}")) }
    })
    .await;
    assert_eq!(usage_requests(&api)[SLOW], (1, 0));
    tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
}
