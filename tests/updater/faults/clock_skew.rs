//! Replicas with wrong clocks: the times in the Lease are written by its holder and are not compared with another clock.
//! `tests/cluster_writes/election/timing.rs` asserts on virtual time how long a Lease is respected.

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{
    Testbed,
    api_proxy::{self, ApiProxy},
    clock::wall_now,
    role_process::{SHORT_LEASE_FLAGS, expire_lease},
    wait,
};
use crate::updater::{
    availability_watch::AvailabilityWatch,
    fixture::{self, FAST_FLAGS, deployment, vpa},
};

const LEASE: &str = "vpa-updater";

/// Lets another replica, whose clock is wrong by this many seconds, take the Lease for two minutes.
async fn wait_for_takeover(bed: &Testbed, namespace: &str, wrong_by: i64) {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    let now = wall_now() + jiff::SignedDuration::from_secs(wrong_by);
    let at = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({
        "holderIdentity": "other", "leaseDurationSeconds": 120, "renewTime": at,
        "acquireTime": at, "leaseTransitions": 0,
    });
    let object = json!({"metadata": {"name": LEASE}, "spec": spec});
    let lease: Lease = serde_json::from_value(object).expect("Lease exists");
    leases.create(&PostParams::default(), &lease).await.expect("created");
}

async fn change(bed: &Testbed, namespace: &str, spec: Value) {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    let patch = Patch::Merge(json!({ "spec": spec }));
    leases.patch(LEASE, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test]
async fn a_leader_with_a_slow_clock_keeps_its_lease() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("clock-behind").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    wait_for_takeover(&bed, &namespace, -3600).await;
    let proxy = ApiProxy::start(bed.client(), |_, _| api_proxy::pass_through()).await;
    let running =
        fixture::start(proxy.client.clone(), &namespace, &[FAST_FLAGS, SHORT_LEASE_FLAGS].concat())
            .await;
    let election = running.election().expect("election is enabled").clone();
    // By the times in the Lease it expired an hour ago.
    wait::until("it has checked the Lease often", || async {
        (proxy.arrival_times(&Method::GET, &format!("/leases/{LEASE}")).len() >= 8).then_some(())
    })
    .await;
    assert!(!election.is_leader());
    assert_eq!(election.holder().as_deref(), Some("other"));
    assert_eq!(availability.count_with_cpu("250m"), 0, "a standby changes nothing");
    change(&bed, &namespace, json!({"holderIdentity": ""})).await;
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    availability.wait_for_cpu(3, "250m").await;
    running.stop().await;
}

#[tokio::test]
async fn a_crashed_leader_with_a_fast_clock_is_replaced() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("clock-ahead").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 3).await;
    let availability = AvailabilityWatch::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    wait_for_takeover(&bed, &namespace, 3600).await;
    let running =
        fixture::start(bed.client(), &namespace, &[FAST_FLAGS, SHORT_LEASE_FLAGS].concat()).await;
    let election = running.election().expect("election is enabled").clone();
    wait::for_election(&election).await;
    assert!(!election.is_leader(), "the Lease is respected");
    expire_lease(&bed, &namespace, LEASE).await;
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    availability.wait_for_cpu(3, "250m").await;
    assert!(
        availability.requests_over_time().values().all(|values| values.len() == 2),
        "{:?}",
        availability.requests_over_time()
    );
    running.stop().await;
}
