//! What is installed in a cluster: every manifest is what it says it is, and the rules in it are enough.

use std::{fs, path::Path, time::Duration};

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{ContainerPort, Service, ServiceAccount},
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use plimsoll::{
    act::{Rule, Verdict, may},
    api::VerticalPodAutoscaler,
    cli::recommender_config,
    clock::Clock,
    run::recommender,
};
use plimsoll_storage::{Time, checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    storage::objects::defined,
    support::{Bed, Usage, clock::wall_now, nodes::is_ready, objects, usage::Use, wait},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The objects of one kind among the rules of the recommender.
fn of_kind<K: DeserializeOwned>(kind: &str) -> Vec<K> {
    let all = documents(&Path::new(ROOT).join("deploy/recommender/rbac.yaml"));
    let wanted: Vec<Value> = all.into_iter().filter(|one| one["kind"] == kind).collect();
    assert!(!wanted.is_empty(), "there is no {kind}");
    wanted.into_iter().map(|one| serde_json::from_value(one).expect(kind)).collect()
}

/// Reads an object as its kind and writes it again: a field that the kind does not have is lost on the way.
fn survives<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let read: K =
        serde_json::from_value(object.clone()).unwrap_or_else(|why| panic!("{why}: {object}"));
    serde_json::to_value(read).expect("an object")
}

/// As much of the Prometheus operator's kind as is used here.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodMonitor {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    pub spec: PodMonitorSpec,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodMonitorSpec {
    selector: LabelSelector,
    pub pod_metrics_endpoints: Vec<PodMetricsEndpoint>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodMetricsEndpoint {
    port: String,
    interval: String,
    pub honor_labels: bool,
}

/// As much of the Prometheus operator's other kind as is used here.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PrometheusRule {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: RuleGroups,
}

