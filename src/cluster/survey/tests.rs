//! Objects of a cluster in memory, and the survey of them.

#![expect(clippy::needless_pass_by_value, reason = "objects are written in place")]

mod fake_api_server;
mod groups;
mod optional_kinds;
mod running_pods;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use plimsoll_core::{
    rightsizing::survey::{
        Amounts, ContainerRole, Resource, RuntimeHint, UtilizationTarget, Workload,
    },
    types::units::{Bytes, MilliCpu},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use self::fake_api_server::Cluster;
use super::*;
use crate::cluster::cache::selector::Selector;

fn container(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

fn owner(version: &str, kind: &str, name: &str) -> Value {
    json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}])
}

fn controller(name: &str, owners: Value, spec: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners,
        "creationTimestamp": "2026-11-01T00:00:00Z", "labels": {"app": name}}, "spec": spec})
}

fn template(replicas: u32, containers: Value) -> Value {
    json!({"replicas": replicas, "template": {"spec": {"containers": containers}}})
}

fn pod(name: &str, owners: Value, containers: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners,
        "creationTimestamp": "2026-11-02T00:00:00Z"},
        "spec": {"nodeName": format!("node-{name}"), "containers": containers},
        "status": {"phase": "Running"}})
}

const PODS: &str = "/api/v1/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";
const ROLLOUTS: &str = "/apis/argoproj.io/v1alpha1/rollouts";
const JOBS: &str = "/apis/batch/v1/jobs";

/// Each workload in one line: kind, name, version, replicas, pods, and containers with their requests.
fn lines(survey: &Survey) -> Vec<String> {
    let amount = |amounts: Amounts| {
        let cpu = amounts.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.0.to_string());
        let memory = amounts.memory.map_or_else(|| "-".to_owned(), |it| (it.0 >> 20).to_string());
        format!("{cpu}/{memory}")
    };
    let line = |one: &Arc<Workload>| {
        let containers = one.containers.iter().map(|container| {
            let role = match container.role {
                ContainerRole::Main => "",
                ContainerRole::Init => "init ",
                ContainerRole::Sidecar => "sidecar ",
            };
            format!("{role}{} {}", container.name, amount(container.requests))
        });
        let replicas = one.replicas.map_or_else(|| "?".to_owned(), |count| count.to_string());
        format!(
            "{}/{} {} x{replicas} [{}] {}",
            one.kind,
            one.name,
            one.api_version.as_deref().unwrap_or("?"),
            one.pods.join(" "),
            containers.collect::<Vec<_>>().join(", ")
        )
    };
    survey.workloads.iter().map(line).collect()
}

