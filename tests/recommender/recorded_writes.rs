//! Records the writes of a recommender in the test's process.

use std::collections::BTreeSet;

use kube::Client;
use plimsoll::controllers;
use plimsoll::{
    cli::recommender_config, cluster::clock::Clock, controllers::recommender::RecommenderHandle,
};
use serde_json::Value;

use crate::support::api_proxy::{ApiProxy, pass_through};
use crate::support::bulk_objects::collection;

/// The autoscaling objects written through a proxy, such as `namespaces/web/verticalpodautoscalers/web`.
pub fn writes(proxy: &ApiProxy) -> BTreeSet<String> {
    proxy.written_objects("/apis/autoscaling.k8s.io/v1/")
}

/// A proxy that forwards everything and records writes.
pub async fn with_recorded_writes(behind: Client) -> ApiProxy {
    ApiProxy::start(behind, |_, _| pass_through()).await
}

/// Starts a recommender with this client and these flags.
pub async fn start_with(client: Client, clock: &Clock, flags: &[&str]) -> RecommenderHandle {
    let mut all = vec!["--address=127.0.0.1:0"];
    all.extend(flags);
    let config = recommender_config(&all).expect("valid flags");
    controllers::start(config, client, clock.clone()).await.expect("starts")
}

/// All autoscaling objects of a kind in a namespace, as JSON.
pub async fn read(client: &Client, namespace: &str, plural: &str) -> Vec<Value> {
    let path = collection("autoscaling.k8s.io/v1", namespace, plural);
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let list: Value = client.request(request).await.expect("a list");
    list["items"].as_array().cloned().unwrap_or_default()
}
