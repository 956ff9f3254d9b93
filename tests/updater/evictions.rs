//! Evictions: within the budget of a workload, the first pod alone, and none where it is not allowed.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::json;

use super::fixture::{
    self, deployment, pods, uids, vpa, wait_for_passes, wait_for_ready_pods, wait_until_blocked_by,
};
use crate::support::{
    manifests,
    wait::{self, PATIENCE},
};

#[tokio::test]
async fn upstreams_way_takes_as_many_as_the_budget_lets_and_no_more() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-upstream").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 4).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    // A pass has as long as its interval, and two evictions are to be made in one.
    let flags = ["--compat=upstream", "--eviction-tolerance=0.5", "--updater-interval=10s"];
    let running = fixture::start(bed.client(), &namespace, &flags).await;
    let mut summaries = running.passes();
    let acted = summaries.wait_for(|(_, summary)| summary.evicted > 0);
    let acted = tokio::time::timeout(PATIENCE, acted).await.expect("pods are evicted");
    let evicted = acted.expect("it runs").1.evicted;
    assert_eq!(evicted, 2, "half of them may go in one pass");
    wait::until("two were replaced", || async {
        let now = uids(&pods(&bed.client(), &namespace, "web").await);
        (before.difference(&now).count() >= 2).then_some(())
    })
    .await;
    let told = fixture::metrics(&running).await;
    assert!(told.contains("vpa_updater_evicted_pods_total{"), "{told}");
    running.stop().await;
    let annotations = fixture::read(&bed, &namespace, "web").await.metadata.annotations;
    assert_eq!(annotations, None, "upstream writes nothing on VPAs");
}

#[tokio::test]
async fn one_pod_goes_first_and_none_follows_when_it_comes_up_as_it_was() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-canary").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 4).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let running = fixture::start(bed.client(), &namespace, &[]).await;
    // No webhook is there to size the new pod.
    wait_until_blocked_by(&bed, &namespace, "web", "BreakerOpen").await;
    wait_for_passes(&running, 4).await;
    let now = uids(&wait_for_ready_pods(&bed, &namespace, "web", 4).await);
    assert_eq!(before.difference(&now).count(), 1, "the first one showed that it changes nothing");
    let vpa = fixture::read(&bed, &namespace, "web").await;
    let memory = vpa.metadata.annotations.as_ref().and_then(|all| all.get("plimsoll.dev/updates"));
    assert!(memory.is_some_and(|text| text.contains("evicted")), "{memory:?}");
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let lease = leases.get("vpa-updater").await.expect("it is there");
    let ledger =
        lease.metadata.annotations.as_ref().and_then(|all| all.get("plimsoll.dev/changes"));
    assert!(ledger.is_some_and(|text| text.contains(&namespace)), "{ledger:?}");
    running.stop().await;

    // Whoever comes next knows it.
    let running = fixture::start(bed.client(), &namespace, &[]).await;
    wait_for_passes(&running, 4).await;
    let later = uids(&wait_for_ready_pods(&bed, &namespace, "web", 4).await);
    assert_eq!(now, later);
    let told = fixture::metrics(&running).await;
    assert!(told.contains(r#"reason="breaker_open",resource=""} 1"#), "{told}");
    running.stop().await;
}

#[tokio::test]
async fn a_disruption_budget_is_an_answer_that_costs_nothing_and_is_told_until_the_vpa_is_off() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-pdb").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let budget = "
metadata: {name: web}
spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
";
    manifests::create::<PodDisruptionBudget>(bed.client(), &namespace, budget).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    // Its time is stepped: between two questions a second goes by, however long a pass takes here.
    let clock = Clock::fake(Clock::wall().now().later(Duration::from_mins(5)));
    let flags = ["--updater-interval=1s", "--leader-elect=false"];
    let its = clock.clone();
    let running = fixture::start_with(bed.client(), &namespace, &flags, its, |_| {}).await;
    let step = async || {
        let mut made = running.passes();
        let before = made.borrow_and_update().0;
        clock.step(Duration::from_secs(1));
        let made = made.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(PATIENCE, made)
            .await
            .expect("not within patience: a pass")
            .expect("it runs");
    };
    wait::until_ok("a disruption budget holds it back", || async {
        step().await;
        let held = fixture::blocked_condition(&fixture::read(&bed, &namespace, "web").await);
        let is_held = held.as_ref().is_some_and(|(_, reason)| reason == "DisruptionBudget");
        if is_held { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    for _ in 0..4 {
        step().await;
    }
    assert_eq!(uids(&pods(&bed.client(), &namespace, "web").await), before);
    let told = fixture::metrics(&running).await;
    let refused = told.lines().find(|line| line.contains(r#"kind="eviction",outcome="429""#));
    let refused: f64 =
        refused.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("counted");
    let made = running.passes().borrow().0 as f64;
    assert!(refused < made, "{refused} questions in {made} passes");
    // What was booked before the question is taken back, and nothing is written while nobody asks.
    let vpa = fixture::read(&bed, &namespace, "web").await;
    let memory = vpa.metadata.annotations.as_ref().and_then(|all| all.get("plimsoll.dev/updates"));
    assert!(memory.is_some_and(|text| !text.contains("evicted")), "{memory:?}");
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let ledger = leases.get("vpa-updater").await.expect("it is there").metadata.annotations;
    let ledger = ledger.as_ref().and_then(|all| all.get("plimsoll.dev/changes"));
    assert!(ledger.is_some_and(|text| !text.contains(&namespace)), "{ledger:?}");

    let off = json!({"spec": {"updatePolicy": {"updateMode": "Off"}}});
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&off)).await.expect("patched");
    wait::until("nothing is held back that nobody wants", || async {
        step().await;
        let held = fixture::blocked_condition(&fixture::read(&bed, &namespace, "web").await);
        held.filter(|(status, _)| status == "False")
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_dry_run_says_all_and_writes_nothing() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-dry").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let version = fixture::read(&bed, &namespace, "web").await.metadata.resource_version;
    let running = fixture::start(bed.client(), &namespace, &["--dry-run"]).await;
    wait::until("it says what it would do", || async {
        let told = fixture::metrics(&running).await;
        told.contains(r#"plimsoll_updater_actions_total{action="evict",outcome="dry_run"} 1"#)
            .then_some(())
    })
    .await;
    wait_for_passes(&running, 3).await;
    let told = fixture::metrics(&running).await;
    assert!(
        told.contains(r#"action="evict",outcome="dry_run"} 1"#),
        "the canary holds here, too: {told}"
    );
    assert!(!told.contains("plimsoll_writes_total"), "{told}");
    running.stop().await;
    assert_eq!(uids(&pods(&bed.client(), &namespace, "web").await), before);
    let vpa = fixture::read(&bed, &namespace, "web").await;
    assert_eq!(vpa.metadata.resource_version, version);
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    assert!(leases.list(&ListParams::default()).await.expect("a list").items.is_empty());
}
