//! Races between the requests of one heartbeat, on virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use plimsoll::cluster::write::WriteError;
use plimsoll::cluster::{
    leader::{Fence, Heartbeat, HeartbeatResult},
    write::{Permit, RateLimiter},
};
use serde_json::json;
use tokio::time::Instant;

use super::permit;
use crate::support::api_proxy::pass_through;
use crate::support::in_memory_api::InMemoryApiServer;

const NAMESPACE: &str = "heartbeat";

fn heartbeat(client: Client, identity: &str) -> Heartbeat {
    Heartbeat::new(
        client,
        NAMESPACE,
        identity,
        "default",
        None,
        Duration::from_mins(1),
        Arc::default(),
    )
}

async fn holder(api: &InMemoryApiServer) -> Option<String> {
    let leases = Api::<Lease>::namespaced(api.client(), NAMESPACE);
    let lease = leases.get_opt("plimsoll-default").await.expect("readable")?;
    lease.spec.expect("a spec").holder_identity
}

#[tokio::test(start_paused = true)]
async fn a_leader_frozen_between_two_requests_does_not_overwrite_another_heartbeat() {
    let delay = Arc::new(AtomicUsize::new(0));
    let api = InMemoryApiServer::with_interceptor({
        let delay = Arc::clone(&delay);
        move |method: &Method, _| {
            let wait = if *method == Method::PUT { delay.load(Ordering::Relaxed) } else { 0 };
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(wait as u64)).await;
                pass_through().await
            })
        }
    });
    let fence = Fence::open();
    let own = Permit::new(fence.clone(), RateLimiter::new(-1.0, 1));
    let (old, new) = (heartbeat(api.client(), "old"), heartbeat(api.client(), "new"));
    assert_eq!(old.renew(&own, 1, "loaded").await.expect("written"), HeartbeatResult::Created);
    assert_eq!(
        new.renew(&permit(), 1, "loading").await.expect("written"),
        HeartbeatResult::Renewed
    );

    // The old leader's lease ends while the server delays the rejection of its write.
    delay.store(8, Ordering::Relaxed);
    fence.grant_until(Instant::now() + Duration::from_secs(5));
    let before = api.requests().len();
    let refused = old.renew(&own, 1, "loaded").await.expect_err("it is no longer the leader");
    assert!(matches!(refused, WriteError::NotLeader), "{refused}");
    assert_eq!(api.requests().len(), before + 1, "nothing was sent after the first request");
    assert_eq!(holder(&api).await.as_deref(), Some("new"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_access_review_is_repeated_and_a_denial_ends_the_heartbeat() {
    let code = Arc::new(AtomicU16::new(503));
    let api = InMemoryApiServer::with_interceptor({
        let code = Arc::clone(&code);
        move |_: &Method, path: &str| {
            let is_review = path.ends_with("/selfsubjectaccessreviews");
            let code = code.load(Ordering::Relaxed);
            Box::pin(async move {
                let body = match code {
                    _ if !is_review => return None,
                    200 => return None,
                    403 => json!({"metadata": {}, "spec": {}, "status": {"allowed": false}}),
                    _ => {
                        json!({"kind": "Status", "status": "Failure", "message": "starting", "code": code})
                    }
                };
                let answer = Response::builder().status(if code == 403 { 201 } else { code });
                answer.body(body.to_string().into()).ok()
            })
        }
    });
    let unanswered = heartbeat(api.client(), "one");
    for _ in 0..3 {
        let beat = unanswered.renew(&permit(), 1, "loaded").await.expect("nothing fails");
        assert_eq!((beat, holder(&api).await), (HeartbeatResult::AccessUnknown, None));
    }
    let denied = heartbeat(api.client(), "two");
    code.store(403, Ordering::Relaxed);
    assert_eq!(
        denied.renew(&permit(), 1, "loaded").await.expect("nothing fails"),
        HeartbeatResult::Forbidden
    );
    code.store(200, Ordering::Relaxed);
    assert_eq!(
        denied.renew(&permit(), 1, "loaded").await.expect("nothing fails"),
        HeartbeatResult::Forbidden
    );
    assert_eq!(holder(&api).await, None, "a denial is final");
    let beat = unanswered.renew(&permit(), 1, "loaded").await;
    assert_eq!(beat.expect("written"), HeartbeatResult::Created);
    assert_eq!(holder(&api).await.as_deref(), Some("one"));
}