/// A workload of each kind.
fn cluster_of_each_kind() -> Cluster {
    let main = || json!([container("main", "100m", "64Mi")]);
    let in_pod = || json!([container("main", "200m", "64Mi")]);
    let alone = |name: &str, replicas| controller(name, json!([]), template(replicas, main()));
    let owned = |name: &str, [version, kind, of]: [&str; 3]| {
        controller(name, owner(version, kind, of), template(1, main()))
    };
    let pod_of =
        |name: &str, [version, kind, of]: [&str; 3]| pod(name, owner(version, kind, of), in_pod());
    let served = |kind: &str, plural: &str, is_scalable: bool| {
        let of = |name: String, kind: &str| json!({"name": name, "kind": kind, "singularName": "", "namespaced": true, "verbs": []});
        let scale = is_scalable.then(|| of(format!("{plural}/scale"), "Scale"));
        [of(plural.to_owned(), kind)].into_iter().chain(scale).collect::<Value>()
    };
    let mut daemons = alone("log", 7);
    daemons["status"] = json!({"desiredNumberScheduled": 2});
    let cron_jobs =
        json!({"jobTemplate": {"spec": {"template": {"spec": {"containers": main()}}}}});
    let template_of =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "blue-template"});
    let mut finished = pod("bare-done", json!([]), in_pod());
    finished["status"]["phase"] = json!("Succeeded");
    let (argo, kruise) = ("argoproj.io/v1alpha1", "apps.kruise.io/v1alpha1");
    let (strimzi, volcano) = ("core.strimzi.io/v1beta2", "batch.volcano.sh/v1alpha1");
    Cluster::default()
        .with(DEPLOYMENTS, alone("web", 3))
        .with(REPLICA_SETS, owned("web-1", ["apps/v1", "Deployment", "web"]))
        .with(REPLICA_SETS, owned("web-old", ["apps/v1", "Deployment", "web"]))
        .with(PODS, pod_of("web-1-a", ["apps/v1", "ReplicaSet", "web-1"]))
        .with(PODS, pod_of("web-1-b", ["apps/v1", "ReplicaSet", "web-1"]))
        .with(DEPLOYMENTS, alone("stopped", 0))
        .with("/apis/apps/v1/statefulsets", alone("db", 1))
        .with(PODS, pod_of("db-0", ["apps/v1", "StatefulSet", "db"]))
        .with("/apis/apps/v1/daemonsets", daemons)
        .with(PODS, pod_of("log-a", ["apps/v1", "DaemonSet", "log"]))
        .with(REPLICA_SETS, alone("single", 1))
        .with(PODS, pod_of("single-a", ["apps/v1", "ReplicaSet", "single"]))
        .with("/api/v1/replicationcontrollers", alone("old", 1))
        .with("/apis/batch/v1/cronjobs", controller("night", json!([]), cron_jobs))
        .with(JOBS, owned("night-1", ["batch/v1", "CronJob", "night"]))
        .with(JOBS, owned("night-0", ["batch/v1", "CronJob", "night"]))
        .with(PODS, pod_of("night-1-a", ["batch/v1", "Job", "night-1"]))
        .with(JOBS, alone("once", 1))
        // A Rollout with a template of its own, and one that uses that of a Deployment.
        .serving("argoproj.io/v1alpha1", served("Rollout", "rollouts", true))
        .with(ROLLOUTS, alone("canary", 4))
        .with(REPLICA_SETS, owned("canary-1", [argo, "Rollout", "canary"]))
        .with(PODS, pod_of("canary-1-a", ["apps/v1", "ReplicaSet", "canary-1"]))
        .with(
            ROLLOUTS,
            controller("blue", json!([]), json!({"replicas": 2, "workloadRef": template_of})),
        )
        .with(DEPLOYMENTS, alone("blue-template", 0))
        // Scalable, but without a template of this form.
        .serving("apps.kruise.io/v1alpha1", served("CloneSet", "clonesets", true))
        .with(
            "/apis/apps.kruise.io/v1alpha1/clonesets",
            controller("clone", json!([]), json!({"replicas": 5, "template": "x"})),
        )
        .with(PODS, pod_of("clone-a", [kruise, "CloneSet", "clone"]))
        // A Deployment of an operator, whose resource cannot be scaled.
        .serving("example.com/v1", served("Thing", "things", false))
        .with(DEPLOYMENTS, owned("operated", ["example.com/v1", "Thing", "thing"]))
        // Owned directly by what cannot be scaled.
        .serving("core.strimzi.io/v1beta2", served("StrimziPodSet", "strimzipodsets", false))
        .with(PODS, pod_of("kafka-0", [strimzi, "StrimziPodSet", "kafka"]))
        .with(PODS, pod_of("kafka-1", [strimzi, "StrimziPodSet", "kafka"]))
        // Volcano's Job is none of batch.
        .with(PODS, pod_of("train-0", [volcano, "Job", "train"]))
        .with(PODS, pod("bare", json!([]), in_pod()))
        .with(PODS, pod_of("apiserver-n", ["v1", "Node", "n"]))
        .with(PODS, finished)
}

