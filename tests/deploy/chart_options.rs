//! Chart values that enable features and their permissions: installed on a real API server, every permission that
//! they add is used, and no request is forbidden.

use std::collections::BTreeSet;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use xtask::test_programs::{self, PrometheusRelease};

use super::{
    chart_installed::{HOME, helm_on, helm_test, unused_rights},
    fixture::Fixture,
    rbac::of_accounts,
    rendered_manifests::{chart, chart_template, objects},
    scenario::{self, SHOP},
};
use crate::{
    support::{
        manifests as small,
        metrics_server::UsageValue,
        prometheus_server::{PrometheusServer, ScrapeTarget},
        skipped::report_skipped,
        wait,
    },
    updater::fixture::{wait_for_age, wait_for_ready_pods},
};

/// The metric with the CPU usage of containers.
const CORES: &str = "container_cores";

/// All values that add permissions, and durations for tests.
fn values(prometheus: &str) -> Vec<String> {
    let mut values: Vec<String> = [
        "watermark.enabled=true",
        "watermark.targets[0].group=argoproj.io",
        "watermark.targets[0].resource=rollouts",
        "updater.surge=true",
        "recommender.capToLargestNode=true",
        "recommender.storage=prometheus",
        "spread=required",
        "logging.format=json",
        "recommender.args={--recommender-interval=1s}",
        "updater.args={--updater-interval=1s,--canary-watch=2s,--cool-down=1s,--cool-down-urgent=1s}",
        "admissionController.args={--status-lease-update-interval=1s,--shutdown-delay=0s}",
        "watermark.args={-period=1s}",
    ]
    .map(str::to_owned)
    .into();
    values.push(format!("recommender.externalMetrics.cpu={CORES}"));
    values.push(format!("prometheus.address={prometheus}"));
    values
}

/// A workload with one pod, and one of a kind that is resolved through its scale.
fn autoscalers() -> [Value; 2] {
    [
        scenario::vpa("single", "Deployment", "apps/v1", "Recreate"),
        json!({
            "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
            "metadata": {"name": "rolled", "namespace": SHOP},
            "spec": {
                "scaleTargetRef": {
                    "apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "rolled",
                },
                "minReplicas": 2, "maxReplicas": 3, "algorithm": "absolute",
                "metrics": [{"type": "External", "external": {
                    "metricName": "requests", "metricSelector": {"matchLabels": {"app": "all"}},
                    "lowWatermark": "50", "highWatermark": "1000",
                }}],
            },
        }),
    ]
}

/// Whether the only pod has the recommended resources and replaced the old one, and the Rollout is within its bounds.
async fn is_done(fixture: &Fixture) -> Result<(), String> {
    let client = fixture.bed.client();
    let pods = Api::<Pod>::namespaced(client.clone(), SHOP);
    let found = pods.list(&ListParams::default().labels("app=single")).await;
    let found = found.map_err(|why| why.to_string())?.items;
    let amounts: Vec<_> = found
        .iter()
        .map(|pod| {
            let container = pod.spec.as_ref()?.containers.first()?;
            Some(container.resources.as_ref()?.requests.as_ref()?.get("cpu")?.0.clone())
        })
        .collect();
    let scale = Api::<Deployment>::namespaced(client.clone(), SHOP).get_scale("single").await;
    let replicas = scale.ok().and_then(|scale| scale.spec?.replicas);
    let rolled = json!({
        "apiVersion": "argoproj.io/v1", "kind": "Rollout",
        "metadata": {"name": "rolled", "namespace": SHOP},
    });
    let (rollouts, name) = super::fixture::api(&client, &rolled);
    let rollout = rollouts.get(&name).await.map_err(|why| why.to_string())?;
    let is_old = amounts.iter().any(|cpu| cpu.as_deref().is_none_or(|cpu| cpu == "100m"));
    if is_old || amounts.len() != 1 || replicas != Some(1) || rollout.data["spec"]["replicas"] != 2
    {
        let spec = &rollout.data["spec"];
        return Err(format!("{replicas:?} replicas with {amounts:?}, and a Rollout with {spec}"));
    }
    Ok(())
}

