//! HorizontalPodAutoscalers that are written while the webhook is running.

use http::header::{CONTENT_TYPE, WARNING};
use kube::client::Body;
use serde_json::{Value, json};

use super::cluster::{start, wait_until_called, wait_until_ready};
use crate::support::{Testbed, wait};

/// Creates an object, and returns the API server's status code and warnings.
async fn create(
    bed: &Testbed,
    namespace: &str,
    version: &str,
    object: &Value,
) -> (u16, Vec<String>) {
    let path =
        format!("/apis/autoscaling/{version}/namespaces/{namespace}/horizontalpodautoscalers");
    let request = http::Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(object.to_string().into_bytes()))
        .expect("valid request");
    let answer = bed.client().send(request).await.expect("response");
    let warnings = answer.headers().get_all(WARNING).iter();
    let warnings = warnings.map(|text| text.to_str().unwrap_or_default().to_owned()).collect();
    (answer.status().as_u16(), warnings)
}

fn object(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1, "maxReplicas": 3,
        },
    })
}

#[tokio::test]
async fn an_hpa_with_an_annotation_that_has_no_effect_is_accepted_with_a_warning() {
    let Some(bed) = Testbed::exclusive_for_webhooks().await.filter(Testbed::has_controllers) else {
        return;
    };
    let namespace = bed.namespace("hpa").await;
    let served = start(bed.client(), &[], |_| {}).await;
    wait_until_ready(&served).await;
    wait_until_called(&bed, &namespace).await;
    let drive = json!({"plimsoll.dev/hpa": "drive"});
    let mut names = 0..;
    let warnings = wait::until("the webhook is called for them too", || {
        let name = format!("web-{}", names.next().unwrap_or_default());
        let (bed, namespace, object) = (&bed, &namespace, object(&name, &drive));
        async move {
            let (code, warnings) = create(bed, namespace, "v2", &object).await;
            assert_eq!(code, 201);
            (!warnings.is_empty()).then_some(warnings)
        }
    })
    .await;
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(
        warning.contains("scaleUp and scaleDown in spec.behavior is not Disabled"),
        "{warning}"
    );
    // Other versions are converted.
    let (code, warnings) = create(&bed, &namespace, "v1", &object("old", &drive)).await;
    assert_eq!((code, warnings.len()), (201, 1), "{warnings:?}");
    let (code, warnings) = create(&bed, &namespace, "v2", &object("fine", &json!({}))).await;
    assert_eq!((code, warnings.len()), (201, 0), "{warnings:?}");
    served.running.stop().await;
}
