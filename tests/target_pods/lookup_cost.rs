//! The cost of repeated lookups of targets without pods, on virtual time.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http::{Method, Response};
use plimsoll::cluster::cache::controllers::{ControllerCache, WellKnown};
use plimsoll::cluster::target::scale::{CacheLifetimes, low_priority_refresh_gate};
use plimsoll::cluster::target::{TargetResolution, TargetResolver};
use plimsoll::cluster::write::RateLimiter;
use plimsoll_core::api::vpa::TargetRef;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fixture::target;
use crate::support::in_memory_api::InMemoryApiServer;

const TARGETS: usize = 3_000;
/// The rate limit of the process, and its burst.
const QPS: f32 = 50.0;
const BURST: u32 = 100;

/// An API server with one custom kind, whose objects are all scaled to zero.
fn scaled_to_zero() -> InMemoryApiServer {
    InMemoryApiServer::with_interceptor(|_: &Method, path: &str| {
        let answer: Value = match path {
            "/apis/x.io" => json!({
                "kind": "APIGroup", "apiVersion": "v1", "name": "x.io",
                "versions": [{"groupVersion": "x.io/v1", "version": "v1"}],
            }),
            "/apis/x.io/v1" => json!({
                "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "x.io/v1",
                "resources": [
                    {"name": "rollouts", "singularName": "", "namespaced": true, "kind": "Rollout", "verbs": ["get"]},
                    {"name": "rollouts/scale", "singularName": "", "namespaced": true, "kind": "Scale", "verbs": ["get"]},
                ],
            }),
            _ => json!({
                "metadata": {"name": "r"}, "spec": {"replicas": 0},
                "status": {"replicas": 0, "selector": "app=r"},
            }),
        };
        Box::pin(async move { Some(Response::new(answer.to_string().into())) })
    })
}

fn new_targets(api: &InMemoryApiServer, limiter: &RateLimiter) -> TargetResolver {
    let controllers = Arc::new(ControllerCache::new());
    for &kind in WellKnown::ALL {
        controllers.finish_list(kind);
    }
    let lifetimes = CacheLifetimes { max_lifetime_factor: 3, ..CacheLifetimes::default() };
    let gate = low_priority_refresh_gate(limiter.clone());
    TargetResolver::new(api.client(), controllers, gate, lifetimes)
}

/// Resolves all targets whose VPAs have no pods, like the recommender.
async fn resolve_all(targets: &TargetResolver, all: &[TargetRef]) {
    let found = stream::iter(all).map(|target| async move {
        targets.revalidate("shop", target).await;
        targets.resolve("shop", target).await
    });
    let found = found
        .buffer_unordered(10)
        .all(async |outcome| matches!(outcome, TargetResolution::Found { .. }));
    assert!(found.await);
}

#[tokio::test(start_paused = true)]
async fn targets_without_pods_are_asked_ever_more_rarely_and_in_nobodys_way() {
    let (api, limiter) = (scaled_to_zero(), RateLimiter::new(QPS, BURST));
    let targets = new_targets(&api, &limiter);
    let all: Vec<TargetRef> =
        (0..TARGETS).map(|number| target("x.io/v1", "Rollout", &format!("r{number}"))).collect();
    resolve_all(&targets, &all).await;
    // The rate limit has recovered.
    tokio::time::sleep(Duration::from_secs(10)).await;

    // A writer that always has something to write.
    let writer = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            let mut longest = Duration::ZERO;
            let end = Instant::now() + Duration::from_hours(1);
            while Instant::now() < end {
                let start = Instant::now();
                limiter.acquire().await;
                longest = longest.max(start.elapsed());
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            longest
        }
    });
    let mut requests = Vec::new();
    for _ in 0..2 {
        let (before, end) = (api.requests().len(), Instant::now() + Duration::from_mins(30));
        while Instant::now() < end {
            resolve_all(&targets, &all).await;
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        requests.push(api.requests().len() - before);
    }
    assert_eq!(writer.await.expect("no panic"), Duration::ZERO, "writes do not wait for lookups");
    // Once a minute would be 90,000.
    assert!(requests[1] < 5 * TARGETS, "{requests:?} requests in each half hour");
    assert!(requests[1] > TARGETS / 2, "{requests:?}: targets are still requested");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_object_can_have_is_refused_without_a_request() {
    let (api, limiter) = (scaled_to_zero(), RateLimiter::new(QPS, BURST));
    let targets = new_targets(&api, &limiter);
    let path = "a/../../../namespaces/other/rollouts/x";
    let TargetResolution::Unsupported { message } =
        targets.resolve("shop", &target("x.io/v1", "Rollout", path)).await
    else {
        panic!("the lookup is definite")
    };
    let why = format!("last error invalid resource name {path:?}: may not contain '/'");
    assert!(message.ends_with(&why), "{message}");
    let scales =
        api.requests().iter().filter(|request| request.path.contains("namespaces")).count();
    assert_eq!(scales, 0);
    let TargetResolution::Unsupported { message } =
        targets.resolve("shop", &target("../v1", "Rollout", "web")).await
    else {
        panic!("the lookup is definite")
    };
    assert!(message.contains("invalid API group"), "{message}");
}
