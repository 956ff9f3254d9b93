//! The chart on a real API server with RBAC and Pod Security on, from `helm install` to `helm uninstall`: every role lives its
//! life with just these manifests, does nothing that it may not do, and needs all that it may.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use xtask::parts;

use super::{
    denials,
    inventory::everything,
    life,
    overtaking::Overtaking,
    rendered::{chart, helm, objects, of_kind},
    rights::{Right, of_accounts},
    scraped,
    stage::Stage,
};
use crate::support::{not_run::not_run, usage::Use, wait};

pub const HOME: &str = "autoscaling";

/// Times that are for a cluster and not for a test; all else is as it is shipped.
const VALUES: &[&str] = &[
    "watermark.enabled=true",
    "monitoring.kind=PodMonitor",
    "monitoring.rules.enabled=true",
    "priorityClass.create=true",
    "priorityClass.name=autoscaling",
    "recommender.args={--recommender-interval=1s,--checkpoint-interval=1s,--checkpoints-gc-interval=1s}",
    "updater.args={--updater-interval=1s,--canary-watch=2s,--cool-down=1s,--cool-down-urgent=1s}",
    "admissionController.args={--status-lease-update-interval=1s,--shutdown-delay=0s}",
    "watermark.args={-period=1s}",
];

/// What helm says to these words about the release, on this cluster.
pub async fn told(stage: &Stage, words: &[&str]) -> Result<String, String> {
    let kubeconfig = format!("--kubeconfig={}", stage.bed.kubeconfig_path().display());
    let namespace = format!("--namespace={HOME}");
    let mut all: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    all.extend([kubeconfig, namespace]);
    let said = tokio::task::spawn_blocking(move || {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        helm(&all)
    });
    said.await.expect("no panic").expect("it was there a moment ago")
}

