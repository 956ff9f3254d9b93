//! Annotations of a VPA by which its author says how pods are sized.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration, apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler, core::v1::Pod,
    },
};
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use plimsoll::serve::webhook::{MinVersion, Request, Reviewer, Verdict, WebhookLimits};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::{
    cluster::{called, pod, ready, recommended, start, until_made},
    stage::{certificate_for, serve_reviewer},
};
use crate::{
    storage::objects::defined,
    support::{Bed, objects},
};

/// Puts a sidecar into every pod that has none yet.
struct Injects;

#[async_trait]
impl Reviewer for Injects {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &Request<'_>) -> Verdict {
        let object = request.object.expect("a pod");
        let pod: Value = serde_json::from_str(object).expect("JSON");
        let containers = pod["spec"]["containers"].as_array().expect("containers");
        if containers.iter().any(|container| container["name"] == "proxy") {
            return Verdict::allow("there");
        }
        let proxy = json!({
            "name": "proxy", "image": "example/proxy",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        });
        let operation = json!({"op": "add", "path": "/spec/containers/-", "value": proxy});
        Verdict::patch(&[operation]).expect("JSON")
    }
}

/// A workload without pods of its own, and a VPA with a recommendation for its container and for the sidecar.
async fn both(bed: &Bed, namespace: &str) -> Deployment {
    let web = objects::deployment("web", 0, "100m", "64Mi");
    recommended(bed, namespace, &web, "", &["main", "proxy"]).await
}

async fn annotate(bed: &Bed, namespace: &str, key: &str, value: &str) {
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    vpas.patch("web", &PatchParams::default(), &patch).await.expect("annotated");
}

/// CPU of a container, its request and its limit.
fn cpu_of(pod: &Pod, name: &str) -> (Option<String>, Option<String>) {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let container = containers.into_iter().find(|one| one.name == name);
    let resources = container.and_then(|one| one.resources.clone()).unwrap_or_default();
    let cpu = |list: Option<std::collections::BTreeMap<String, _>>| {
        list.and_then(|list| list.get("cpu").cloned())
            .map(|it: k8s_openapi::apimachinery::pkg::api::resource::Quantity| it.0)
    };
    (cpu(resources.requests), cpu(resources.limits))
}

#[tokio::test]
async fn a_limit_policy_on_a_vpa_goes_before_the_flag_and_nonsense_is_warned_of_and_ignored() {
    let Some(bed) = Bed::webhooks().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = both(&bed, &namespace).await;
    let served = start(bed.client(), &["--limit-policy=requestsOnly"], |_| {}).await;
    ready(&served).await;
    called(&bed, &namespace).await;
    let mut limited = pod(&web, "web-0");
    let limit = json!({"cpu": "300m"});
    let spec = limited.spec.as_mut().expect("a spec");
    let resources = spec.containers[0].resources.as_mut().expect("resources");
    resources.limits = Some(serde_json::from_value(limit).expect("amounts"));
    let is = |request: &'static str, limit: &'static str| {
        move |pod: &Pod| cpu_of(pod, "main") == (Some(request.to_owned()), Some(limit.to_owned()))
    };
    until_made(&bed, &namespace, &limited, "the flag holds", is("250m", "300m")).await;
    annotate(&bed, &namespace, "plimsoll.dev/limit-policy", "fixed:4").await;
    until_made(&bed, &namespace, &limited, "the annotation holds", is("250m", "1")).await;

    let patch = json!({"metadata": {"annotations": {"plimsoll.dev/limit-policy": "double"}}});
    let warnings = warnings_of(&bed, &namespace, &patch).await;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("plimsoll.dev/limit-policy: `double` is not")
            && warning.contains("ignored"),
        "{warning}"
    );
    until_made(&bed, &namespace, &limited, "the flag holds again", is("250m", "300m")).await;
    served.running.stop().await;
}

