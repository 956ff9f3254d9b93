//! The chart and manifests of Datadog's controller, with only the image replaced: our controller becomes
//! leader, scales, reports events, and answers the probes.

use std::{fs, path::Path, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Event, Pod},
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{
    Api, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};
use xtask::test_programs;

use super::{
    fixture::Fixture,
    rendered_manifests::{helm, kustomize_path, objects, of_kind},
};
use crate::{
    support::{
        hollow_nodes::is_ready, manifests as small, metrics_server::UsageValue,
        skipped::report_skipped, wait,
    },
    watermark_controller::fixture::{METRIC, object},
};

const HOME: &str = "datadog";
const SHOP: &str = "shop";
const LOOKS: &str = "plimsoll_watermark_reconciles_total";
const IMAGE: &str = "example.com/plimsoll/watermark";

/// The chart without its dependency: the CRD of monitors, from a repository that tests do not access.
fn chart_of(module: &Path, folder: &Path) {
    let source = module.join("chart/watermarkpodautoscaler");
    let templates = folder.join("templates");
    fs::create_dir(&templates).expect("writable");
    for file in fs::read_dir(source.join("templates")).expect("the module has it") {
        let file = file.expect("readable");
        // Files of Go modules are read-only, and so would be copies of them.
        let text = fs::read(file.path()).expect("readable");
        fs::write(templates.join(file.file_name()), text).expect("writable");
    }
    for name in ["Chart.yaml", "values.yaml"] {
        let text = fs::read_to_string(source.join(name)).expect("readable");
        let own = text.split("dependencies:").next().expect("a part");
        fs::write(folder.join(name), if name == "Chart.yaml" { own } else { &text })
            .expect("writable");
    }
}

/// The manifests of the chart, with our image.
fn chart_manifests(module: &Path) -> Option<Vec<Value>> {
    let folder = tempfile::tempdir().expect("a folder");
    chart_of(module, folder.path());
    let place = folder.path().display().to_string();
    let home = format!("--namespace={HOME}");
    let (repository, tag) = (format!("--set=image.repository={IMAGE}"), "--set=image.tag=1");
    let words = ["template", "watermarkpodautoscaler", &place, &home, &repository, tag];
    let text = helm(&words)?.unwrap_or_else(|why| panic!("{why}"));
    let mut all = objects(&text);
    // `helm install` creates the CRDs first.
    for object in &mut all {
        let is_of_cluster = object["kind"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("Cluster") || kind == "CustomResourceDefinition");
        if !is_of_cluster && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = json!(HOME);
        }
    }
    Some(all)
}

/// The manifests of its kustomize folder, with our image.
fn kustomize_manifests(module: &Path) -> Option<Vec<Value>> {
    let mut all = kustomize_path(&module.join("config/default"))?;
    // The folder defines the right to read metrics in a file that is not included, and for an account without the
    // folder's name prefix: without fixing both, Datadog's controller cannot read metrics either.
    let more = fs::read_to_string(module.join("config/rbac/api_resource_rbac.yaml"));
    let mut more = objects(&more.expect("the module has it"));
    let account = of_kind(&all, "ServiceAccount")[0]["metadata"]["name"].clone();
    for binding in more.iter_mut().filter(|object| object["kind"] == "ClusterRoleBinding") {
        binding["subjects"][0]["name"] = account.clone();
    }
    all.extend(more);
    for object in all.iter_mut().filter(|object| object["kind"] == "Deployment") {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("{IMAGE}:1"));
    }
    Some(all)
}

/// An object of a user of Datadog's controller, with its finalizer.
fn upstream_wpa() -> Value {
    let fields = json!({"maxReplicas": 4, "upscaleForbiddenWindowSeconds": 1});
    let mut web = object("web", fields);
    web["apiVersion"] = json!("datadoghq.com/v1alpha1");
    web["kind"] = json!("WatermarkPodAutoscaler");
    web["metadata"]["namespace"] = json!(SHOP);
    web["metadata"]["finalizers"] = json!(["finalizer.watermarkpodautoscaler.datadoghq.com"]);
    web
}

