//! A history is deleted only if the API server itself confirms that its VPA is gone.

use std::collections::HashSet;

use http::{Method, Response};
use kube::Api;
use kube::api::PostParams;
use plimsoll::cluster::cache::deleted_vpas::deleted_vpas;
use plimsoll::cluster::write::RateLimiter;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::ObjectKey;
use serde_json::json;

use crate::support::api_proxy::{hang, pass_through};
use crate::support::in_memory_api::InMemoryApiServer;

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

#[tokio::test(start_paused = true)]
async fn a_vpa_counts_as_deleted_only_if_the_api_server_does_not_have_it() {
    let api = InMemoryApiServer::with_interceptor(|method: &Method, path: &str| {
        match path.rsplit('/').next() {
            Some("silent") => hang(),
            Some("broken") if *method == Method::GET => Box::pin(async {
                let body =
                    json!({"kind": "Status", "status": "Failure", "message": "no", "code": 500});
                Response::builder().status(500).body(body.to_string().into()).ok()
            }),
            // The response of a server that does not serve the kind.
            Some("unserved") => Box::pin(async {
                Response::builder().status(404).body("404 page not found".into()).ok()
            }),
            // The response of a server that is starting.
            Some("unknown") => Box::pin(async {
                let body = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                    "message": "the server could not find the requested resource", "details": {},
                });
                Response::builder().status(404).body(body.to_string().into()).ok()
            }),
            _ => pass_through(),
        }
    });
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(api.client(), "shop");
    let vpa = json!({
        "metadata": {"name": "new"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "new"}},
    });
    let vpa = serde_json::from_value(vpa).expect("a VPA");
    vpas.create(&PostParams::default(), &vpa).await.expect("created");

    let limiter = RateLimiter::new(100.0, 100);
    let names = ["new", "gone", "silent", "broken", "unserved", "unknown"];
    let deleted = deleted_vpas(&api.client(), &limiter, names.map(key)).await;
    assert_eq!(deleted, HashSet::from([key("gone")]));
    // The silent one was asked once and given up: the call would not have returned otherwise.
    let requests = api.requests();
    let of =
        |name: &str| requests.iter().filter(|one| one.path.ends_with(&format!("/{name}"))).count();
    let answered = requests.iter().filter(|one| one.answered.is_some()).count();
    assert_eq!(names.map(of), [1; 6]);
    assert_eq!(answered, requests.len() - 1);
}
