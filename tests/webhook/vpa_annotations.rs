//! Annotations of a VPA that determine how its pods are sized.

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
use plimsoll::cluster::server::webhook::{
    AdmissionDecision, AdmissionRequest, MinVersion, Reviewer, WebhookLimits,
};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::{
    cluster::{pod, recommended, start, wait_until_called, wait_until_created, wait_until_ready},
    fixture::{certificate_for, serve_reviewer},
};
use crate::{
    storage::checkpoint_objects::create_definitions,
    support::{Testbed, manifests},
};

/// Adds a sidecar to every pod that has none yet.
struct SidecarInjector;

#[async_trait]
impl Reviewer for SidecarInjector {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        let object = request.object.expect("valid pod");
        let pod: Value = serde_json::from_str(object).expect("JSON");
        let containers = pod["spec"]["containers"].as_array().expect("containers");
        if containers.iter().any(|container| container["name"] == "proxy") {
            return AdmissionDecision::allow("there");
        }
        let proxy = json!({
            "name": "proxy", "image": "example/proxy",
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        });
        let operation = json!({"op": "add", "path": "/spec/containers/-", "value": proxy});
        AdmissionDecision::patch(&[operation]).expect("JSON")
    }
}

/// Creates a workload without pods, and a VPA with recommendations for its container and for the sidecar.
async fn both(bed: &Testbed, namespace: &str) -> Deployment {
    let web = manifests::deployment("web", 0, "100m", "64Mi");
    recommended(bed, namespace, &web, "", &["main", "proxy"]).await
}

async fn annotate(bed: &Testbed, namespace: &str, key: &str, value: &str) {
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(bed.client(), namespace);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    vpas.patch("web", &PatchParams::default(), &patch).await.expect("annotated");
}

/// Returns the CPU request and limit of a container.
fn cpu_of(pod: &Pod, name: &str) -> (Option<String>, Option<String>) {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let container = containers.into_iter().find(|container| container.name == name);
    let resources = container.and_then(|container| container.resources.clone()).unwrap_or_default();
    let cpu = |list: Option<std::collections::BTreeMap<String, _>>| {
        list.and_then(|list| list.get("cpu").cloned())
            .map(|quantity: k8s_openapi::apimachinery::pkg::api::resource::Quantity| quantity.0)
    };
    (cpu(resources.requests), cpu(resources.limits))
}

#[tokio::test]
async fn a_limit_policy_annotation_overrides_the_flag_and_an_invalid_one_gives_a_warning() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = both(&bed, &namespace).await;
    let served = start(bed.client(), &["--limit-policy=requestsOnly"], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    let mut limited = pod(&web, "web-0");
    let limit = json!({"cpu": "300m"});
    let spec = limited.spec.as_mut().expect("valid spec");
    let resources = spec.containers[0].resources.as_mut().expect("resources");
    resources.limits = Some(serde_json::from_value(limit).expect("valid amounts"));
    let is = |request: &'static str, limit: &'static str| {
        move |pod: &Pod| cpu_of(pod, "main") == (Some(request.to_owned()), Some(limit.to_owned()))
    };
    wait_until_created(&bed, &namespace, &limited, "the flag holds", is("250m", "300m")).await;
    annotate(&bed, &namespace, "plimsoll.dev/limit-policy", "fixed:4").await;
    wait_until_created(&bed, &namespace, &limited, "the annotation holds", is("250m", "1")).await;

    let patch = json!({"metadata": {"annotations": {"plimsoll.dev/limit-policy": "double"}}});
    let warnings = warnings_of(&bed, &namespace, &patch).await;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("plimsoll.dev/limit-policy: `double` is not")
            && warning.contains("ignored"),
        "{warning}"
    );
    wait_until_created(&bed, &namespace, &limited, "the flag holds again", is("250m", "300m"))
        .await;
    served.running.stop().await;
}

/// Returns the API server's warnings when the VPA is patched like this.
async fn warnings_of(bed: &Testbed, namespace: &str, patch: &Value) -> Vec<String> {
    let vpas = format!("/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers");
    let request = http::Request::patch(format!("{vpas}/web"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(kube::client::Body::from(patch.to_string().into_bytes()))
        .expect("valid request");
    let answer = bed.client().send(request).await.expect("response");
    assert!(answer.status().is_success(), "{}", answer.status());
    let warnings = answer.headers().get_all(http::header::WARNING).iter();
    warnings.map(|text| text.to_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn creating_a_vpa_warns_about_an_hpa_on_the_same_resources() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = both(&bed, &namespace).await;
    let served = start(bed.client(), &[], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    let change = |number: u32| json!({"spec": {"updatePolicy": {"updateMode": "Recreate", "minReplicas": number}}});
    assert_eq!(warnings_of(&bed, &namespace, &change(3)).await, [""; 0]);
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
    // A warning has a short timeout: on a slow server there is none, so retry.
    let mut number = 4;
    let mut warnings = warnings_of(&bed, &namespace, &change(number)).await;
    while warnings.is_empty() && number < 10 {
        number += 1;
        warnings = warnings_of(&bed, &namespace, &change(number)).await;
    }
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("HorizontalPodAutoscaler") && warning.contains("web-scaler"),
        "{warning}"
    );
    let annotated = json!({"metadata": {"annotations": {"of": "somebody"}}});
    assert_eq!(warnings_of(&bed, &namespace, &annotated).await, [""; 0], "the spec is the same");
    served.running.stop().await;
}

#[tokio::test]
async fn a_sidecar_that_is_injected_later_is_sized_only_if_the_vpa_names_it() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    create_definitions(&bed).await;
    let namespace = bed.namespace("web").await;
    let web = both(&bed, &namespace).await;
    let served = start(bed.client(), &[], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    // Webhooks are called in the order of their configurations' names, so this one comes after Plimsoll's.
    let (pair, trusts) = certificate_for("127.0.0.1");
    let limits = WebhookLimits::default();
    let injector =
        serve_reviewer(&pair, limits, MinVersion::default(), Arc::new(SidecarInjector)).await;
    let registration: MutatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "zz-injector"},
        "webhooks": [{
            "name": "injector.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{}", injector.port),
                "caBundle": ByteString(trusts.to_pem()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{
                "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["pods"],
            }],
        }],
    }))
    .expect("valid configuration");
    let configurations = Api::<MutatingWebhookConfiguration>::all(bed.client());
    configurations.create(&PostParams::default(), &registration).await.expect("registered");

    let pod = pod(&web, "web-0");
    let has = |main: &'static str, proxy: &'static str| {
        move |pod: &Pod| {
            cpu_of(pod, "main").0.as_deref() == Some(main)
                && cpu_of(pod, "proxy").0.as_deref() == Some(proxy)
        }
    };
    let created = wait_until_created(
        &bed,
        &namespace,
        &pod,
        "the injector's is left alone",
        has("250m", "10m"),
    )
    .await;
    let observed = |pod: &Pod| pod.annotations().get("vpaObservedContainers").cloned();
    assert_eq!(observed(&created).as_deref(), Some("main"));
    annotate(&bed, &namespace, "plimsoll.dev/managed-sidecars", "proxy").await;
    let created =
        wait_until_created(&bed, &namespace, &pod, "it is sized too", has("250m", "250m")).await;
    assert_eq!(observed(&created).as_deref(), Some("main, proxy"));
    injector.stop().await;
    served.running.stop().await;
}
