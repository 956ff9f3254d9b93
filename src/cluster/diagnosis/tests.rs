//! Reads clusters from an API server in memory.

mod fake_server;
mod large_cluster;

use std::sync::atomic::Ordering;

use plimsoll_core::{
    api::crds,
    diagnosis::facts::VpaFacts,
    rightsizing::survey::{Resource, Survey},
};
use serde_json::{Value, json};

use self::fake_server::FakeServer;
use super::{ListReader, api_server, live_pod, metrics, objects, roles, targets, webhooks};
use crate::cluster::{
    clock::Clock,
    survey::{SurveyScope, survey_cluster},
};

fn named(name: &str) -> Value {
    json!({"namespace": "shop", "name": name, "generation": 1})
}

fn pod_template() -> Value {
    let resources = json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
    json!({"spec": {"containers": [{"name": "main", "image": "web", "resources": resources}]}})
}

const VPAS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";
const HPAS: &str = "/apis/autoscaling/v2/horizontalpodautoscalers";

fn vpa(name: &str) -> Value {
    json!({
        "metadata": named(name),
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
        "status": {"recommendation": {"containerRecommendations": [
            {"containerName": "main", "target": {"cpu": "150m", "memory": "96Mi"}}]}},
    })
}

fn hpa(name: &str) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 70});
    json!({
        "metadata": named(name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    })
}

fn owned_by(kind: &str, name: &str, owner: &str) -> Value {
    let mut metadata = named(name);
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind, "name": owner,
        "uid": "1", "controller": true}]);
    metadata
}

#[tokio::test]
async fn lists_that_are_forbidden_or_have_invalid_objects_are_errors_with_the_reason() {
    let invalid = json!({"metadata": named("bad"), "spec": {"targetRef": 5}});
    let mut server = FakeServer::default();
    server.forbidden.push(HPAS);
    let server = server.with_list(VPAS, [vpa("web"), invalid]);
    let client = server.client();
    let reader = ListReader::new(&client, None);
    let error = objects::vpas(&reader).await.expect_err("one is invalid");
    let beginning = "verticalpodautoscalers.autoscaling.k8s.io shop/bad is invalid: ";
    assert!(error.starts_with(beginning), "{error}");
    let error = objects::hpas(&reader).await.expect_err("forbidden");
    let reason = "failed to list horizontalpodautoscalers.autoscaling: HTTP 403: no right to do so";
    assert_eq!(error, reason);
}

#[tokio::test]
async fn autoscalers_and_limits_are_read_as_the_checks_need_them() {
    let node = |name: &str, system: &str| {
        let info = json!({"kubeletVersion": "v1.34.1", "operatingSystem": system});
        json!({"metadata": {"name": name}, "status": {"nodeInfo": info}})
    };
    let range = json!({"type": "Container", "max": {"memory": "1Gi"}});
    let quota = |name: &str, scopes: Value| {
        json!({"metadata": named(name), "spec": {"scopes": scopes},
            "status": {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1"}}})
    };
    let server = FakeServer::default()
        .with_list(HPAS, [hpa("web")])
        .with_list("/api/v1/nodes", [node("a", "linux"), node("b", "windows")])
        .with_list(
            "/api/v1/limitranges",
            [json!({"metadata": named("all"), "spec": {"limits": [range]}})],
        )
        .with_list(
            "/api/v1/resourcequotas",
            [quota("all", Value::Null), quota("some", json!(["BestEffort"]))],
        )
        .with_list(
            "/apis/policy/v1/poddisruptionbudgets",
            [json!({"metadata": named("web"),
                "status": {"observedGeneration": 1, "expectedPods": 2, "desiredHealthy": 2}})],
        );
    let client = server.client();
    let reader = ListReader::new(&client, None);
    let hpas = objects::hpas(&reader).await.expect("readable");
    assert_eq!(hpas[0].utilization, [(Resource::Cpu, None)]);
    assert_eq!(hpas[0].scaler.key(), "shop/web");
    let nodes = objects::nodes(&reader).await.expect("readable");
    let nodes: Vec<_> = nodes.iter().map(|node| (&*node.name, node.is_linux)).collect();
    assert_eq!(nodes, [("a", true), ("b", false)]);
    assert_eq!(objects::limit_ranges(&reader).await.expect("readable")[0].items.len(), 1);
    let quotas = objects::quotas(&reader).await.expect("readable");
    assert_eq!(quotas.iter().map(|quota| &*quota.name).collect::<Vec<_>>(), ["all"]);
    let budgets = objects::budgets(&reader).await.expect("readable");
    assert!(budgets[0].is_observed && budgets[0].desired_healthy == 2);
}

#[tokio::test]
async fn the_api_server_tells_its_definitions_and_resources() {
    let crd = |index: usize| {
        let crd = crds().expect("valid").remove(index);
        serde_json::to_value(crd).expect("JSON")
    };
    let mut vpa = crd(1);
    vpa["spec"]["versions"][0]["served"] = json!(false);
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/";
    let server = FakeServer::default()
        .with(&format!("{path}verticalpodautoscalercheckpoints.autoscaling.k8s.io"), crd(0))
        .with(&format!("{path}verticalpodautoscalers.autoscaling.k8s.io"), vpa)
        .with(
            "/api/v1",
            json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "pods/resize", "singularName": "", "namespaced": true, "kind": "Pod", "verbs": ["patch"]}]}),
        );
    let client = server.client();
    let reader = ListReader::new(&client, None);
    assert_eq!(api_server::resize_served(&reader).await, Ok(true));
    let crds = api_server::served_crds(&reader).await;
    let [checkpoints, vpas, wpas] = &crds[..] else { panic!("{crds:?}") };
    let found = checkpoints.served.as_ref().expect("readable").as_ref().expect("it exists");
    assert!(found.has_version && found.missing_fields.is_empty(), "{found:?}");
    let found = vpas.served.as_ref().expect("readable").as_ref().expect("it exists");
    assert!(!found.has_version);
    assert!(wpas.is_optional && matches!(wpas.served, Ok(None)));
}

