//! VerticalPodAutoscalers and LimitRanges: a survey uses them, and is complete without them.

use super::*;

#[tokio::test]
async fn vpas_and_limit_ranges_are_not_needed() {
    const VPAS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";
    let cluster = cluster_of_each_kind().forbidding("/api/v1/namespaces");
    let served = cluster.survey(&SurveyScope::default()).await;
    assert_eq!((served.unread, served.remarks), (vec![], vec![]), "no VPA is installed");
    let cluster = cluster.forbidding(VPAS).forbidding("/api/v1/limitranges");
    let forbidden = cluster.survey(&SurveyScope::default()).await;
    assert_eq!(forbidden.remarks.len(), 1, "what is not served is forbidden too: {forbidden:?}");
    let cluster = cluster.serving("autoscaling.k8s.io/v1", json!([]));
    let forbidden = cluster.survey(&SurveyScope::default()).await;
    assert_eq!(forbidden.unread, []);
    let [ranges, vpas] = &forbidden.remarks[..] else { panic!("{:?}", forbidden.remarks) };
    let start = "could not read limitranges of the cluster, whose defaults are not counted as requests: forbidden ";
    assert!(ranges.starts_with(start), "{ranges}");
    let start = "could not read verticalpodautoscalers.autoscaling.k8s.io of the cluster, which are not named: ";
    assert!(vpas.starts_with(start), "{vpas}");
    assert!(vpas.contains("grant the verb list on"), "{vpas}");
    let named = SurveyScope { namespaces: vec!["shop".to_owned()], ..SurveyScope::default() };
    let survey = cluster_of_each_kind()
        .serving("autoscaling.k8s.io/v1", json!([]))
        .with("/api/v1/namespaces", json!({"metadata": {"name": "shop"}}))
        .forbidding("/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers")
        .survey(&named)
        .await;
    assert_eq!((survey.unread.len(), survey.remarks.len()), (0, 1), "{:?}", survey.remarks);
}

#[tokio::test]
async fn containers_without_requests_have_the_defaults_of_a_limit_range() {
    const RANGES: &str = "/api/v1/limitranges";
    let range = |namespace: &str, name: &str, kind: &str, request: Value, limit: Value| {
        json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"limits": [
            {"type": kind, "defaultRequest": request, "default": limit, "max": {"cpu": "8"}}]}})
    };
    let (cpu, both) = (json!({"cpu": "100m"}), json!({"cpu": "1", "memory": "1Gi"}));
    let named = |name: &str, resources: Value| json!({"name": name, "resources": resources});
    let containers = json!([
        named("none", json!({})),
        named("request", json!({"requests": {"cpu": "200m"}})),
        named("limit", json!({"limits": {"cpu": "3", "memory": "512Mi"}})),
        named(
            "all",
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}})
        ),
    ]);
    let survey = Cluster::default()
        .with(DEPLOYMENTS, controller("web", json!([]), template(1, containers)))
        .with(RANGES, range("shop", "b", "Container", both.clone(), both.clone()))
        .with(RANGES, range("shop", "a", "Container", cpu, json!({})))
        .with(RANGES, range("shop", "0", "Pod", both.clone(), both.clone()))
        .with(RANGES, range("other", "0", "Container", both.clone(), both))
        .survey(&SurveyScope::default())
        .await;
    assert_eq!((survey.unread.len(), survey.remarks.len()), (0, 0), "{survey:?}");
    let [web] = &survey.workloads[..] else { panic!("{survey:?}") };
    let text = |of: Amounts| {
        format!("{}/{}", of.cpu.map_or(-1, |cpu| cpu.0), of.memory.map_or(-1, |it| it.0 >> 20))
    };
    let found: Vec<_> = web
        .containers
        .iter()
        .map(|one| (&*one.name, text(one.requests), text(one.limits), one.limit_range.as_deref()))
        .collect();
    let row = |name, requests: &str, limits: &str, range| {
        (name, requests.to_owned(), limits.to_owned(), range)
    };
    assert_eq!(
        found,
        [
            row("none", "100/1024", "1000/1024", Some("a")),
            row("request", "200/1024", "1000/1024", Some("b")),
            row("limit", "-1/-1", "3000/512", None),
            row("all", "1000/1024", "2000/2048", None),
        ]
    );
}
