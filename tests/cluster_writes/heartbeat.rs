//! The heartbeat Lease on a real API server, and races between its requests on virtual time.

mod requests;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams};
use plimsoll::cluster::{
    leader::{Fence, Heartbeat, HeartbeatResult},
    write::{AccessReview, Permit, RateLimiter, check_access},
};
use serde_json::json;

use super::access_review::grant;
use crate::support::Testbed;

fn permit() -> Permit {
    Permit::new(Fence::open(), RateLimiter::new(-1.0, 1))
}

#[tokio::test]
async fn each_heartbeat_renews_the_lease_and_describes_the_pass() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("heartbeat").await;
    let interval = Duration::from_mins(1);
    let new = |identity| {
        Heartbeat::new(
            bed.client(),
            &namespace,
            identity,
            "default",
            Some("1/3"),
            interval,
            std::sync::Arc::default(),
        )
    };
    let heartbeat = new("one");
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let read = || async { leases.get("plimsoll-default-1-of-3").await.expect("it exists") };

    assert_eq!(
        heartbeat.renew(&permit(), 7, "loaded").await.expect("written"),
        HeartbeatResult::Created
    );
    let first = read().await;
    let spec = first.spec.clone().expect("a spec");
    assert_eq!(spec.holder_identity.as_deref(), Some("one"));
    assert_eq!(spec.lease_duration_seconds, Some(180));
    let annotations = first.metadata.annotations.clone().expect("annotations");
    assert_eq!(annotations["plimsoll.dev/vpas"], "7");
    assert_eq!(annotations["plimsoll.dev/history"], "loaded");

    assert_eq!(
        heartbeat.renew(&permit(), 8, "loaded").await.expect("written"),
        HeartbeatResult::Renewed
    );
    let second = read().await;
    assert!(second.spec.clone().expect("a spec").renew_time > spec.renew_time);
    assert_eq!(second.metadata.annotations.expect("annotations")["plimsoll.dev/vpas"], "8");

    // Another process took over in between, and then this one again.
    assert_eq!(
        new("two").renew(&permit(), 8, "loaded").await.expect("written"),
        HeartbeatResult::Renewed
    );
    assert_eq!(read().await.spec.expect("a spec").holder_identity.as_deref(), Some("two"));
    assert_eq!(
        heartbeat.renew(&permit(), 8, "loaded").await.expect("written"),
        HeartbeatResult::Renewed
    );

    leases.delete("plimsoll-default-1-of-3", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(
        heartbeat.renew(&permit(), 8, "loaded").await.expect("written"),
        HeartbeatResult::Created
    );

    let closed = Permit::new(Fence::closed(), RateLimiter::new(-1.0, 1));
    let refusal = heartbeat.renew(&closed, 9, "loaded").await.expect_err("fenced");
    assert!(refusal.to_string().contains("not permitted"), "{refusal}");
    let annotations = read().await.metadata.annotations.expect("annotations");
    assert_eq!(annotations["plimsoll.dev/vpas"], "8");
}

#[tokio::test]
async fn a_heartbeat_without_permission_to_renew_is_not_created() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("heartbeat-off").await;
    let account = bed.service_account(&namespace, "upstream").await;
    // With the permissions of upstream's Role.
    grant(&bed, &namespace, "upstream", &[
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
    ])
    .await;
    let interval = Duration::from_mins(1);
    let heartbeat = Heartbeat::new(
        account.client.clone(),
        &namespace,
        "one",
        "default",
        None,
        interval,
        std::sync::Arc::default(),
    );
    let verdicts = check_access(&account.client, &heartbeat.rules()).await;
    assert_eq!(verdicts, [AccessReview::Denied, AccessReview::Denied]);
    let beat = heartbeat.renew(&permit(), 7, "loaded").await;
    assert_eq!(beat.expect("nothing fails"), HeartbeatResult::Forbidden);
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    assert_eq!(leases.get_opt("plimsoll-default").await.expect("readable"), None);
}