#[tokio::test]
async fn each_kind_of_workload_is_found_with_its_pods() {
    let survey = cluster_of_each_kind().survey(&SurveyScope::default()).await;
    assert_eq!(survey.unread, []);
    let expected = [
        "CronJob/night batch/v1 x? [night-1-a] main 100/64",
        "DaemonSet/log apps/v1 x2 [log-a] main 100/64",
        "Deployment/operated apps/v1 x1 [] main 100/64",
        "Deployment/stopped apps/v1 x0 [] main 100/64",
        "Deployment/web apps/v1 x3 [web-1-a web-1-b] main 100/64",
        "Job/once batch/v1 x? [] main 100/64",
        "Job/train batch.volcano.sh/v1alpha1 x1 [train-0] main 200/64",
        "Pod/apiserver-n v1 x1 [apiserver-n] main 200/64",
        "Pod/bare v1 x1 [bare] main 200/64",
        "ReplicaSet/single apps/v1 x1 [single-a] main 200/64",
        "ReplicationController/old v1 x1 [] main 100/64",
        "CloneSet/clone apps.kruise.io/v1alpha1 x5 [clone-a] main 200/64",
        "Rollout/blue argoproj.io/v1alpha1 x2 [] main 100/64",
        "Rollout/canary argoproj.io/v1alpha1 x4 [canary-1-a] main 100/64",
        "StatefulSet/db apps/v1 x1 [db-0] main 100/64",
        "StrimziPodSet/kafka core.strimzi.io/v1beta2 x2 [kafka-0 kafka-1] main 200/64",
    ];
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(lines(&survey), expected);
    let find = |name: &str| survey.workloads.iter().find(|one| *one.name == *name).expect(name);
    assert_eq!(find("blue").template_owner.as_deref(), Some("Deployment/blue-template"));
    assert_eq!(find("canary").template_owner, None);
    assert_eq!(find("web").nodes, ["node-web-1-a", "node-web-1-b"].map(Box::<str>::from));
    assert_eq!(find("web").labels.get("app"), Some("web"));
    assert_eq!(
        find("web").created.map(|at| at.to_string()).as_deref(),
        Some("2026-11-01T00:00:00Z")
    );
}

#[tokio::test]
async fn workloads_that_have_not_changed_are_shared_with_the_survey_before() {
    let scope = SurveyScope::default();
    let deployment = |name: &str, replicas: u32| {
        let spec = template(replicas, json!([{"name": "main"}]));
        controller(name, json!([]), spec)
    };
    let cluster = Cluster::default().with(DEPLOYMENTS, deployment("api", 1));
    let before = cluster.clone().with(DEPLOYMENTS, deployment("web", 1)).survey(&scope).await;
    let after = cluster.with(DEPLOYMENTS, deployment("web", 2));
    let after = after.with(DEPLOYMENTS, deployment("cart", 1));
    let after = after.survey_after(Some(&before), &scope).await;
    let find = |name: &str| after.workloads.iter().find(|one| *one.name == *name).expect(name);
    assert_eq!(after.workloads.len(), 3);
    assert!(Arc::ptr_eq(&before.workloads[0], find("api")));
    assert_eq!((before.workloads[1].replicas, find("web").replicas), (Some(1), Some(2)));
}

