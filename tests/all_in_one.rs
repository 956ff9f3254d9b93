//! Several controllers in one process: what they share, what they do, and what that costs.

mod deep;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use plimsoll::{cli::all_in_one_config, cluster::clock::Clock, controllers::all_in_one};
use plimsoll_core::api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler};
use serde_json::{Value, json};

use crate::{
    schema::{faults, schema},
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed,
        api_proxy::{ApiProxy, pass_through},
        cpu_time,
        hollow_nodes::is_ready,
        http_get::http_get,
        manifests,
        metrics_server::UsageValue,
        wait,
    },
    watermark_controller::fixture::object,
};

const ALL: &str = "recommender,updater,admission-controller,watermark";

/// The common flags of the process.
fn flags(more: &[&str]) -> Vec<String> {
    let mut flags = vec![
        format!("--roles={ALL}"),
        "--address=127.0.0.1:0".to_owned(),
        "--leader-elect-resource-namespace=kube-system".to_owned(),
        "--recommender-interval=1s".to_owned(),
        "--updater-interval=1s".to_owned(),
        "--port=0".to_owned(),
        "--register-webhook=false".to_owned(),
        "--certificates=self-signed".to_owned(),
        "--watermark.period=1s".to_owned(),
    ];
    flags.extend(more.iter().map(ToString::to_string));
    flags
}

fn vpa(name: &str) -> String {
    let object = json!({
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "Off"},
        },
    });
    object.to_string()
}

/// The value of the first series that starts with `series`.
fn value(page: &str, series: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(series))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The metrics page once all controllers are ready and lead.
async fn wait_until_all_lead(address: SocketAddr) -> String {
    wait::until("all are ready", || async {
        let body = http_get(&format!("http://{address}/readyz")).await?;
        (&*body == b"ok\n").then_some(())
    })
    .await;
    // Passes also count before a controller leads.
    wait::until("all lead", || async {
        let page = http_get(&format!("http://{address}/metrics")).await?;
        let page = String::from_utf8_lossy(&page).into_owned();
        let leads =
            |role: &&str| value(&page, &format!("plimsoll_leader{{role=\"{role}\"}}")) == Some(1.0);
        ["recommender", "updater", "watermark"].iter().all(leads).then_some(page)
    })
    .await
}

