//! The chart on a real API server with RBAC and Pod Security, from `helm install` to `helm uninstall`: every role
//! works with these manifests, makes no forbidden request, and uses all of its permissions.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use xtask::test_programs;

use super::{
    cluster_objects::all_objects,
    fixture::Fixture,
    prometheus_scrape,
    rbac::{RbacRight, of_accounts},
    rbac_matrix,
    rendered_manifests::{chart, helm, objects, of_kind},
    scenario,
    write_conflicts::ConflictInjector,
};
use crate::support::{metrics_server::UsageValue, skipped::report_skipped, wait};

pub const HOME: &str = "autoscaling";

/// Shorter durations for tests; everything else is as shipped.
const VALUES: &[&str] = &[
    "watermark.enabled=true",
    "horizontal.enabled=true",
    "monitoring.kind=PodMonitor",
    "monitoring.rules.enabled=true",
    "priorityClass.create=true",
    "priorityClass.name=autoscaling",
    "recommender.args={--recommender-interval=1s,--checkpoint-interval=1s,--checkpoints-gc-interval=1s}",
    "updater.args={--updater-interval=1s,--canary-watch=2s,--cool-down=1s,--cool-down-urgent=1s}",
    "admissionController.args={--status-lease-update-interval=1s,--shutdown-delay=0s}",
    "watermark.args={-period=1s}",
    "horizontal.args={--horizontal-pod-autoscaler-sync-period=1s}",
];

/// Runs a helm command about the release on this cluster.
pub async fn helm_on(fixture: &Fixture, words: &[&str]) -> Result<String, String> {
    let kubeconfig = format!("--kubeconfig={}", fixture.bed.kubeconfig_path().display());
    let namespace = format!("--namespace={HOME}");
    let mut all: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    all.extend([kubeconfig, namespace]);
    let output = tokio::task::spawn_blocking(move || {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        helm(&all)
    });
    output.await.expect("no panic").expect("helm is available")
}

