//! Replicas whose clocks are wrong: the times on the Lease are theirs, and are compared with no other clock. How long a Lease is
//! respected is asserted on virtual time in `tests/act/election/timing.rs`.

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{
    Bed,
    clock::wall_now,
    proxy::{self, Proxy},
    wait,
};
use crate::updater::{
    process::{BRIEF, BRISK, expire},
    referee::Referee,
    stage::{self, deployment, vpa},
};

const LEASE: &str = "vpa-updater";

/// Another replica, whose clock is wrong by so many seconds, takes the Lease for two minutes.
async fn takes(bed: &Bed, namespace: &str, wrong_by: i64) {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    let now = wall_now() + jiff::SignedDuration::from_secs(wrong_by);
    let at = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({
        "holderIdentity": "other", "leaseDurationSeconds": 120, "renewTime": at,
        "acquireTime": at, "leaseTransitions": 0,
    });
    let object = json!({"metadata": {"name": LEASE}, "spec": spec});
    let lease: Lease = serde_json::from_value(object).expect("a Lease");
    leases.create(&PostParams::default(), &lease).await.expect("created");
}

async fn change(bed: &Bed, namespace: &str, spec: Value) {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    let patch = Patch::Merge(json!({ "spec": spec }));
    leases.patch(LEASE, &PatchParams::default(), &patch).await.expect("patched");
}

#[tokio::test]
async fn a_leader_whose_clock_is_an_hour_behind_is_let_alone_for_as_long_as_its_lease_lasts() {
    let Some((bed, namespace)) = stage::place("clock-behind").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    takes(&bed, &namespace, -3600).await;
    let proxy = Proxy::start(bed.client(), |_, _| proxy::pass()).await;
    let running = stage::start(proxy.client.clone(), &namespace, &[BRISK, BRIEF].concat()).await;
    let election = running.election().expect("there is one").clone();
    // By its own words the Lease has run out an hour ago.
    wait::until("it has looked often", || async {
        (proxy.arrivals(&Method::GET, &format!("/leases/{LEASE}")).len() >= 8).then_some(())
    })
    .await;
    assert!(!election.is_leader());
    assert_eq!(election.holder().as_deref(), Some("other"));
    assert_eq!(referee.with("250m"), 0, "a standby changes nothing");
    change(&bed, &namespace, json!({"holderIdentity": ""})).await;
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    referee.have(3, "250m").await;
    running.stop().await;
}

#[tokio::test]
async fn a_leader_that_died_with_a_clock_an_hour_ahead_is_followed() {
    let Some((bed, namespace)) = stage::place("clock-ahead").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    takes(&bed, &namespace, 3600).await;
    let running = stage::start(bed.client(), &namespace, &[BRISK, BRIEF].concat()).await;
    let election = running.election().expect("there is one").clone();
    election.decided().await;
    assert!(!election.is_leader(), "the Lease is respected");
    expire(&bed, &namespace, LEASE).await;
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    referee.have(3, "250m").await;
    assert!(referee.lives().values().all(|life| life.len() == 2), "{:?}", referee.lives());
    running.stop().await;
}
