//! Replicas whose clocks are wrong: the times on the Lease are theirs, and are compared with nobody's.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::support::{Bed, clock::wall_now, wait};
use crate::updater::{
    process::BRISK,
    referee::Referee,
    stage::{self, deployment, vpa},
};

const LEASE: Duration = Duration::from_secs(3);
/// Another replica, whose clock is wrong by so many seconds, takes or renews the Lease.
async fn renews(bed: &Bed, namespace: &str, wrong_by: i64) {
    let leases = Api::<Lease>::namespaced(bed.client(), namespace);
    let now = wall_now() + jiff::SignedDuration::from_secs(wrong_by);
    let at = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({
        "holderIdentity": "other", "leaseDurationSeconds": LEASE.as_secs(), "renewTime": at,
        "acquireTime": at, "leaseTransitions": 0,
    });
    let patch = Patch::Merge(json!({"spec": spec}));
    match leases.patch("vpa-updater", &PatchParams::default(), &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let object = json!({"metadata": {"name": "vpa-updater"}, "spec": spec});
            let lease: Lease = serde_json::from_value(object).expect("a Lease");
            leases.create(&PostParams::default(), &lease).await.expect("created");
        }
        Err(why) => panic!("{why}"),
    }
}

#[tokio::test]
async fn a_leader_whose_clock_is_an_hour_behind_is_let_alone_for_as_long_as_it_renews() {
    let Some((bed, namespace)) = stage::place("clock-behind").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    renews(&bed, &namespace, -3600).await;
    let running = stage::start(bed.client(), &namespace, BRISK).await;
    let election = running.election().expect("there is one").clone();
    // By its own words the Lease has run out an hour ago, twice over.
    let began = Instant::now();
    while began.elapsed() < LEASE * 2 {
        renews(&bed, &namespace, -3600).await;
        assert!(!election.is_leader());
        assert_eq!(election.holder().as_deref().unwrap_or("other"), "other");
        tokio::time::sleep(LEASE / 10).await;
    }
    assert_eq!(referee.with("250m"), 0, "a standby changes nothing");
    let last = Instant::now();
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    let took = last.elapsed();
    assert!(took > LEASE / 2, "the Lease was respected: {took:?}");
    referee.have(3, "250m").await;
    running.stop().await;
}

#[tokio::test]
async fn a_leader_that_died_with_a_clock_an_hour_ahead_is_followed_within_its_lease() {
    let Some((bed, namespace)) = stage::place("clock-ahead").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let referee = Referee::watch(bed.client(), &namespace, "web").await;
    vpa(&bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    renews(&bed, &namespace, 3600).await;
    let began = Instant::now();
    let running = stage::start(bed.client(), &namespace, BRISK).await;
    let election = running.election().expect("there is one").clone();
    wait::until("it leads", || async { election.is_leader().then_some(()) }).await;
    let took = began.elapsed();
    assert!(took > LEASE / 2, "the Lease was respected: {took:?}");
    referee.have(3, "250m").await;
    assert!(referee.lives().values().all(|life| life.len() == 2), "{:?}", referee.lives());
    running.stop().await;
}