/// Runs `helm test`; returns its output, and panics if it fails.
pub async fn helm_test(fixture: &Fixture) -> String {
    match helm_on(fixture, &["test", "plimsoll", "--timeout=3m"]).await {
        Ok(output) => output,
        Err(why) => {
            panic!("{why}\n{}", fixture.log_tails(HOME, "app.kubernetes.io/component=test").await)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_installs_with_sufficient_rbac_and_uninstalls_completely() {
    let found = tokio::task::spawn_blocking(|| {
        Ok::<_, anyhow::Error>((test_programs::helm()?, test_programs::operator_crds()?))
    });
    let definitions = match found.await.expect("no panic") {
        Ok((_, definitions)) => definitions,
        Err(why) => return report_skipped(format!("{why:#}")),
    };
    // The default of servers before 1.34: a watch starts with a list.
    let Some(fixture) = Fixture::new(&["--feature-gates=WatchList=false"]).await else { return };
    let client = fixture.bed.client();
    for name in [HOME, "kube-system", scenario::SHOP] {
        fixture.restrict_if(name, name != scenario::SHOP).await;
    }
    for kind in ["podmonitors", "prometheusrules"] {
        let file = definitions.join(format!("monitoring.coreos.com_{kind}.yaml"));
        fixture.apply(&objects(&std::fs::read_to_string(file).expect("the module has it"))).await;
    }
    fixture.apply(&scenario::foreign_definitions()).await;
    let _overtaking = ConflictInjector::begin(&fixture, HOME).await;
    let before = all_objects(&client).await;

    for role in
        ["recommender", "updater", "admission-controller", "watermark", "horizontal", "test"]
    {
        fixture.run(HOME, &format!("plimsoll-{role}-"), "plimsoll", &[]);
    }
    fixture.usage.set_all(
        HOME,
        "plimsoll-",
        "recommender",
        UsageValue { cpu: 0.2, memory: 64 << 20 },
    );
    fixture.usage.set_all(
        HOME,
        "plimsoll-",
        "watermark",
        UsageValue { cpu: 0.2, memory: 64 << 20 },
    );
    let folder = chart().display().to_string();
    let mut words = vec!["install", "plimsoll", &folder];
    for value in VALUES {
        words.extend(["--set", value]);
    }
    let output = helm_on(&fixture, &words).await.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.contains("helm test -n autoscaling plimsoll"), "{output}");
    let release = "app.kubernetes.io/instance=plimsoll";
    fixture.ready(HOME, release, 10).await;
    let installed = helm_on(&fixture, &["get", "manifest", "plimsoll"]).await.expect("a manifest");
    let installed = objects(&installed);
    assert_eq!(of_kind(&installed, "Lease").len(), 6);

    scenario::begin(&fixture).await;
    let unused = || unused_rights(&fixture, &installed);
    let all_used = async {
        wait::often(
            Duration::from_secs(1),
            // Some permissions are only needed after the effects of others.
            3 * wait::PATIENCE,
            "all permissions are used",
            || async {
                if let Err(why) = scenario::is_reached(&fixture).await {
                    return Err(format!("{why}; {}", fixture.warnings(HOME, release).await));
                }
                let unused = unused();
                if unused.is_empty() { Ok(()) } else { Err(format!("{unused:#?}")) }
            },
        )
        .await;
    };
    tokio::select! {
        () = all_used => {}
        () = scenario::keep_changing(&fixture) => {}
    }

    prometheus_scrape::check(&fixture, HOME, &installed).await;

    let output = helm_test(&fixture).await;
    assert_eq!(output.matches("Phase:          Succeeded").count(), 5 + 2, "{output}");
    // The permissions of the tests were deleted with them.
    let hooks = helm_on(&fixture, &["get", "hooks", "plimsoll"]).await.expect("hooks");
    let unused_by_tests = self::unused_rights(&fixture, &objects(&hooks));
    assert!(unused_by_tests.is_empty(), "{unused_by_tests:#?}");

    let refused: Vec<_> =
        fixture.audit.requests().into_iter().filter(|request| request.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    rbac_matrix::check(&client, HOME).await;

    fixture.delete_namespace(scenario::SHOP).await;
    helm_on(&fixture, &["uninstall", "plimsoll", "--wait"])
        .await
        .unwrap_or_else(|why| panic!("{why}"));
    let remaining = [
        "CustomResourceDefinition /verticalpodautoscalercheckpoints.autoscaling.k8s.io",
        "CustomResourceDefinition /verticalpodautoscalers.autoscaling.k8s.io",
        "CustomResourceDefinition /watermarkpodautoscalers.datadoghq.com",
        // The API server creates this one for the first two.
        "APIService /v1.autoscaling.k8s.io",
    ];
    let remaining: BTreeSet<String> = remaining.map(str::to_owned).into();
    // A poll makes dozens of requests.
    wait::often(Duration::from_secs(1), wait::PATIENCE, "only the CRDs are left", || async {
        let now = all_objects(&client).await;
        let more: BTreeSet<String> = now.difference(&before).cloned().collect();
        if more == remaining { Ok(()) } else { Err(format!("{more:#?}")) }
    })
    .await;
}

/// Permissions of the release's accounts that no request has used.
pub fn unused_rights(
    fixture: &Fixture,
    installed: &[serde_json::Value],
) -> Vec<(String, RbacRight)> {
    let requests = fixture.audit.requests();
    let mut unused = Vec::new();
    for (account, rights) in of_accounts(installed) {
        for right in rights {
            let is_used =
                requests.iter().any(|request| request.account == account && right.allows(request));
            if !is_used {
                unused.push((account.clone(), right));
            }
        }
    }
    unused
}

#[tokio::test]
async fn a_release_next_to_upstream_uses_its_objects_and_leaves_them_on_uninstall() {
    let Some(fixture) = Fixture::new(&[]).await else { return };
    if let Err(why) = tokio::task::spawn_blocking(test_programs::helm).await.expect("no panic") {
        return report_skipped(format!("{why:#}"));
    }
    fixture.restrict_if(HOME, true).await;
    let theirs = [
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "vpa-recommender-lease", "namespace": "kube-system"},
            "spec": {"holderIdentity": "theirs"}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "vpa-webhook-config"}}),
    ];
    fixture.apply(&theirs).await;
    let folder = chart().display().to_string();
    let install = ["upgrade", "--install", "plimsoll", &folder, "--set=updater.enabled=false"];
    for _ in 0..2 {
        helm_on(&fixture, &install).await.unwrap_or_else(|why| panic!("{why}"));
        let manifest =
            helm_on(&fixture, &["get", "manifest", "plimsoll"]).await.expect("a manifest");
        let manifest = objects(&manifest);
        assert_eq!(of_kind(&manifest, "Lease").len(), 2, "the heartbeat, and the webhook's");
        assert!(of_kind(&manifest, "MutatingWebhookConfiguration").is_empty());
    }
    helm_on(&fixture, &["uninstall", "plimsoll", "--wait"])
        .await
        .unwrap_or_else(|why| panic!("{why}"));
    for object in &theirs {
        let (api, name) = super::fixture::api(&fixture.bed.client(), object);
        assert!(api.get_opt(&name).await.expect("readable").is_some(), "{name} is still there");
    }
}