#[tokio::test]
async fn webhooks_are_read_with_their_order_and_endpoints() {
    let webhook = |name: &str, operation: &str, client_config: Value| {
        json!({"name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": client_config,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation],
                "resources": ["pods"]}]})
    };
    let service = json!({"service": {"namespace": "kube-system", "name": "vpa-webhook"}});
    let url = json!({"url": "https://injector"});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    let endpoint = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}});
    let server = FakeServer::default()
        .with_list(
            path,
            [
                json!({"metadata": {"name": "vpa-webhook-config"},
                    "webhooks": [webhook("vpa.k8s.io", "CREATE", service)]}),
                json!({"metadata": {"name": "z-injector"}, "webhooks": [webhook("z", "CREATE", url.clone())]}),
                json!({"metadata": {"name": "deletes"}, "webhooks": [webhook("d", "DELETE", url)]}),
            ],
        )
        .with(
            slices,
            json!({"items": [{"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [endpoint]}]}),
        );
    let client = server.client();
    let found = webhooks::webhooks(&ListReader::new(&client, None)).await.expect("readable");
    let [own, injector, deletes] = &found[..] else { panic!("{found:?}") };
    assert!(own.is_admission_controller && own.mutates_pods);
    assert_eq!(own.without_endpoints, Some(Ok("kube-system/vpa-webhook".to_owned())));
    assert_eq!(own.ca_expires, Err("it has no caBundle".to_owned()));
    assert!(!injector.is_admission_controller && injector.mutates_pods);
    assert!(!deletes.mutates_pods);
}

fn facts(namespace: &str, kind: &str, name: &str) -> VpaFacts {
    let target = json!({"targetRef": {"kind": kind, "name": name}});
    VpaFacts {
        namespace: namespace.into(),
        name: name.into(),
        spec: serde_json::from_value(target).expect("a spec"),
        targets: Vec::new(),
        target_exists: Ok(true),
    }
}

#[tokio::test]
async fn targets_that_are_no_workloads_are_requested_and_names_cannot_change_the_path() {
    let resources = json!([{"name": "deployments", "singularName": "", "namespaced": true,
        "kind": "Deployment", "verbs": []}]);
    let server = FakeServer::default()
        .with("/apis/apps/v1", json!({"groupVersion": "apps/v1", "resources": resources}))
        .with("/apis/apps/v1/namespaces/shop/deployments/empty", json!({}));
    let client = server.client();
    let mut vpas = vec![
        facts("shop", "Deployment", "empty"),
        facts("shop", "Deployment", "gone"),
        facts("shop", "Rollout", "web"),
        facts("shop", "Deployment", "../../../secrets/x"),
    ];
    let reader = ListReader::new(&client, None);
    targets::find_targets(&reader, &mut vpas, &Survey::default()).await;
    let exist: Vec<_> = vpas.iter().map(|vpa| vpa.target_exists.clone().ok()).collect();
    assert_eq!(exist, [Some(true), Some(false), Some(false), None]);
    // Two API versions and two targets.
    assert_eq!(server.requests.load(Ordering::Relaxed), 4);
    let mut many: Vec<_> =
        (0..60).map(|number| facts("shop", "Deployment", &format!("web-{number}"))).collect();
    targets::find_targets(&reader, &mut many, &Survey::default()).await;
    assert_eq!(many.iter().filter(|vpa| vpa.target_exists.is_err()).count(), 10);
}

#[tokio::test]
async fn running_pods_without_a_sample_are_named() {
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
    let condition = json!({"type": "Available", "status": "True"});
    let available = json!({"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": {
        "groupPriorityMinimum": 1, "versionPriority": 1}, "status": {"conditions": [condition]}});
    let at = |time: &str| json!({"namespace": "shop", "name": "x", "creationTimestamp": time});
    let pod = |name: &str, time: &str| {
        let mut metadata = at(time);
        metadata["name"] = json!(name);
        json!({"metadata": metadata})
    };
    let sample = json!({"metadata": named("a"), "timestamp": "2026-01-01T00:59:40Z", "window": "15s",
        "containers": [{"name": "main", "usage": {"cpu": "1m", "memory": "1Mi"}}]});
    let server = FakeServer::default()
        .with(service, available)
        .with("/apis/metrics.k8s.io/v1beta1/pods", json!({"items": [sample]}))
        .with_list(
            "/api/v1/pods",
            [
                pod("a", "2026-01-01T00:00:00Z"),
                pod("old", "2026-01-01T00:00:00Z"),
                pod("young", "2026-01-01T00:59:00Z"),
            ],
        );
    let client = server.client();
    let now: jiff::Timestamp = "2026-01-01T01:00:00Z".parse().expect("a time");
    let found = metrics::metrics_api(&ListReader::new(&client, None), now.into()).await;
    let found = found.expect("readable");
    assert_eq!(found.unavailable, None);
    let samples = found.samples.expect("readable");
    assert_eq!(samples.pods, 1);
    assert_eq!(samples.pods_without, Ok(vec!["shop/old".to_owned()]));
    let empty = FakeServer::default().client();
    let found = metrics::metrics_api(&ListReader::new(&empty, None), now.into()).await;
    let why = found.expect("readable").unavailable.expect("it is missing");
    assert_eq!(why, "there is no APIService v1beta1.metrics.k8s.io");
}

#[tokio::test]
async fn roles_are_known_by_their_labels_and_reviewed_as_their_accounts() {
    let pod = |name: &str, labels: Value| {
        json!({"metadata": {"namespace": "kube-system", "name": name, "labels": labels},
            "spec": {"serviceAccountName": "plimsoll-updater"}, "status": {"phase": "Running"}})
    };
    let ours =
        json!({"app.kubernetes.io/name": "plimsoll", "app.kubernetes.io/component": "updater"});
    let review = json!({"spec": {}, "status": {"allowed": true}});
    let mut server = FakeServer::default()
        .with_list(
            "/api/v1/pods",
            [pod("ours", ours), pod("theirs", json!({"app": "vpa-updater"}))],
        )
        .with("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review);
    let client = server.client();
    let (updaters, accounts) = roles::role_pods(&ListReader::new(&client, None)).await;
    let updaters = updaters.expect("readable");
    let updaters: Vec<_> = updaters.iter().map(|one| (&*one.pod, one.is_plimsoll)).collect();
    assert_eq!(updaters, [("kube-system/ours", true), ("kube-system/theirs", false)]);
    let rights = roles::rights(&client, accounts.clone()).await.expect("reviewed");
    assert!(rights.iter().all(|right| right.is_granted == Ok(true)));
    assert!(
        rights.iter().any(|right| right.permission == "create pods/eviction" && right.is_needed)
    );
    assert!(rights.iter().any(|right| right.permission == "list secrets" && !right.is_needed));
    server.forbidden = vec!["/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"];
    server.requests.store(0, Ordering::Relaxed);
    let rights = roles::rights(&server.client(), accounts).await.expect("asked");
    assert!(rights.iter().all(|right| right.is_granted.is_err()));
    assert_eq!(server.requests.load(Ordering::Relaxed), 1, "no further review can succeed");
}

#[tokio::test]
async fn a_live_pod_is_judged_by_the_annotation_of_the_webhook() {
    let deployment =
        json!({"metadata": named("web"), "spec": {"replicas": 1, "template": pod_template()}});
    let replica_set = json!({"metadata": owned_by("Deployment", "web-1", "web")});
    let pod = json!({"metadata": owned_by("ReplicaSet", "web-1-a", "web-1"),
        "spec": pod_template()["spec"], "status": {"phase": "Running"}});
    for (annotations, is_changed) in [(json!({"vpaUpdates": "x"}), true), (json!({}), false)] {
        let created = json!({"metadata": {"annotations": annotations}});
        let server = FakeServer::default()
            .with_list("/apis/apps/v1/deployments", [deployment.clone()])
            .with_list("/apis/apps/v1/replicasets", [replica_set.clone()])
            .with_list("/api/v1/pods", [pod.clone()])
            .with_list(VPAS, [vpa("web")])
            .with("/api/v1/namespaces/shop/pods/web-1-a", pod.clone())
            .with("/api/v1/namespaces/shop/pods", created);
        let client = server.client();
        let reader = ListReader::new(&client, None);
        let survey = survey_cluster(&client, &SurveyScope::default(), None).await;
        let vpas = objects::vpas(&reader).await;
        let live = live_pod::live_pod(&reader, &vpas, &survey).await.expect("it is created");
        assert_eq!((&*live.pod, live.is_changed), ("shop/web-1-a", is_changed));
        let none = live_pod::live_pod(&reader, &Ok(Vec::new()), &survey).await;
        assert!(none.expect_err("no VPA").starts_with("no VPA that changes new pods"));
    }
}

#[tokio::test]
async fn without_a_date_the_clock_of_the_server_is_not_known() {
    let client = FakeServer::default().client();
    let clock = Clock::fake(plimsoll_core::types::Time::from_secs(1_000));
    let time = api_server::api_time(&ListReader::new(&client, None), &clock, clock.now()).await;
    assert!(time.is_err());
}