#[tokio::test]
async fn containers_have_their_roles_limits_and_runtimes() {
    let spec = json!({"replicas": 1, "template": {"spec": {
        "initContainers": [
            {"name": "migrate", "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "0.1"}}}],
        "containers": [
            {"name": "jvm", "command": ["java"], "args": ["-Xmx1g", "-jar", "a.jar"],
                "resources": {"requests": {"cpu": "1", "memory": "1536Mi"}, "limits": {"cpu": "2"}}},
            {"name": "go", "env": [
                {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "GOMEMLIMIT",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}}]}]}}});
    let mut object = controller("web", json!([]), spec);
    object["metadata"]["annotations"] = json!({"plimsoll.dev/shape": "jvm",
        "meta.helm.sh/release-name": "web", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    let survey = Cluster::default().with(DEPLOYMENTS, object).survey(&SurveyScope::default()).await;
    let [web] = &survey.workloads[..] else { panic!("{survey:?}") };
    assert_eq!(
        lines(&survey),
        [
            "Deployment/web apps/v1 x1 [] init migrate -/-, sidecar proxy 100/-, jvm 1000/1536, go -/-"
        ]
    );
    let kept: Vec<_> = web.annotations.iter().map(|(key, _)| key).collect();
    assert_eq!(kept, ["meta.helm.sh/release-name", "plimsoll.dev/shape"]);
    let [migrate, _, jvm, go] = &web.containers[..] else { panic!("{web:?}") };
    assert_eq!(migrate.limits, Amounts { cpu: None, memory: Some(Bytes(1 << 30)) });
    assert_eq!(jvm.limits, Amounts { cpu: Some(MilliCpu(2000)), memory: None });
    assert!(
        matches!(jvm.runtime.as_deref(), Some(RuntimeHint::Jvm { max_heap: Some(Bytes(heap)), .. }) if *heap == 1 << 30)
    );
    assert!(
        matches!(go.runtime.as_deref(), Some(RuntimeHint::Go { follows_limit: true, .. })),
        "{go:?}"
    );
}

#[tokio::test]
async fn autoscalers_are_assigned_to_the_workloads_that_they_target() {
    let target =
        |kind: &str, name: &str| json!({"apiVersion": "apps/v1", "kind": kind, "name": name});
    let metric = |form: &str, name: &str, target: Value| json!({"type": "x", form: {"name": name, "container": "main", "target": target}});
    let relative = |percent: u32| json!({"type": "Utilization", "averageUtilization": percent});
    let hpa = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {
    "scaleTargetRef": target("Deployment", "web"),
    "maxReplicas": 7,
    "metrics": [
        metric("resource", "memory", json!({"type": "AverageValue", "averageValue": "1Gi"})),
        metric("resource", "cpu", relative(70)),
        metric("containerResource", "memory", relative(80)),
        metric("pods", "cpu", relative(1)),
        metric("resource", "example.com/gpu", relative(1)),
    ]}});
    let vpa = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "shop"},
        "spec": {"targetRef": target("Deployment", "web"), "updatePolicy": 5}})
    };
    let survey = cluster_of_each_kind()
        .with("/apis/autoscaling/v2/horizontalpodautoscalers", hpa)
        .with("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", vpa("second"))
        .with("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", vpa("first"))
        .survey(&SurveyScope::default())
        .await;
    let of = |metric, resource, container: Option<&str>, percent| UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric,
        resource,
        container: container.map(Into::into),
        percent,
    };
    for workload in &survey.workloads {
        if &*workload.name == "web" {
            let expected =
                [of(1, Resource::Cpu, None, 70), of(2, Resource::Memory, Some("main"), 80)];
            assert_eq!(workload.utilization_targets, expected);
            let [range] = &workload.replica_ranges[..] else { panic!("one autoscaler") };
            let found = (range.min, range.max, range.has_other_metrics);
            assert_eq!(found, (Some(1), Some(7), true), "metrics of other kinds too");
            assert_eq!(workload.vpa.as_deref(), Some("first"));
        } else {
            assert!(
                workload.utilization_targets.is_empty() && workload.vpa.is_none(),
                "{workload:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_is_forbidden_is_named_with_its_rule_and_the_rest_is_reported() {
    let cluster = cluster_of_each_kind();
    let unread = |survey: &Survey| {
        survey.unread.iter().map(|one| format!("{}: {}", one.what, one.why)).collect::<Vec<_>>()
    };
    // A kind of the cluster, and no list of namespaces to fall back to.
    let survey = cluster
        .clone()
        .forbidding(DEPLOYMENTS)
        .forbidding("/api/v1/namespaces")
        .forbidding("/api/v1/nodes")
        .survey(&SurveyScope::default())
        .await;
    assert_eq!(
        unread(&survey),
        [
            "deployments.apps of the cluster: forbidden (HTTP 403: /apis/apps/v1/deployments is forbidden): grant the \
          verb list on deployments.apps in a ClusterRole, or name namespaces with -n"
        ]
    );
    // The Deployment is known from the owner of its ReplicaSet, and its containers from its pods.
    let web = lines(&survey).into_iter().find(|line| line.starts_with("Deployment/web"));
    assert_eq!(web.as_deref(), Some("Deployment/web apps/v1 x2 [web-1-a web-1-b] main 200/64"));
    assert!(lines(&survey).iter().any(|line| line.starts_with("StatefulSet/db")));
    let nodes = survey.nodes_unread.expect("nodes are forbidden");
    assert!(nodes.why.contains("grant the verb list on nodes"), "{nodes:?}");

    // A kind in one of two namespaces, after the lists of the cluster.
    let namespace = |name: &str| json!({"metadata": {"name": name}});
    let survey = cluster
        .clone()
        .with("/api/v1/namespaces", namespace("shop"))
        .with("/api/v1/namespaces", namespace("db"))
        .forbidding(DEPLOYMENTS)
        .forbidding("/apis/apps/v1/namespaces/db/deployments")
        .survey(&SurveyScope::default())
        .await;
    assert_eq!(
        unread(&survey),
        [
            "deployments.apps in namespace db: forbidden (HTTP 403): grant the verb list on deployments.apps in \
             namespace db"
        ]
    );
    assert!(lines(&survey).contains(&"Deployment/stopped apps/v1 x0 [] main 100/64".to_owned()));

    // Named namespaces need no list of the cluster; wildcards need the list of namespaces.
    let scope = SurveyScope {
        namespaces: vec!["shop".to_owned(), "team-*".to_owned(), "ghost".to_owned()],
        ..SurveyScope::default()
    };
    let survey = cluster
        .forbidding("/api/v1/namespaces")
        .forbidding(DEPLOYMENTS)
        .forbidding(PODS)
        .survey(&scope)
        .await;
    assert_eq!(
        unread(&survey),
        [
            "namespace ghost: it does not exist: check -n",
            "namespaces that match team-*: forbidden (HTTP 403: /api/v1/namespaces is forbidden): grant the verb list on \
             namespaces, or name the namespaces",
        ]
    );
    assert_eq!(survey.workloads.len(), 16);
}

#[tokio::test]
async fn a_scope_selects_by_namespace_kind_and_label() {
    let cluster = cluster_of_each_kind();
    let of = |kinds: &[&str], labels: Option<&str>, excluded: &[&str]| SurveyScope {
        kinds: kinds.iter().map(|&kind| kind.to_owned()).collect(),
        label_selector: labels.map(str::to_owned),
        exclude_namespaces: excluded.iter().map(|&name| name.to_owned()).collect(),
        ..SurveyScope::default()
    };
    for (scope, expected) in [
        (of(&["statefulset"], None, &[]), &["StatefulSet/db"][..]),
        (of(&["CronJob"], None, &[]), &["CronJob/night"]),
        (of(&[], Some("app in (web,log)"), &[]), &["DaemonSet/log", "Deployment/web"]),
        (of(&["Rollout"], Some("app!=blue"), &[]), &["Rollout/canary"]),
        (of(&[], None, &["sh*"]), &[]),
    ] {
        let survey = cluster.survey(&scope).await;
        let found: Vec<_> =
            survey.workloads.iter().map(|one| format!("{}/{}", one.kind, one.name)).collect();
        assert_eq!(found, expected, "{scope:?}");
    }
    let invalid = cluster.survey(&of(&[], Some("a in b"), &[])).await;
    assert!(invalid.unread[0].why.starts_with("invalid label selector: "), "{invalid:?}");
}

#[tokio::test]
async fn a_cluster_takes_a_request_for_each_page_and_not_for_each_object() {
    let mut cluster = Cluster::default();
    let main = json!([container("main", "1", "1Gi")]);
    for index in 0..100 {
        let name = format!("r{index}");
        let owners = owner("argoproj.io/v1alpha1", "Rollout", &name);
        cluster = cluster.with(PODS, pod(&format!("{name}-0"), owners, main.clone()));
    }
    let survey = cluster.survey(&SurveyScope::default()).await;
    assert_eq!(survey.workloads.len(), 100);
    // 50 pages of two pods, and at most two requests for anything else.
    let requests = cluster.requests.load(Ordering::Relaxed);
    assert!(requests <= 50 + 2 * 13, "{requests} requests");
}

#[tokio::test]
async fn pages_of_large_objects_have_fewer_of_them() {
    let mut main = container("main", "1", "1Gi");
    main["env"] = json!([{"name": "TEXT", "value": "x".repeat(20 << 20)}]);
    let mut cluster = Cluster::default();
    for name in ["a", "b", "c"] {
        cluster = cluster.with(PODS, pod(name, json!([]), json!([main])));
    }
    let survey = cluster.survey(&SurveyScope::default()).await;
    assert_eq!((survey.workloads.len(), survey.unread.as_slice()), (3, &[][..]));
    main["env"][0]["value"] = json!("x".repeat(40 << 20));
    let cluster = Cluster::default().with(PODS, pod("a", json!([]), json!([main])));
    let unread = cluster.survey(&SurveyScope::default()).await.unread;
    assert!(unread[0].why.contains("larger than 32 MiB"), "{unread:?}");
}

/// The kinds of generated objects.
const KINDS: [(&str, &str); 6] = [
    ("apps/v1", "ReplicaSet"),
    ("batch/v1", "Job"),
    ("apps/v1", "Deployment"),
    ("example.com/v1", "Scalable"),
    ("example.com/v1", "Plain"),
    ("batch/v1", "CronJob"),
];

/// The kind and the number of an owner, which may not exist, or be the object itself.
fn an_owner() -> impl Strategy<Value = Option<(usize, usize)>> {
    proptest::option::of((0_usize..6, 0_usize..3))
}

proptest! {
    #[test]
    fn every_running_pod_belongs_to_one_workload(
        objects in proptest::collection::vec((0_usize..6, 0_usize..3, an_owner(), any::<bool>()), 0..12),
        pods in proptest::collection::vec((an_owner(), any::<bool>()), 0..12),
    ) {
        let reference = |at: Option<(usize, usize)>| at.map_or(json!([]), |(kind, name)| {
            owner(KINDS[kind].0, KINDS[kind].1, &format!("o{name}"))
        });
        let main = json!([container("main", "1", "1Gi")]);
        let mut builder = SurveyBuilder::new(SurveyScope::default());
        let mut running = BTreeSet::new();
        for (index, (of, is_finished)) in pods.iter().enumerate() {
            let name = format!("p{index}");
            let mut object = pod(&name, reference(*of), main.clone());
            if *is_finished {
                object["status"]["phase"] = json!("Failed");
            } else {
                running.insert(name);
            }
            builder.add_pod(&serde_json::from_str(&object.to_string()).expect("a pod"));
        }
        for (kind, name, of, has_template) in &objects {
            let spec = if *has_template { template(1, main.clone()) } else { json!({}) };
            let object = controller(&format!("o{name}"), reference(*of), spec);
            let object = serde_json::from_str(&object.to_string()).expect("a controller");
            builder.add_controller(KINDS[*kind].0, KINDS[*kind].1, &object);
        }
        builder.set_scalable("example.com/v1", "Scalable", true);
        builder.set_scalable("example.com/v1", "Plain", false);
        let survey = builder.build(&Selector::everything(), None);
        let mut found: Vec<String> =
            survey.workloads.iter().flat_map(|one| &one.pods).map(ToString::to_string).collect();
        found.sort_unstable();
        let expected: Vec<String> = running.into_iter().collect();
        prop_assert_eq!(found, expected);
        let keys: BTreeSet<_> = survey.workloads.iter().map(|one| (&one.kind, &one.name)).collect();
        prop_assert_eq!(keys.len(), survey.workloads.len());
        for workload in &survey.workloads {
            prop_assert!(!workload.containers.is_empty());
        }
    }
}