/// Sets the usage of each container of these workloads, for the current pod names.
async fn publish_usage(fixture: &Fixture) {
    let pods = Api::<Pod>::namespaced(fixture.bed.client(), SHOP);
    let Ok(found) = pods.list(&ListParams::default()).await else { return };
    for pod in found {
        let (name, app) = (pod.name_any(), pod.labels().get("app").cloned().unwrap_or_default());
        let labels = [("app", &*app), ("pod", &*name), ("name", "main")];
        fixture.usage.set_external(SHOP, CORES, &labels, 0.3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_permission_enabled_by_a_chart_value_is_used() {
    if let Err(why) = tokio::task::spawn_blocking(test_programs::helm).await.expect("no panic") {
        return report_skipped(format!("{why:#}"));
    }
    // The default of servers before 1.34: a watch starts with a list.
    let Some(fixture) = Fixture::new(&["--feature-gates=WatchList=false"]).await else { return };
    let targets = ScrapeTarget::for_usage(&fixture.usage, "kubelet");
    let Some(prometheus) = PrometheusServer::start(PrometheusRelease::V3, None, &targets).await
    else {
        return;
    };
    for name in [HOME, "kube-system", SHOP] {
        fixture.restrict_if(name, name != SHOP).await;
    }
    fixture.apply(&scenario::foreign_definitions()).await;
    for role in ["recommender", "updater", "admission-controller", "watermark", "test"] {
        fixture.run(HOME, &format!("plimsoll-{role}-"), "plimsoll", &[]);
    }
    for role in ["recommender", "watermark"] {
        fixture.usage.set_all(HOME, "plimsoll-", role, UsageValue { cpu: 0.2, memory: 64 << 20 });
    }
    let folder = chart().display().to_string();
    let values = values(&prometheus.url());
    let mut words = vec!["install", "plimsoll", &folder];
    for value in &values {
        words.extend(["--set", value]);
    }
    helm_on(&fixture, &words).await.unwrap_or_else(|why| panic!("{why}"));
    fixture.ready(HOME, "app.kubernetes.io/instance=plimsoll", 8).await;
    let installed =
        objects(&helm_on(&fixture, &["get", "manifest", "plimsoll"]).await.expect("one"));

    scenario::begin(&fixture).await;
    let yaml = small::deployment("single", 1, "100m", "64Mi");
    small::create::<Deployment>(fixture.bed.client(), SHOP, &yaml).await;
    fixture.usage.set_all(SHOP, "single-", "main", UsageValue { cpu: 0.3, memory: 300 << 20 });
    wait_for_ready_pods(&fixture.bed, SHOP, "single", 1).await;
    wait_for_age(&fixture.bed, SHOP, "single", 6).await;
    fixture.apply(&autoscalers()).await;

    let usual = tokio::task::spawn_blocking(|| chart_template(&["watermark.enabled=true"]));
    let usual = usual.await.expect("no panic").expect("helm is there");
    let usual: BTreeSet<_> = of_accounts(&usual)
        .into_iter()
        .flat_map(|(account, rights)| rights.into_iter().map(move |right| (account.clone(), right)))
        .collect();
    let given: usize = of_accounts(&installed)
        .into_iter()
        .map(|(account, rights)| {
            let is_more = |right: &_| !usual.contains(&(account.clone(), Clone::clone(right)));
            rights.into_iter().filter(is_more).count()
        })
        .sum();
    // Scales of Deployments, and of Rollouts (two verbs), nodes (two verbs), the metric, and annotations on VPAs.
    assert_eq!(given, 1 + 2 + 2 + 1 + 1);
    wait::often(
        std::time::Duration::from_secs(1),
        2 * wait::PATIENCE,
        "all permissions that these values add are used",
        || async {
            publish_usage(&fixture).await;
            let why = is_done(&fixture).await.err();
            // All permissions of the recommender are compared, because some values also remove permissions.
            let unused: Vec<_> = unused_rights(&fixture, &installed)
                .into_iter()
                .filter(|one| one.0.ends_with("plimsoll-recommender") || !usual.contains(one))
                .filter(|(_, right)| !UNUSED_RIGHTS.contains(&(&*right.resource, &*right.verb)))
                .collect();
            if why.is_none() && unused.is_empty() {
                return Ok(());
            }
            let warned = fixture.warnings(HOME, "app.kubernetes.io/instance=plimsoll").await;
            Err(format!("{why:?}; {unused:#?}; {warned}"))
        },
    )
    .await;

    let output = helm_test(&fixture).await;
    assert_eq!(output.matches("Phase:          Succeeded").count(), 5 + 3, "{output}");
    let hooks = objects(&helm_on(&fixture, &["get", "hooks", "plimsoll"]).await.expect("hooks"));
    let unused_by_tests = unused_rights(&fixture, &hooks);
    assert!(unused_by_tests.is_empty(), "{unused_by_tests:#?}");
    let refused: Vec<_> =
        fixture.audit.requests().into_iter().filter(|request| request.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// The recommender always has these, but does not use them in this short test; `chart_installed` does.
const UNUSED_RIGHTS: [(&str, &str); 1] = [("verticalpodautoscalers", "get")];
