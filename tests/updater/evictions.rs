//! Evictions: within the disruption budget of a workload, a canary first, and none where disallowed.

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
async fn with_compat_upstream_as_many_pods_are_evicted_as_the_tolerance_allows() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-upstream").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 4).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    // A pass may take as long as its interval, and this needs two evictions in one pass.
    let flags = ["--compat=upstream", "--eviction-tolerance=0.5", "--updater-interval=10s"];
    let running = fixture::start(bed.client(), &namespace, &flags).await;
    let mut summaries = running.passes();
    let acted = summaries.wait_for(|(_, summary)| summary.evicted > 0);
    let acted = tokio::time::timeout(PATIENCE, acted).await.expect("evicted");
    let evicted = acted.expect("running").1.evicted;
    assert_eq!(evicted, 2, "half of them can be evicted in one pass");
    wait::until("two pods were replaced", || async {
        let now = uids(&pods(&bed.client(), &namespace, "web").await);
        (before.difference(&now).count() >= 2).then_some(())
    })
    .await;
    let metrics = fixture::metrics(&running).await;
    assert!(metrics.contains("vpa_updater_evicted_pods_total{"), "{metrics}");
    running.stop().await;
    let annotations = fixture::read(&bed, &namespace, "web").await.metadata.annotations;
    assert_eq!(annotations, None, "upstream does not annotate VPAs");
}

#[tokio::test]
async fn evictions_stop_after_one_pod_that_was_not_resized() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-canary").await else {
        return;
    };
    deployment(&bed, &namespace, "web", 4).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let running = fixture::start(bed.client(), &namespace, &[]).await;
    // There is no webhook to size the new pod.
    wait_until_blocked_by(&bed, &namespace, "web", "BreakerOpen").await;
    wait_for_passes(&running, 4).await;
    let now = uids(&wait_for_ready_pods(&bed, &namespace, "web", 4).await);
    assert_eq!(before.difference(&now).count(), 1, "the first eviction had no effect");
    let vpa = fixture::read(&bed, &namespace, "web").await;
    let annotation = vpa
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("plimsoll.dev/updates"));
    assert!(annotation.is_some_and(|text| text.contains("evicted")), "{annotation:?}");
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let lease = leases.get("vpa-updater").await.expect("exists");
    let ledger = lease
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("plimsoll.dev/changes"));
    assert!(ledger.is_some_and(|text| text.contains(&namespace)), "{ledger:?}");
    running.stop().await;

    // The next updater process knows it too.
    let running = fixture::start(bed.client(), &namespace, &[]).await;
    wait_for_passes(&running, 4).await;
    let later = uids(&wait_for_ready_pods(&bed, &namespace, "web", 4).await);
    assert_eq!(now, later);
    let metrics = fixture::metrics(&running).await;
    assert!(metrics.contains(r#"reason="breaker_open",resource=""} 1"#), "{metrics}");
    running.stop().await;
}

#[tokio::test]
async fn a_pdb_rejection_costs_no_budget_and_is_reported_until_the_vpa_is_off() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-pdb").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let budget = "
metadata: {name: web}
spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
";
    manifests::create::<PodDisruptionBudget>(bed.client(), &namespace, budget).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    // The test steps the clock: one second passes between two requests, however long a pass takes.
    let clock = Clock::fake(Clock::wall().now().later(Duration::from_mins(5)));
    let flags = ["--updater-interval=1s", "--leader-elect=false"];
    let its = clock.clone();
    let running = fixture::start_with(bed.client(), &namespace, &flags, its, |_| {}).await;
    let step = async || {
        let mut passes = running.passes();
        let before = passes.borrow_and_update().0;
        clock.step(Duration::from_secs(1));
        let passes = passes.wait_for(|(count, _)| *count > before);
        tokio::time::timeout(PATIENCE, passes)
            .await
            .expect("pass finishes in time")
            .expect("running");
    };
    wait::until_ok("a disruption budget blocks it", || async {
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
    let metrics = fixture::metrics(&running).await;
    let refused = metrics.lines().find(|line| line.contains(r#"kind="eviction",outcome="429""#));
    let refused: f64 =
        refused.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("counter exists");
    let passes = running.passes().borrow().0 as f64;
    assert!(refused < passes, "{refused} attempts in {passes} passes");
    // The recorded disruption is refunded, and nothing is written while there are no evictions.
    let vpa = fixture::read(&bed, &namespace, "web").await;
    let annotation = vpa
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("plimsoll.dev/updates"));
    assert!(annotation.is_some_and(|text| !text.contains("evicted")), "{annotation:?}");
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    let ledger = leases.get("vpa-updater").await.expect("exists").metadata.annotations;
    let ledger = ledger.as_ref().and_then(|annotations| annotations.get("plimsoll.dev/changes"));
    assert!(ledger.is_some_and(|text| !text.contains(&namespace)), "{ledger:?}");

    let off = json!({"spec": {"updatePolicy": {"updateMode": "Off"}}});
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    vpas.patch("web", &PatchParams::default(), &Patch::Merge(&off)).await.expect("patched");
    wait::until("nothing is paused without a pending update", || async {
        step().await;
        let held = fixture::blocked_condition(&fixture::read(&bed, &namespace, "web").await);
        held.filter(|(status, _)| status == "False")
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_dry_run_reports_everything_and_writes_nothing() {
    let Some((bed, namespace)) = fixture::testbed_and_namespace("evict-dry").await else { return };
    deployment(&bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(&bed, &namespace, "web", "Recreate", "250m").await;
    let version = fixture::read(&bed, &namespace, "web").await.metadata.resource_version;
    let running = fixture::start(bed.client(), &namespace, &["--dry-run"]).await;
    wait::until("it reports what it would do", || async {
        let metrics = fixture::metrics(&running).await;
        metrics
            .contains(r#"plimsoll_updater_actions_total{action="evict",outcome="dry_run"} 1"#)
            .then_some(())
    })
    .await;
    wait_for_passes(&running, 3).await;
    let metrics = fixture::metrics(&running).await;
    assert!(
        metrics.contains(r#"action="evict",outcome="dry_run"} 1"#),
        "the canary applies here too: {metrics}"
    );
    assert!(!metrics.contains("plimsoll_writes_total"), "{metrics}");
    running.stop().await;
    assert_eq!(uids(&pods(&bed.client(), &namespace, "web").await), before);
    let vpa = fixture::read(&bed, &namespace, "web").await;
    assert_eq!(vpa.metadata.resource_version, version);
    let leases = Api::<Lease>::namespaced(bed.client(), &namespace);
    assert!(leases.list(&ListParams::default()).await.expect("a list").items.is_empty());
}
