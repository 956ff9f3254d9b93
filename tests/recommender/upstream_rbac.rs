//! The recommender with the RBAC rules of upstream's manifests, and with fewer.

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
async fn upstreams_rbac_is_sufficient_and_missing_permissions_are_logged() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    let found =
        tokio::task::spawn_blocking(xtask::test_programs::autoscaler_crds).await.expect("no panic");
    let Ok(definitions) = found.map_err(|error| report_skipped(format!("{error:#}"))) else {
        return;
    };
    let rights = definitions.with_file_name("vpa-rbac.yaml");
    create_definitions(&bed).await;
    let text = std::fs::read_to_string(rights).expect("part of upstream's manifests");
    let bindings = grant(&bed.client(), &text).await;
    bed.nodes().add("node", "8", "16Gi").await;
    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, VPA).await;
    bed.nodes().pods(&namespace, "web-", 1, "is ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 500 << 20 });

    // Runs as the service account, without any flag about permissions.
    let account = bed.service_account("kube-system", "vpa-recommender").await;
    let clock = Clock::fake(wall_now().into());
    let (words, _guard) = captured_log::capture();
    let running = start_with(account.client.clone(), &clock, &[]).await;
    wait_for_passes(&running, 1).await;
    step(&running, &clock, MINUTE).await;
    wait_for_vpa(&bed, &namespace, "web", "has a recommendation", is_recommended).await;
    let checkpoints = Api::<Checkpoint>::namespaced(bed.client(), &namespace);
    wait::until("a checkpoint exists", || async {
        let found = checkpoints.get_opt("web-main").await.ok()??;
        (found.status.as_ref()?.total_samples_count > 0).then_some(())
    })
    .await;
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    assert!(leases.get_opt("vpa-recommender-lease").await.expect("readable").is_some(), "leads");
    let heartbeat = leases.get_opt("plimsoll-default").await.expect("readable");
    assert_eq!(heartbeat, None, "no Lease is created that could not be renewed");
    let find_lines = || words.lines(&["heartbeat", "leases", "plimsoll-default", "kube-system"]);
    wait::until("the missing permission is logged", || async {
        (!find_lines().is_empty()).then_some(())
    })
    .await;
    let lines = find_lines();
    assert_eq!(
        lines.len(),
        1,
        "one line names the disabled feature and the RBAC rule to add: {lines:?}"
    );
    for verb in ["get", "update"] {
        assert!(lines[0].contains(&format!("verbs: [{verb:?}]")), "{lines:?}");
    }
    let refused = words.lines(&["forbidden"]);
    assert_eq!(refused, [""; 0], "no forbidden request was sent");
    running.stop().await;
    let lease = leases.get("vpa-recommender-lease").await.expect("unchanged");
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    assert_eq!(holder, "", "the Lease was released");

    assert_works_without_explanations(&bed, &namespace, &account.client, &clock).await;
    assert_works_without_lease(&bed, &bindings, &account.client, &clock).await;
}

/// Upstream's rules do not allow VPAs themselves to be patched. One log line says so; statuses are written as usual.
async fn assert_works_without_explanations(
    bed: &Testbed,
    namespace: &str,
    client: &Client,
    clock: &Clock,
) {
    let folder = tempfile::tempdir().expect("temporary directory");
    let storage = format!("--storage=local:{}", folder.path().display());
    let (words, _guard) = captured_log::capture();
    let before = wait_for_vpa(bed, namespace, "web", "exists", |_| true).await;
    let flags = [&*storage, "--leader-elect=false", "--recommendation-margin-fraction=0.5"];
    let running = start_with(client.clone(), clock, &flags).await;
    wait_for_passes(&running, 1).await;
    step(&running, clock, MINUTE).await;
    let changed = |vpa: &VerticalPodAutoscaler| {
        let recommendation_of =
            |vpa: &VerticalPodAutoscaler| vpa.status.as_ref()?.recommendation.clone();
        is_recommended(vpa) && recommendation_of(vpa) != recommendation_of(&before)
    };
    let after = wait_for_vpa(bed, namespace, "web", "has another recommendation", changed).await;
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    wait::until("the missing permission is logged", || async {
        (!words.lines(&["cannot store explanations on VPAs"]).is_empty()).then_some(())
    })
    .await;
    running.stop().await;
    let lines = words.lines(&["cannot store explanations on VPAs"]);
    assert_eq!(lines.len(), 1, "once: {lines:?}");
    let rule = r#"{apiGroups: ["autoscaling.k8s.io"], resources: ["verticalpodautoscalers"], verbs: ["patch"]}"#;
    assert!(lines[0].contains(rule), "with the RBAC rule to add: {lines:?}");
    assert_eq!(words.lines(&["forbidden"]), [""; 0], "no forbidden request was sent");
}

/// Without permission on the Lease nothing is written, and one log line says so, unless leader election is disabled.
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
            .expect("exists");
        taken += 1;
    }
    assert!(taken > 0, "upstream has renamed the role for the Lease");
    let namespace = bed.namespace("refused").await;
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, VPA).await;
    let rule = plimsoll::cluster::write::AccessRule::new("get", "coordination.k8s.io", "leases")
        .in_namespace("kube-system")
        .for_name("vpa-recommender-lease");
    wait::until("the permission is revoked", || async {
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
        assert!(summary.changed > 0, "there are pending writes");
    }
    let lines = wait::until("it is logged", || async {
        let lines = words.lines(&["nothing is written"]);
        (!lines.is_empty()).then_some(lines)
    })
    .await;
    assert_eq!(lines.len(), 1, "once: {lines:?}");
    assert!(lines[0].contains("kube-system/vpa-recommender-lease"), "{lines:?}");
    assert!(lines[0].contains("verbs: [\"create\"]"), "with the RBAC rule to add: {lines:?}");
    let unwritten = wait_for_vpa(bed, &namespace, "web", "exists", |_| true).await;
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
    let recommendation = vpa.status.as_ref().and_then(|status| status.recommendation.as_ref());
    recommendation
        .is_some_and(|recommendation| !recommendation.container_recommendations.is_empty())
}

/// A binding that was created.
pub struct Binding {
    api: Api<DynamicObject>,
    name: String,
    role: String,
}

/// Creates the objects of a manifest and returns its bindings.
pub async fn grant(client: &Client, manifest: &str) -> Vec<Binding> {
    let mut bindings = Vec::new();
    for document in manifest.split("\n---").filter(|document| document.contains("kind")) {
        let object: DynamicObject =
            serde_saphyr::from_str(document.trim_start_matches("---")).expect("well formed");
        let types = object.types.clone().expect("has a kind");
        let (group, version) =
            types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            // Some objects are part of the control plane.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error} for\n{document}"),
        }
        if types.kind.ends_with("Binding") {
            let role = object.data["roleRef"]["name"].as_str().unwrap_or_default().to_owned();
            bindings.push(Binding { api, name: object.name_any(), role });
        }
    }
    bindings
}