/// What `helm test` says, if it is content.
pub async fn tested(stage: &Stage) -> String {
    match told(stage, &["test", "plimsoll", "--timeout=3m"]).await {
        Ok(said) => said,
        Err(why) => panic!("{why}\n{}", stage.said(HOME, "app.kubernetes.io/component=test").await),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_what_does_all_that_it_may_and_nothing_else_and_uninstalls_it_whole() {
    let found = tokio::task::spawn_blocking(|| {
        Ok::<_, anyhow::Error>((parts::helm()?, parts::operator_crds()?))
    });
    let definitions = match found.await.expect("no panic") {
        Ok((_, definitions)) => definitions,
        Err(why) => return not_run(format!("{why:#}")),
    };
    // As servers before release 1.34 are by themselves: a watch begins with a list.
    let Some(stage) = Stage::set(&["--feature-gates=WatchList=false"]).await else { return };
    let client = stage.bed.client();
    for name in [HOME, "kube-system", life::SHOP] {
        stage.restrict_if(name, name != life::SHOP).await;
    }
    for kind in ["podmonitors", "prometheusrules"] {
        let file = definitions.join(format!("monitoring.coreos.com_{kind}.yaml"));
        stage.apply(&objects(&std::fs::read_to_string(file).expect("the module has it"))).await;
    }
    stage.apply(&life::neighbours()).await;
    let _overtaking = Overtaking::begin(&stage, HOME).await;
    let before = everything(&client).await;

    for role in ["recommender", "updater", "admission-controller", "watermark", "test"] {
        stage.run(HOME, &format!("plimsoll-{role}-"), "plimsoll", &[]);
    }
    stage.usage.set_all(HOME, "plimsoll-", "recommender", Use { cpu: 0.2, memory: 64 << 20 });
    stage.usage.set_all(HOME, "plimsoll-", "watermark", Use { cpu: 0.2, memory: 64 << 20 });
    let folder = chart().display().to_string();
    let mut words = vec!["install", "plimsoll", &folder];
    for value in VALUES {
        words.extend(["--set", value]);
    }
    let said = told(&stage, &words).await.unwrap_or_else(|why| panic!("{why}"));
    assert!(said.contains("helm test -n autoscaling plimsoll"), "{said}");
    let release = "app.kubernetes.io/instance=plimsoll";
    stage.ready(HOME, release, 8).await;
    let installed = told(&stage, &["get", "manifest", "plimsoll"]).await.expect("a manifest");
    let installed = objects(&installed);
    assert_eq!(of_kind(&installed, "Lease").len(), 5);

    life::begin(&stage).await;
    let unused = || unused(&stage, &installed);
    let lived = async {
        wait::often(
            Duration::from_secs(1),
            // Some are for what comes of what came of others.
            3 * wait::PATIENCE,
            "all rights are used",
            || async {
                if let Err(why) = life::has_come_about(&stage).await {
                    return Err(format!("{why}; {}", stage.warnings(HOME, release).await));
                }
                let unused = unused();
                if unused.is_empty() { Ok(()) } else { Err(format!("{unused:#?}")) }
            },
        )
        .await;
    };
    tokio::select! {
        () = lived => {}
        () = life::go_on(&stage) => {}
    }

    scraped::check(&stage, HOME, &installed).await;

    let said = tested(&stage).await;
    assert_eq!(said.matches("Phase:          Succeeded").count(), 5 + 2, "{said}");
    // What the tests themselves may do was there for their time only.
    let hooks = told(&stage, &["get", "hooks", "plimsoll"]).await.expect("hooks");
    let unused_by_tests = self::unused(&stage, &objects(&hooks));
    assert!(unused_by_tests.is_empty(), "{unused_by_tests:#?}");

    let refused: Vec<_> =
        stage.audit.requests().into_iter().filter(|request| request.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    denials::check(&client, HOME).await;

    stage.end(life::SHOP).await;
    told(&stage, &["uninstall", "plimsoll", "--wait"]).await.unwrap_or_else(|why| panic!("{why}"));
    let left = [
        "CustomResourceDefinition /verticalpodautoscalercheckpoints.autoscaling.k8s.io",
        "CustomResourceDefinition /verticalpodautoscalers.autoscaling.k8s.io",
        "CustomResourceDefinition /watermarkpodautoscalers.datadoghq.com",
        // The API server's own note of the first two.
        "APIService /v1.autoscaling.k8s.io",
    ];
    let left: BTreeSet<String> = left.map(str::to_owned).into();
    // A look is dozens of requests.
    wait::often(
        Duration::from_secs(1),
        wait::PATIENCE,
        "nothing is left but the definitions",
        || async {
            let now = everything(&client).await;
            let more: BTreeSet<String> = now.difference(&before).cloned().collect();
            if more == left { Ok(()) } else { Err(format!("{more:#?}")) }
        },
    )
    .await;
}

/// Rights of the release's accounts that nobody has made use of.
pub fn unused(stage: &Stage, installed: &[serde_json::Value]) -> Vec<(String, Right)> {
    let requests = stage.audit.requests();
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
async fn a_release_beside_upstreams_objects_uses_them_and_leaves_them_behind() {
    let Some(stage) = Stage::set(&[]).await else { return };
    if let Err(why) = tokio::task::spawn_blocking(parts::helm).await.expect("no panic") {
        return not_run(format!("{why:#}"));
    }
    stage.restrict_if(HOME, true).await;
    let theirs = [
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "vpa-recommender-lease", "namespace": "kube-system"},
            "spec": {"holderIdentity": "theirs"}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "vpa-webhook-config"}}),
    ];
    stage.apply(&theirs).await;
    let folder = chart().display().to_string();
    let install = ["upgrade", "--install", "plimsoll", &folder, "--set=updater.enabled=false"];
    for _ in 0..2 {
        told(&stage, &install).await.unwrap_or_else(|why| panic!("{why}"));
        let manifest = told(&stage, &["get", "manifest", "plimsoll"]).await.expect("a manifest");
        let manifest = objects(&manifest);
        assert_eq!(of_kind(&manifest, "Lease").len(), 2, "the heartbeat, and the webhook's");
        assert!(of_kind(&manifest, "MutatingWebhookConfiguration").is_empty());
    }
    told(&stage, &["uninstall", "plimsoll", "--wait"]).await.unwrap_or_else(|why| panic!("{why}"));
    for object in &theirs {
        let (api, name) = super::stage::api(&stage.bed.client(), object);
        assert!(api.get_opt(&name).await.expect("readable").is_some(), "{name} is still there");
    }
}