/// What the API server says beside its yes when the VPA is changed like this.
async fn warnings_of(bed: &Bed, namespace: &str, patch: &Value) -> Vec<String> {
    let vpas = format!("/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers");
    let request = http::Request::patch(format!("{vpas}/web"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(kube::client::Body::from(patch.to_string().into_bytes()))
        .expect("a request");
    let answer = bed.client().send(request).await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.status());
    let warnings = answer.headers().get_all(http::header::WARNING).iter();
    warnings.map(|text| text.to_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn whoever_writes_a_vpa_is_warned_of_an_hpa_that_goes_by_the_same_resources() {
    let Some(bed) = Bed::webhooks().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = both(&bed, &namespace).await;
    let served = start(bed.client(), &[], |_| {}).await;
    ready(&served).await;
    called(&bed, &namespace).await;
    let wish = |number: u32| json!({"spec": {"updatePolicy": {"updateMode": "Recreate", "minReplicas": number}}});
    assert_eq!(warnings_of(&bed, &namespace, &wish(3)).await, [""; 0]);
    let scaler = json!({
        "metadata": {"name": "web-scaler"},
        "spec": {
            "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": web.name_any()},
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
            }}],
        },
    });
    let scaler: HorizontalPodAutoscaler = serde_json::from_value(scaler).expect("an HPA");
    let scalers = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), &namespace);
    scalers.create(&PostParams::default(), &scaler).await.expect("created");
    // Nobody waits for long for a warning: where the server is slow there is none, until the next wish.
    let mut number = 4;
    let mut warnings = warnings_of(&bed, &namespace, &wish(number)).await;
    while warnings.is_empty() && number < 10 {
        number += 1;
        warnings = warnings_of(&bed, &namespace, &wish(number)).await;
    }
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("HorizontalPodAutoscaler") && warning.contains("web-scaler"),
        "{warning}"
    );
    let annotated = json!({"metadata": {"annotations": {"of": "somebody"}}});
    assert_eq!(warnings_of(&bed, &namespace, &annotated).await, [""; 0], "the wish is the same");
    served.running.stop().await;
}

#[tokio::test]
async fn a_sidecar_that_is_injected_later_is_sized_only_where_the_vpa_names_it() {
    let Some(bed) = Bed::webhooks().await.filter(Bed::is_complete) else { return };
    defined(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = both(&bed, &namespace).await;
    let served = start(bed.client(), &[], |_| {}).await;
    ready(&served).await;
    called(&bed, &namespace).await;
    // Webhooks are called in the order of the names of their registrations, so this one comes after ours.
    let (pair, trusts) = certificate_for("127.0.0.1");
    let limits = WebhookLimits::default();
    let injector = serve_reviewer(&pair, limits, MinVersion::default(), Arc::new(Injects)).await;
    let registration: MutatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "zz-injector"},
        "webhooks": [{
            "name": "injector.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{}", injector.port),
                "caBundle": ByteString(trusts.pem()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"],
            }],
        }],
    }))
    .expect("a registration");
    let configurations = Api::<MutatingWebhookConfiguration>::all(bed.client());
    configurations.create(&PostParams::default(), &registration).await.expect("registered");

    let one = pod(&web, "web-0");
    let has = |main: &'static str, proxy: &'static str| {
        move |pod: &Pod| {
            cpu_of(pod, "main").0.as_deref() == Some(main)
                && cpu_of(pod, "proxy").0.as_deref() == Some(proxy)
        }
    };
    let made =
        until_made(&bed, &namespace, &one, "the injector's is left alone", has("250m", "10m"))
            .await;
    let observed = |pod: &Pod| pod.annotations().get("vpaObservedContainers").cloned();
    assert_eq!(observed(&made).as_deref(), Some("main"));
    annotate(&bed, &namespace, "plimsoll.dev/managed-sidecars", "proxy").await;
    let made = until_made(&bed, &namespace, &one, "it is sized too", has("250m", "250m")).await;
    assert_eq!(observed(&made).as_deref(), Some("main, proxy"));
    injector.stop().await;
    served.running.stop().await;
}
