//! Values read from `external.metrics.k8s.io` and `metrics.k8s.io`, and how each failure is reported.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Client, Config};
use plimsoll::cluster::{
    cache::selector::Selector,
    metric_sources::{
        external_metrics::fetch_external_metric, resource_metrics::fetch_resource_metric,
    },
};
use plimsoll_core::scaling::{MetricError, MetricValue};
use serde_json::{Value, json};

use super::loopback_server::{LoopbackServer, TestResponse};

const LIMIT: Duration = Duration::from_secs(20);

fn client(server: &LoopbackServer) -> Client {
    let mut config = Config::new(server.url("").parse().expect("valid address"));
    config.default_retry = false;
    Client::try_from(config).expect("valid client")
}

async fn serve(reply: TestResponse) -> LoopbackServer {
    LoopbackServer::start_plain(move |_| reply.clone()).await
}

async fn external(reply: TestResponse) -> Result<MetricValue, MetricError> {
    let server = serve(reply).await;
    fetch_external_metric(&client(&server), "shop", "requests", "app=web", LIMIT).await
}

fn series(values: &[Value]) -> TestResponse {
    let item = |(place, value): (usize, &Value)| {
        json!({
            "metricName": "requests", "metricLabels": {"app": "web"}, "value": value,
            "timestamp": format!("2026-11-23T12:00:0{place}Z"),
        })
    };
    let items: Vec<_> = values.iter().enumerate().map(item).collect();
    TestResponse::json(json!({"kind": "ExternalMetricValueList", "items": items}))
}

fn noon() -> Timestamp {
    "2026-11-23T12:00:00Z".parse().expect("valid timestamp")
}

#[tokio::test]
async fn all_series_are_summed_and_the_first_has_the_timestamp() {
    let values = [json!("150500m"), json!("0.0001"), json!(2)];
    let sum = external(series(&values)).await;
    assert_eq!(sum, Ok(MetricValue::Sum { sum: 152_501, at: Some(noon().into()) }));
    let most = [json!("9e18"), json!("9e18"), json!("1")];
    let sum = external(series(&most)).await;
    assert_eq!(
        sum,
        Ok(MetricValue::Sum { sum: i64::MAX, at: Some(noon().into()) }),
        "it stops there"
    );
    assert_eq!(
        external(series(&[json!("0")])).await,
        Ok(MetricValue::Sum { sum: 0, at: Some(noon().into()) }),
        "a measured zero counts"
    );
    let timeless = TestResponse::json(json!({"items": [{"value": "1", "timestamp": null}]}));
    assert_eq!(external(timeless).await, Ok(MetricValue::Sum { sum: 1000, at: None }));
}