#[tokio::test]
async fn all_roles_in_one_process_work_and_share_watches() {
    let Some(bed) = Testbed::private().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    bed.nodes().add("node", "64", "256Gi").await;
    let namespace = bed.namespace("several").await;
    let usage = MetricsServer::serve(&bed).await;
    usage.set_all(&namespace, "web", "main", UsageValue { cpu: 0.25, memory: 100 << 20 });
    usage.set_external(
        &namespace,
        crate::watermark_controller::fixture::METRIC,
        &[("app", "web")],
        75.0,
    );
    let web = manifests::deployment("web", 2, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web", 2, "are ready", is_ready).await;
    manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, &vpa("web")).await;
    let follows = object("web", json!({})).to_string();
    manifests::create::<WatermarkPodAutoscaler>(bed.client(), &namespace, &follows).await;

    let proxy = ApiProxy::start(bed.client(), |_, _| pass_through()).await;
    let flags = flags(&[]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let config = all_in_one_config(&flags, |_| String::new()).expect("valid flags");
    let clock = Clock::wall();
    let running =
        Box::pin(all_in_one::start(config, proxy.client.clone(), clock)).await.expect("starts");

    // Each controller does its work.
    let client = bed.client();
    let vpas: Api<VerticalPodAutoscaler> = Api::namespaced(client.clone(), &namespace);
    wait::until("there is a recommendation", || async {
        let status = vpas.get("web").await.ok()?.status?;
        status.recommendation.filter(|it| !it.container_recommendations.is_empty())
    })
    .await;
    let wpas: Api<WatermarkPodAutoscaler> = Api::namespaced(client, &namespace);
    wait::until("replicas were decided", || async { wpas.get("web").await.ok()?.status?.decision })
        .await;
    let mut passes = running.updater.as_ref().expect("it runs").passes();
    tokio::time::timeout(wait::PATIENCE, passes.wait_for(|(count, _)| *count > 0))
        .await
        .expect("a pass in time")
        .expect("it runs");
    let page = wait_until_all_lead(running.addresses[0]).await;

    // No kind is listed twice, except Deployments, whose scales are needed later. The two controllers of replicas also ask for one
    // VPA, to find out whether the kind is served.
    let paths: Vec<String> = proxy.requests().into_iter().map(|(_, path)| path).collect();
    for (path, most) in [
        ("/api/v1/pods", 1),
        ("/api/v1/limitranges", 1),
        ("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", 3),
        ("/apis/datadoghq.com/v1alpha1/watermarkpodautoscalers", 1),
        ("/apis/apps/v1/deployments", 2),
        ("/apis/apps/v1/replicasets", 1),
        ("/apis/batch/v1/jobs", 1),
    ] {
        let count = paths.iter().filter(|requested| *requested == path).count();
        assert!((1..=most).contains(&count), "{path}: {count}");
    }

    // One metrics page has all controllers.
    let types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let once: BTreeSet<&&str> = types.iter().collect();
    assert_eq!(types.len(), once.len(), "{types:#?}");
    let of = format!("name=\"web\",namespace=\"{namespace}\"");
    for series in [
        format!("plimsoll_target{{container=\"main\",kind=\"vpa\",{of}"),
        format!("plimsoll_effective{{kind=\"wpa\",{of}"),
        "plimsoll_updater_cluster_breaker_open".to_owned(),
        "plimsoll_webhook_reachable".to_owned(),
        "plimsoll_api_requests_total{code=\"200\",verb=\"watch\"}".to_owned(),
    ] {
        assert!(value(&page, &series).is_some(), "{series}");
    }
    assert!(value(&page, "plimsoll_api_requests_total{code=\"200\",verb=\"patch\"}") > Some(0.0));

    // `plimsoll status` reports the same without access to any pod.
    let status = || {
        let mut status = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        status.args(["status", "--output=json", "--kubeconfig"]).arg(bed.kubeconfig_path());
        let (output, spent) = cpu_time::run_and_measure(&mut status);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (report, output.status.code(), spent)
    };
    // A controller may report its objects one renewal before its first pass ends, and on a busy machine a pass is late.
    let has_passed = |role: &Value| role["objects"] == 1 && role["loopAgeSeconds"].is_number();
    let (report, code, spent) =
        wait::until("every Lease reports its object and a pass, and no finding", || async {
            let report = status();
            let roles = report.0["roles"].as_array().expect("roles");
            let is_complete = roles.len() == 3 && roles.iter().all(has_passed);
            (is_complete && report.0["findings"] == json!([])).then_some(report)
        })
        .await;
    assert!(spent < Duration::from_secs(1), "status takes {spent:?} of a core");
    assert_eq!(faults(&schema("status.v1.json"), &report), Vec::<String>::new());
    let roles = report["roles"].as_array().expect("roles");
    let names: Vec<_> = roles.iter().filter_map(|role| role["role"].as_str()).collect();
    assert_eq!(names, ["recommender", "updater", "watermark"], "{report:#}");
    for role in roles {
        assert_eq!(role["version"], env!("CARGO_PKG_VERSION"), "{role:#}");
        assert_eq!((&role["objects"], &role["stale"]), (&json!(1), &json!(0)), "{role:#}");
    }
    // It is absent until the history is stored for the first time.
    let history = roles[0]["history"].as_str().unwrap_or_default();
    assert!(["absent", "loaded"].contains(&history), "{report:#}");
    assert_eq!(code, Some(0), "{report:#}");
    running.stop().await;
}
