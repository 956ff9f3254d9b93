//! The recommender with the rights that upstream's manifests give it, and with fewer.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use plimsoll::cluster::clock::Clock;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;

use super::in_process::{step, wait_for_passes, wait_for_vpa};
use super::recorded_writes::start_with;
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::captured_log;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::metrics_server::UsageValue;
use crate::support::skipped::report_skipped;
use crate::support::{MetricsServer, Testbed, manifests, wait};

const MINUTE: Duration = Duration::from_mins(1);
const VPA: &str = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";

#[tokio::test]
async fn upstreams_rights_are_enough_and_fewer_are_named() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let found =
        tokio::task::spawn_blocking(xtask::test_programs::autoscaler_crds).await.expect("no panic");
    let Ok(definitions) = found.map_err(|why| report_skipped(format!("{why:#}"))) else { return };
    let rights = definitions.with_file_name("vpa-rbac.yaml");
    create_definitions(&bed).await;
    let text = std::fs::read_to_string(rights).expect("upstream ships it");
    let bindings = grant(&bed.client(), &text).await;
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, VPA).await;
    bed.nodes().pods(&namespace, "web-", 1, "is ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 500 << 20 });

    // As its service account, with no flag at all that is about rights.
    let account = bed.service_account("kube-system", "vpa-recommender").await;
    let clock = Clock::fake(wall_now().into());
    let (words, _guard) = captured_log::capture();
    let running = start_with(account.client.clone(), &clock, &[]).await;
    wait_for_passes(&running, 1).await;
    step(&running, &clock, MINUTE).await;
    wait_for_vpa(&bed, &namespace, "web", "has a recommendation", is_recommended).await;
    let checkpoints = Api::<Checkpoint>::namespaced(bed.client(), &namespace);
    wait::until("there is a checkpoint", || async {
        let found = checkpoints.get_opt("web-main").await.ok()??;
        (found.status.as_ref()?.total_samples_count > 0).then_some(())
    })
    .await;
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    assert!(leases.get_opt("vpa-recommender-lease").await.expect("readable").is_some(), "leads");
    let heartbeat = leases.get_opt("plimsoll-default").await.expect("readable");
    assert_eq!(heartbeat, None, "none is made that could not be renewed");
    let told = || words.lines(&["heartbeat", "leases", "plimsoll-default", "kube-system"]);
    wait::until("it says what is off", || async { (!told().is_empty()).then_some(()) }).await;
    let said = told();
    assert_eq!(said.len(), 1, "one line says what is off, and the rule to add: {said:?}");
    for verb in ["get", "update"] {
        assert!(said[0].contains(&format!("verbs: [{verb:?}]")), "{said:?}");
    }
    let refused = words.lines(&["forbidden"]);
    assert_eq!(refused, [""; 0], "nothing was tried that is not allowed");
    running.stop().await;
    let lease = leases.get("vpa-recommender-lease").await.expect("stays");
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    assert_eq!(holder, "", "the lease was handed over");

    assert_works_without_explanations(&bed, &namespace, &account.client, &clock).await;
    assert_works_without_lease(&bed, &bindings, &account.client, &clock).await;
}

/// Upstream's rights do not let VPAs themselves be written. One line says so, and statuses are written as ever.
async fn assert_works_without_explanations(
    bed: &Testbed,
    namespace: &str,
    client: &Client,
    clock: &Clock,
) {
    let folder = tempfile::tempdir().expect("a folder");
    let storage = format!("--storage=local:{}", folder.path().display());
    let (words, _guard) = captured_log::capture();
    let before = wait_for_vpa(bed, namespace, "web", "is there", |_| true).await;
    let flags = [&*storage, "--leader-elect=false", "--recommendation-margin-fraction=0.5"];
    let running = start_with(client.clone(), clock, &flags).await;
    wait_for_passes(&running, 1).await;
    step(&running, clock, MINUTE).await;
    let changed = |vpa: &VerticalPodAutoscaler| {
        let said = |vpa: &VerticalPodAutoscaler| vpa.status.as_ref()?.recommendation.clone();
        is_recommended(vpa) && said(vpa) != said(&before)
    };
    let after = wait_for_vpa(bed, namespace, "web", "has another recommendation", changed).await;
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    wait::until("it says what is off", || async {
        (!words.lines(&["no explanations on VPAs"]).is_empty()).then_some(())
    })
    .await;
    running.stop().await;
    let said = words.lines(&["no explanations on VPAs"]);
    assert_eq!(said.len(), 1, "once: {said:?}");
    let rule = r#"{apiGroups: ["autoscaling.k8s.io"], resources: ["verticalpodautoscalers"], verbs: ["patch"]}"#;
    assert!(said[0].contains(rule), "with the rule to add: {said:?}");
    assert_eq!(words.lines(&["forbidden"]), [""; 0], "nothing was tried that is not allowed");
}

