//! What pods run with, besides what their template asks for.

use plimsoll_core::rightsizing::survey::{AutoscalerRef, RunningAmounts};

use super::*;

/// A pod of the Deployment `web`, whose ReplicaSet is `web-1`.
fn pod_of_web(name: &str, created: u32, containers: Value) -> Value {
    let mut pod = pod(name, owner("apps/v1", "ReplicaSet", "web-1"), containers);
    pod["metadata"]["creationTimestamp"] = json!(format!("2026-11-02T00:00:{created:02}Z"));
    pod
}

async fn survey_of_web(containers: Value, pods: Vec<Value>) -> Survey {
    let deployment = owner("apps/v1", "Deployment", "web");
    let cluster = Cluster::default()
        .with(DEPLOYMENTS, controller("web", json!([]), template(2, containers)))
        .with(REPLICA_SETS, controller("web-1", deployment, json!({})));
    let cluster = pods.into_iter().fold(cluster, |cluster, pod| cluster.with(PODS, pod));
    cluster.survey(&SurveyScope::default()).await
}

fn milli_cpu(running: Option<&RunningAmounts>) -> Option<i64> {
    running.and_then(|running| running.requests.cpu).map(|cpu| cpu.0)
}

#[tokio::test]
async fn the_largest_request_of_pods_is_known_if_it_is_not_that_of_the_template() {
    let resized = |name: &str, created, status: Value| {
        let mut pod = pod_of_web(name, created, json!([container("main", "320m", "64Mi")]));
        pod["status"]["containerStatuses"] = json!([{"name": "main", "resources": status}]);
        pod
    };
    let plain = |name: &str, created, cpu: &str| {
        pod_of_web(name, created, json!([container("main", cpu, "64Mi")]))
    };
    let requests = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "64Mi"}});
    for (name, pods, expected) in [
        ("as the template", vec![plain("a", 1, "500m")], None),
        ("sized by a VPA", vec![plain("a", 1, "320m")], Some(320)),
        ("two sizes", vec![plain("a", 1, "400m"), plain("b", 2, "320m")], Some(400)),
        ("a smaller one later", vec![plain("b", 2, "320m"), plain("a", 1, "400m")], Some(400)),
        (
            "less than it asks for",
            vec![resized("a", 1, json!({"requests": {"cpu": "200m", "memory": "64Mi"}}))],
            Some(200),
        ),
        (
            "less than it asks for, and another pod",
            vec![
                resized("a", 2, json!({"requests": {"cpu": "200m", "memory": "64Mi"}})),
                plain("b", 1, "250m"),
            ],
            Some(250),
        ),
        (
            "three pods",
            vec![plain("a", 1, "400m"), plain("b", 2, "320m"), plain("c", 3, "500m")],
            None,
        ),
        ("a resize that waits", vec![resized("a", 1, requests("500m"))], None),
        ("a resize that is done", vec![resized("a", 1, requests("320m"))], Some(320)),
        ("rounded CPU shares", vec![resized("a", 1, requests("319m"))], Some(320)),
        ("not started", vec![resized("a", 1, json!(null))], Some(320)),
        ("no pods", vec![], None),
    ] {
        let survey = survey_of_web(json!([container("main", "500m", "64Mi")]), pods).await;
        let main = &survey.workloads[0].containers[0];
        assert_eq!(main.requests.cpu, Some(MilliCpu(500)), "{name}");
        assert_eq!(milli_cpu(main.running.as_deref()), expected, "{name}");
    }
}

#[tokio::test]
async fn during_a_rollout_the_pods_of_the_newest_replica_set_count() {
    let deployment = || owner("apps/v1", "Deployment", "web");
    let pod_of = |set: &str, name: &str, created, cpu: &str| {
        let mut pod = pod_of_web(name, created, json!([container("main", cpu, "64Mi")]));
        pod["metadata"]["ownerReferences"] = owner("apps/v1", "ReplicaSet", set);
        pod
    };
    // The ReplicaSet that is listed last may be either.
    for (old, new) in [("web-1", "web-2"), ("web-2", "web-1")] {
        let spec = template(3, json!([container("main", "500m", "64Mi")]));
        let survey = Cluster::default()
            .with(DEPLOYMENTS, controller("web", json!([]), spec))
            .with(REPLICA_SETS, controller("web-1", deployment(), json!({})))
            .with(REPLICA_SETS, controller("web-2", deployment(), json!({})))
            .with(PODS, pod_of(old, "a", 1, "900m"))
            .with(PODS, pod_of(new, "b", 2, "400m"))
            .with(PODS, pod_of(new, "c", 3, "320m"))
            .survey(&SurveyScope::default())
            .await;
        let [web] = &survey.workloads[..] else { panic!("{survey:?}") };
        assert_eq!(web.pods.len(), 3);
        assert_eq!(milli_cpu(web.containers[0].running.as_deref()), Some(400));
    }
}

#[tokio::test]
async fn a_limit_without_a_request_is_the_request_of_pods_too() {
    let limited = json!([{"name": "main", "resources": {"limits": {"cpu": "1"}}}]);
    let both =
        json!([{"name": "main", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}]);
    let survey = survey_of_web(limited, vec![pod_of_web("a", 1, both)]).await;
    assert_eq!(survey.workloads[0].containers[0].running, None);
}

#[tokio::test]
async fn containers_that_are_only_in_pods_are_injected() {
    let mut of_pod = pod_of_web(
        "a",
        1,
        json!([container("main", "500m", "64Mi"), container("istio-proxy", "100m", "128Mi")]),
    );
    of_pod["spec"]["initContainers"] = json!([container("istio-init", "10m", "10Mi")]);
    let survey = survey_of_web(json!([container("main", "500m", "64Mi")]), vec![of_pod]).await;
    let [web] = &survey.workloads[..] else { panic!("{survey:?}") };
    let injected: Vec<_> = web.injected.iter().map(|one| (&*one.name, one.role)).collect();
    let expected = [("istio-init", ContainerRole::Init), ("istio-proxy", ContainerRole::Main)];
    assert_eq!(injected, expected);
    assert_eq!(web.all_containers().count(), 3);
}

#[tokio::test]
async fn all_autoscalers_of_a_workload_are_named() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let metrics = json!([{"type": "External", "external": {"metric": {"name": "queue"}}}]);
    let hpa = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "metrics": metrics}});
    let metrics =
        json!([{"type": "Resource", "resource": {"name": "cpu", "highWatermark": "400m"}}]);
    let wpa = json!({"metadata": {"name": "by-cpu", "namespace": "shop"},
        "spec": {"scaleTargetRef": target, "metrics": metrics}});
    let survey = cluster_of_each_kind()
        .with("/apis/autoscaling/v2/horizontalpodautoscalers", hpa)
        .with("/apis/datadoghq.com/v1alpha1/watermarkpodautoscalers", wpa)
        .survey(&SurveyScope::default())
        .await;
    let autoscaler =
        |kind: &str, name: &str| AutoscalerRef { kind: kind.into(), name: name.into() };
    for workload in &survey.workloads {
        let expected = if &*workload.name == "web" {
            vec![
                autoscaler("HorizontalPodAutoscaler", "web"),
                autoscaler("WatermarkPodAutoscaler", "by-cpu"),
            ]
        } else {
            Vec::new()
        };
        assert_eq!(workload.scaled_by, expected);
        assert_eq!(workload.utilization_targets, [], "no target is relative to requests");
    }
}