#[tokio::test]
async fn metric_names_and_selectors_are_encoded_correctly() {
    let server = serve(series(&[json!("1")])).await;
    let selector = serde_json::from_value(json!({
        "matchLabels": {"zone": "b", "app": "web"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["y", "x"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }))
    .expect("valid selector");
    let selector = Selector::from_label_selector(Some(&selector)).expect("valid labels");
    let name = "datadogmetric@shop:a/b";
    fetch_external_metric(&client(&server), "shop", name, selector.as_str(), LIMIT)
        .await
        .expect("has a sum");
    let request = &server.requests()[0];
    let (path, query) = request.path.split_once('?').expect("has a query");
    assert_eq!(
        path,
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/datadogmetric%40shop%3Aa%2Fb"
    );
    let query: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    assert_eq!(query["labelSelector"], "app=web,!old,tier in (x,y),zone=b");
}

#[tokio::test]
async fn an_unavailable_external_metric_is_an_error_and_not_zero() {
    assert_eq!(external(series(&[])).await, Err(MetricError::Empty("external")));
    assert_eq!(
        external(TestResponse::json(r#"{"items":null}"#)).await,
        Err(MetricError::Empty("external"))
    );
    for text in ["NaN", "+Inf"] {
        let answer = external(series(&[json!("1"), json!(text)])).await;
        assert_eq!(answer, Err(MetricError::NotANumber), "{text}");
    }
    let status = |code| {
        let message =
            json!({"kind": "Status", "status": "Failure", "code": code, "message": "no\nway"});
        TestResponse::new(code, message)
    };
    for (reply, expected) in [
        (series(&[json!("1"), json!("many")]), "the value of requests: \"many\" is not a quantity"),
        (series(&[json!("1"), json!(null)]), "the value of requests is missing"),
        (
            TestResponse::json(r#"{"items":[{"value":"1","timestamp":"noon"}]}"#),
            "a value of requests: ",
        ),
        (TestResponse::json(r#"{"items":[{"value":"1"#), "unexpected end of response"),
        (TestResponse::json("<html>"), "not a JSON object"),
        (
            status(404),
            "HTTP 404: no way: is a metrics adapter for external.metrics.k8s.io installed",
        ),
        (status(403), "was rejected (HTTP 403: no way)"),
        (status(500), "was rejected (HTTP 500: no way)"),
    ] {
        let why = external(reply).await.expect_err(expected);
        assert_eq!(why.as_str(), "error", "{why}");
        let error = why.to_string();
        assert!(
            error.starts_with("unable to fetch metrics from external metrics API: "),
            "{error}"
        );
        assert!(error.contains(expected) && !error.contains('\n'), "{expected}: {error}");
    }
    let slow = serve(series(&[json!("1")]).after(LIMIT)).await;
    let limit = Duration::from_millis(200);
    let late = fetch_external_metric(&client(&slow), "shop", "requests", "", limit).await;
    assert!(late.expect_err("times out").to_string().contains("did not arrive within 200ms"));
}

fn pods() -> TestResponse {
    let pod = |name: &str, containers: Value| json!({"metadata": {"name": name}, "timestamp": "2026-11-23T12:00:00Z", "containers": containers});
    TestResponse::json(json!({"kind": "PodMetricsList", "items": [
        pod("a", json!([
            {"name": "main", "usage": {"cpu": "250123456n", "memory": "1Mi"}},
            {"name": "side", "usage": {"cpu": "1m", "memory": "1Ki"}},
        ])),
        pod("b", json!([{"name": "main", "usage": {"cpu": "0", "memory": "2Mi"}}])),
        pod("c", json!([{"name": "main", "usage": {"memory": "3Mi"}}])),
        pod("d", json!([])),
    ]}))
}

#[tokio::test]
async fn usage_is_read_per_pod_and_missing_values_are_reported() {
    let server = serve(pods()).await;
    let client = client(&server);
    let ask = async |resource: &str, container: Option<&str>| {
        let result =
            fetch_resource_metric(&client, "shop", resource, container, "app=web", LIMIT).await;
        let Ok(MetricValue::Usage { usage, is_cpu, .. }) = result else { panic!("{result:?}") };
        let usage: Vec<_> = usage.iter().map(|(pod, used)| (pod.to_string(), *used)).collect();
        (usage, is_cpu)
    };
    let of = |pods: &[(&str, i64)]| -> Vec<_> {
        pods.iter().map(|(pod, used)| ((*pod).to_owned(), *used)).collect()
    };
    assert_eq!(ask("cpu", None).await, (of(&[("a", 252), ("b", 0)]), true));
    assert_eq!(ask("cpu", Some("side")).await, (of(&[("a", 1)]), true));
    let mebibyte = 1_048_576_000;
    let memory = of(&[("a", mebibyte), ("b", 2 * mebibyte), ("c", 3 * mebibyte)]);
    assert_eq!(ask("memory", Some("main")).await, (memory, false));
    assert_eq!(ask("ephemeral-storage", None).await, (Vec::new(), false), "the value is unknown");
    assert_eq!(
        server.requests()[0].path,
        "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb"
    );
}

#[tokio::test]
async fn unavailable_usage_is_an_error_and_not_zero() {
    let usage = async |reply: TestResponse| {
        let server = serve(reply).await;
        fetch_resource_metric(&client(&server), "shop", "cpu", None, "", LIMIT).await
    };
    let empty = TestResponse::json(json!({"items": []}));
    assert_eq!(usage(empty).await, Err(MetricError::Empty("resource")));
    let usage_of = |amount: &str| {
        let containers = json!([{"name": "main", "usage": {"cpu": amount}}]);
        TestResponse::json(
            json!({"items": [{"metadata": {"name": "a"}, "containers": containers}]}),
        )
    };
    assert_eq!(usage(usage_of("NaN")).await, Err(MetricError::NotANumber));
    for (reply, expected) in [
        (usage_of("few"), "the value of cpu of container main of pod a: \"few\" is not a quantity"),
        (usage_of("-1"), "the value of cpu of container main of pod a is negative"),
        (
            TestResponse::json(json!({"items": [{"containers": []}]})),
            "the usage of a pod: missing field",
        ),
        (
            TestResponse::new(503, "away"),
            "HTTP 503: away: is a metrics adapter for metrics.k8s.io installed",
        ),
    ] {
        let error = usage(reply).await.expect_err(expected).to_string();
        assert!(
            error.starts_with("unable to fetch metrics from resource metrics API: "),
            "{error}"
        );
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[tokio::test]
async fn usage_of_a_pod_is_found_by_name() {
    let server = serve(pods()).await;
    let usage = fetch_resource_metric(&client(&server), "shop", "cpu", None, "", LIMIT).await;
    let Ok(MetricValue::Usage { usage, .. }) = usage else { panic!("{usage:?}") };
    assert_eq!(usage.get(&Arc::from("a")), Some(&252));
    assert!(!server.requests()[0].path.contains('?'), "an empty selector is left out");
}