/// A file of rules.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RuleGroups {
    groups: Vec<RuleGroup>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RuleGroup {
    name: String,
    interval: String,
    rules: Vec<RecordingRule>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct RecordingRule {
    record: String,
    expr: String,
}

/// The monitor that is shipped.
pub fn monitor() -> PodMonitor {
    let mut all = documents(&Path::new(ROOT).join("deploy/recommender/monitor.yaml"));
    serde_json::from_value(all.remove(0)).expect("a monitor")
}

#[test]
fn the_monitor_finds_the_port_of_the_recommenders_pods() {
    let mut all = documents(&Path::new(ROOT).join("deploy/recommender/deployment.yaml"));
    let deployment: Deployment = serde_json::from_value(all.remove(0)).expect("a Deployment");
    let monitor = monitor();
    assert_eq!(monitor.metadata.namespace, deployment.metadata.namespace);
    let template = deployment.spec.expect("a spec").template;
    let labels = template.metadata.expect("metadata").labels.expect("labels");
    let wanted = monitor.spec.selector.match_labels.expect("labels");
    assert!(wanted.iter().all(|(name, value)| labels.get(name) == Some(value)), "{wanted:?}");
    let ports = template.spec.expect("a spec").containers.remove(0).ports.expect("ports");
    for endpoint in monitor.spec.pod_metrics_endpoints {
        let named = |port: &ContainerPort| port.name.as_ref() == Some(&endpoint.port);
        assert!(ports.iter().any(named), "no port is called {}", endpoint.port);
    }
}

#[test]
fn every_manifest_has_only_fields_that_its_kind_knows() {
    let mut files = 0;
    for folder in fs::read_dir(Path::new(ROOT).join("deploy")).expect("a folder").flatten() {
        for file in fs::read_dir(folder.path()).expect("a folder").flatten() {
            let path = file.path();
            for object in documents(&path) {
                let kind = object["kind"].as_str().unwrap_or_default();
                let read = match kind {
                    "ClusterRole" => survives::<ClusterRole>(&object),
                    "ClusterRoleBinding" => survives::<ClusterRoleBinding>(&object),
                    // What is in those is compared with upstream's, elsewhere.
                    "CustomResourceDefinition" => {
                        survives::<CustomResourceDefinition>(&object);
                        object.clone()
                    }
                    "Deployment" => survives::<Deployment>(&object),
                    "PodDisruptionBudget" => survives::<PodDisruptionBudget>(&object),
                    "Role" => survives::<Role>(&object),
                    "RoleBinding" => survives::<RoleBinding>(&object),
                    "Service" => survives::<Service>(&object),
                    "ServiceAccount" => survives::<ServiceAccount>(&object),
                    "PodMonitor" => survives::<PodMonitor>(&object),
                    "PrometheusRule" => survives::<PrometheusRule>(&object),
                    "" if object["groups"].is_array() => survives::<RuleGroups>(&object),
                    "Kustomization" => {
                        let resources = object["resources"].as_array().expect("resources");
                        for name in resources.iter().filter_map(Value::as_str) {
                            assert!(folder.path().join(name).exists(), "{name} is not there");
                        }
                        object.clone()
                    }
                    other => panic!("{}: a {other:?}", path.display()),
                };
                assert_eq!(read, object, "{}", path.display());
            }
            files += 1;
        }
    }
    assert!(files >= 5, "only {files} files were read");
}

#[test]
fn the_operator_is_given_the_same_recording_rules() {
    let read = |name: &str| documents(&Path::new(ROOT).join("deploy/recommender").join(name));
    let (plain, object) = (read("rules.yaml"), read("prometheusrule.yaml"));
    assert_eq!(plain.len(), 1);
    assert_eq!(object[0]["spec"], plain[0]);
}

#[tokio::test]
async fn the_rules_of_the_recommender_are_enough_to_recommend_save_lead_and_beat() {
    let Some(bed) = Bed::private().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let account = bed.account("kube-system", "plimsoll-recommender").await;
    let parameters = PostParams::default();
    for role in of_kind::<ClusterRole>("ClusterRole") {
        Api::all(bed.client()).create(&parameters, &role).await.expect("a role");
    }
    for binding in of_kind::<ClusterRoleBinding>("ClusterRoleBinding") {
        Api::all(bed.client()).create(&parameters, &binding).await.expect("a binding");
    }
    for role in of_kind::<Role>("Role") {
        let roles = Api::namespaced(bed.client(), "kube-system");
        roles.create(&parameters, &role).await.expect("a role");
    }
    for binding in of_kind::<RoleBinding>("RoleBinding") {
        let bindings = Api::namespaced(bed.client(), "kube-system");
        bindings.create(&parameters, &binding).await.expect("a binding");
    }
    // What RBAC knows arrives at the server's authorizer a moment later.
    let lease = |verb, name: &str| {
        Rule::new(verb, "coordination.k8s.io", "leases").within("kube-system").named(name)
    };
    let rules = [
        lease("update", "vpa-recommender-lease"),
        lease("update", "plimsoll-default"),
        Rule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers/status"),
        lease("update", "of-somebody-else"),
        Rule::new("patch", "autoscaling.k8s.io", "verticalpodautoscalers"),
        Rule::new("delete", "", "pods"),
        Rule::new("get", "", "secrets"),
    ];
    let expected = [true, true, true, false, false, false, false];
    let expected = expected.map(|may| if may { Verdict::Allowed } else { Verdict::Denied });
    wait::until("the rules hold", || async {
        (may(&account.client, &rules).await == expected).then_some(())
    })
    .await;

    bed.nodes().add("node", "8", "16Gi").await;
    let usage = Usage::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let vpa = "
metadata: {name: web}
spec: {targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";
    objects::create::<VerticalPodAutoscaler>(bed.client(), &namespace, vpa).await;
    let web = objects::deployment("web", 1, "100m", "64Mi");
    objects::create::<Deployment>(bed.client(), &namespace, &web).await;
    bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    usage.set_all(&namespace, "web-", "main", Use { cpu: 0.3, memory: 500 << 20 });

    let clock = Clock::stepped(Time::from(wall_now()));
    usage.at(clock.now().into());
    let config = recommender_config(&["--address=127.0.0.1:0"]).expect("flags that make sense");
    let running = recommender::start(config, account.client, clock.clone()).await.expect("starts");
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), &namespace);
    let checkpoints = Api::<Checkpoint>::namespaced(bed.client(), &namespace);
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    wait::until("a status, a checkpoint and both Leases are written", || async {
        let now = clock.now().later(Duration::from_mins(1));
        usage.at(now.into());
        clock.step(Duration::from_mins(1));
        vpas.get("web").await.ok()?.status?.recommendation?.container_recommendations.first()?;
        let saved = checkpoints.list(&ListParams::default()).await.ok()?;
        saved.items.iter().find(|one| one.status.is_some())?;
        leases.get("vpa-recommender-lease").await.ok()?.spec?.holder_identity?;
        leases.get("plimsoll-default").await.ok()?.spec?.renew_time.map(|_| ())
    })
    .await;
    running.stop().await;
}