/// Applies these manifests to a cluster, and checks that the controller works.
async fn assert_role_works(made: fn(&Path) -> Option<Vec<Value>>) {
    let found = tokio::task::spawn_blocking(move || {
        let module = test_programs::watermark_manifests()?;
        test_programs::helm()?;
        test_programs::kustomize()?;
        anyhow::Ok(made(&module).expect("its tool is there"))
    });
    let manifests = match found.await.expect("no panic") {
        Ok(manifests) => manifests,
        Err(why) => return report_skipped(format!("{why:#}")),
    };
    let Some(fixture) = Fixture::new(&[]).await else { return };
    let client = fixture.bed.client();
    for name in [HOME, SHOP] {
        fixture.restrict_if(name, false).await;
    }
    // A variable replaces the namespace file of the service account, because hollow nodes mount no volumes.
    let more =
        [("PLIMSOLL_FLAG_LEADER_ELECT_RESOURCE_NAMESPACE", HOME), ("PLIMSOLL_FLAG_PERIOD", "1s")];
    fixture.run(HOME, "watermarkpodautoscaler", "watermark", &more);
    let yaml = small::deployment("web", 2, "100m", "64Mi");
    small::create::<Deployment>(client.clone(), SHOP, &yaml).await;
    fixture.bed.nodes().pods(SHOP, "web", 2, "are ready", is_ready).await;
    fixture.usage.set_all(SHOP, "web-", "main", UsageValue { cpu: 0.1, memory: 64 << 20 });
    fixture.usage.set_external(SHOP, METRIC, &[("app", "web")], 10_000.0);
    let (first, rest): (Vec<Value>, Vec<Value>) =
        manifests.into_iter().partition(|object| object["kind"] == "CustomResourceDefinition");
    assert_eq!((first.len(), of_kind(&rest, "Deployment").len()), (1, 1));
    fixture.apply(&first).await;
    fixture.apply(&[upstream_wpa()]).await;
    fixture.apply(&rest).await;

    let (wpas, name) = super::fixture::api(&client, &upstream_wpa());
    let deployments = Api::<Deployment>::namespaced(client.clone(), SHOP);
    let events = Api::<Event>::namespaced(client.clone(), SHOP);
    let leases = Api::<Lease>::namespaced(client.clone(), HOME);
    let settled = |object: &DynamicObject| -> Result<(), String> {
        let status = &object.data["status"];
        let is_settled = status["desiredReplicas"] == 4 && status["currentReplicas"] == 4;
        let is_free = object.finalizers().is_empty();
        if is_settled && is_free { Ok(()) } else { Err(format!("{is_free} {status}")) }
    };
    wait::until_ok("it leads, has scaled, and reported an event", || async {
        let lease = leases.get("watermarkpodautoscaler-lock").await;
        let holder = lease.map_err(|why| why.to_string())?.spec.and_then(|it| it.holder_identity);
        let scale = deployments.get_scale("web").await.map_err(|why| why.to_string())?;
        let list = events.list(&ListParams::default()).await.map_err(|why| why.to_string())?;
        let is_reported = list.items.iter().any(|event| {
            event.involved_object.kind.as_deref() == Some("WatermarkPodAutoscaler")
                && event.reason.as_deref() == Some("Scaling")
        });
        settled(&wpas.get(&name).await.map_err(|why| why.to_string())?)?;
        let replicas = scale.spec.and_then(|spec| spec.replicas);
        if replicas == Some(4) && holder.is_some() && is_reported {
            return Ok(());
        }
        Err(format!("{replicas:?} {holder:?} {is_reported}"))
    })
    .await;

    answers(&fixture, &wpas).await;
    let refused: Vec<_> =
        fixture.audit.requests().into_iter().filter(|request| request.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");

    // When a user switches back to Datadog's controller, the object must not depend on ours.
    fixture.delete(&rest).await;
    let pods = Api::<Pod>::namespaced(client.clone(), HOME);
    wait::until("the role is gone", || async {
        pods.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
    })
    .await;
    wpas.delete(&name, &kube::api::DeleteParams::default()).await.expect("it exists");
    wait::until("its object is deleted immediately", || async {
        wpas.get_opt(&name).await.ok()?.is_none().then_some(())
    })
    .await;
}

/// The controller answers its probe, exports metrics, and writes nothing if nothing changes.
async fn answers(fixture: &Fixture, wpas: &Api<DynamicObject>) {
    let pods = Api::<Pod>::namespaced(fixture.bed.client(), HOME);
    let found = pods.list(&ListParams::default()).await.expect("readable").items;
    assert_eq!(found.len(), 1);
    let container = &found[0].spec.as_ref().expect("a spec").containers[0];
    assert_eq!(container.command, None, "the image defines the command");
    let probe = container.liveness_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
    let probe = probe.expect("it has a liveness probe");
    let path = probe.path.clone().unwrap_or_default();
    fixture.get(&found[0], container, &probe.port, &path).await.expect("it is live");
    let page = async || {
        let port = IntOrString::Int(8383);
        fixture.get(&found[0], container, &port, "/metrics").await.expect("it is served")
    };
    // The server drops fields that Datadog's CRD does not define; they must not count as changes in the next
    // reconcile.
    let looks = async || {
        let page = page().await;
        let counts = page.lines().filter(|line| line.starts_with(LOOKS)).filter_map(|line| {
            line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok())
        });
        counts.sum::<f64>()
    };
    let version = async || wpas.get("web").await.expect("readable").resource_version();
    wait::until_ok("five reconciles in a row write nothing", || async {
        let (before, since) = (version().await, looks().await);
        while looks().await < since + 5.0 {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let after = version().await;
        if before == after { Ok(()) } else { Err(format!("{before:?} became {after:?}")) }
    })
    .await;
    let page = page().await;
    let line = |family: &str| {
        let of = |line: &&str| line.starts_with(family) && line.contains(r#"wpa_name="web""#);
        page.lines().filter(of).count()
    };
    for family in ["wpa_controller_value{", "wpa_controller_replicas_scaling_proposal{"] {
        assert!(line(family) > 0, "no {family} in\n{page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn datadogs_chart_runs_plimsoll_with_only_the_image_replaced() {
    assert_role_works(chart_manifests).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn datadogs_kustomize_manifests_run_plimsoll_with_only_the_image_replaced() {
    assert_role_works(kustomize_manifests).await;
}