/// With no right on the lease nothing is written, and one line says so; unless the election was switched off by hand.
async fn assert_works_without_lease(
    bed: &Testbed,
    bindings: &[Binding],
    client: &Client,
    clock: &Clock,
) {
    let mut taken = 0;
    for binding in bindings.iter().filter(|binding| binding.role.contains("leader-locking")) {
        binding
            .api
            .delete(&binding.name, &kube::api::DeleteParams::default())
            .await
            .expect("there");
        taken += 1;
    }
    assert!(taken > 0, "upstream names the role of the lease otherwise by now");
    let namespace = bed.namespace("refused").await;
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, VPA).await;
    let rule = plimsoll::cluster::write::AccessRule::new("get", "coordination.k8s.io", "leases")
        .in_namespace("kube-system")
        .for_name("vpa-recommender-lease");
    wait::until("the right is gone", || async {
        let verdict =
            plimsoll::cluster::write::check_access(client, std::slice::from_ref(&rule)).await;
        (verdict == [plimsoll::cluster::write::AccessReview::Denied]).then_some(())
    })
    .await;

    let (words, guard) = captured_log::capture();
    let running = start_with(client.clone(), clock, &[]).await;
    wait_for_passes(&running, 1).await;
    for _ in 0..3 {
        let summary = step(&running, clock, MINUTE).await;
        assert!(summary.changed > 0, "there is something to write");
    }
    let said = wait::until("it says so", || async {
        let said = words.lines(&["nothing is written"]);
        (!said.is_empty()).then_some(said)
    })
    .await;
    assert_eq!(said.len(), 1, "once: {said:?}");
    assert!(said[0].contains("kube-system/vpa-recommender-lease"), "{said:?}");
    assert!(said[0].contains("verbs: [\"create\"]"), "with the rule to add: {said:?}");
    let unwritten = wait_for_vpa(bed, &namespace, "web", "is there", |_| true).await;
    assert!(unwritten.status.is_none_or(|status| status.conditions.is_empty()), "not written");
    running.stop().await;
    drop(guard);

    let running = start_with(client.clone(), clock, &["--leader-elect=false"]).await;
    wait_for_passes(&running, 1).await;
    let is_written = |vpa: &VerticalPodAutoscaler| {
        vpa.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
    };
    wait_for_vpa(bed, &namespace, "web", "is written without an election", is_written).await;
    running.stop().await;
}

fn is_recommended(vpa: &VerticalPodAutoscaler) -> bool {
    let said = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    said.is_some_and(|said| !said.container_recommendations.is_empty())
}

/// A binding that was created.
pub struct Binding {
    api: Api<DynamicObject>,
    name: String,
    role: String,
}

/// Creates everything that a manifest is made of; answers the bindings among it.
pub async fn grant(client: &Client, manifest: &str) -> Vec<Binding> {
    let mut bindings = Vec::new();
    for document in manifest.split("\n---").filter(|document| document.contains("kind:")) {
        let object: DynamicObject =
            serde_saphyr::from_str(document.trim_start_matches("---")).expect("well formed");
        let types = object.types.clone().expect("it says what it is");
        let (group, version) =
            types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            // Some of it comes with the control plane.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(why) => panic!("{why} for\n{document}"),
        }
        if types.kind.ends_with("Binding") {
            let role = object.data["roleRef"]["name"].as_str().unwrap_or_default().to_owned();
            bindings.push(Binding { api, name: object.name_any(), role });
        }
    }
    bindings
}
