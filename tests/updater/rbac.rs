//! The updater with the permissions of upstream's manifests, and of Plimsoll's.

use kube::{Client, ResourceExt as _};
use plimsoll::controllers;
use plimsoll::{cli::updater_config, cluster::clock::Clock};

use super::fixture::{cpu, deployment, pods, read, uids, vpa};
use crate::{
    deploy::shipped,
    recommender::upstream_rbac::grant,
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, captured_log, skipped::report_skipped, wait},
};

/// Runs an updater with these permissions until all pods of a workload are resized; returns its log.
async fn resizes(bed: &Testbed, client: Client) -> captured_log::CapturedLog {
    let namespace = bed.namespace("web").await;
    bed.nodes().add("node", "8", "16Gi").await;
    deployment(bed, &namespace, "web", 3).await;
    let before = uids(&pods(&bed.client(), &namespace, "web").await);
    vpa(bed, &namespace, "web", "InPlaceOrRecreate", "250m").await;
    let flags = [
        "--address=127.0.0.1:0",
        "--updater-interval=500ms",
        "--use-admission-controller-status=false",
        "--canary-watch=1s",
        "--cool-down=1s",
        "--cool-down-urgent=1s",
    ];
    let (log, _guard) = captured_log::capture();
    let config = updater_config(&flags, |_| String::new()).expect("valid flags");
    let running = controllers::start(config, client, Clock::wall()).await.expect("starts");
    wait::until("all pods are resized and annotated", || async {
        let now = pods(&bed.client(), &namespace, "web").await;
        let is_done =
            |pod| cpu(pod) == Some("250m") && pod.annotations().contains_key("vpaInPlaceUpdated");
        (now.iter().all(is_done) && uids(&now) == before).then_some(())
    })
    .await;
    running.stop().await;
    let noted = read(bed, &namespace, "web").await.metadata.annotations.unwrap_or_default();
    let is_noted = noted.contains_key("plimsoll.dev/updates");
    let named = log.lines(&["RBAC rule is missing", "verticalpodautoscalers"]);
    assert_eq!(is_noted, named.is_empty(), "missing permissions are logged: {named:?}");
    assert_eq!(log.lines(&["forbidden"]), [""; 0], "no forbidden request was sent");
    log
}

#[tokio::test]
async fn upstreams_rbac_is_sufficient_and_disabled_features_are_logged() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let found =
        tokio::task::spawn_blocking(xtask::test_programs::autoscaler_crds).await.expect("no panic");
    let Ok(definitions) = found.map_err(|why| report_skipped(format!("{why:#}"))) else { return };
    create_definitions(&bed).await;
    let text = std::fs::read_to_string(definitions.with_file_name("vpa-rbac.yaml"));
    grant(&bed.client(), &text.expect("part of upstream's manifests")).await;
    let account = bed.service_account("kube-system", "vpa-updater").await;
    let log = resizes(&bed, account.client).await;
    let lines = log.lines(&["RBAC rule is missing"]);
    assert_eq!(lines.len(), 2, "annotations of VPAs, and conditions: {lines:?}");
}

#[tokio::test]
async fn our_rbac_is_sufficient_for_all_features() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    grant(&bed.client(), &shipped("updater")).await;
    let account = bed.service_account("kube-system", "plimsoll-updater").await;
    let log = resizes(&bed, account.client).await;
    assert_eq!(log.lines(&["RBAC rule is missing"]), [""; 0]);
}
