//! PromQL queries of autoscalers: fetched once per period for all users, summed, and unknown with a reason on failure.

use std::{sync::Arc, time::Duration};

use plimsoll::cluster::metric_sources::promql::{PromqlCache, TenantScope};
use plimsoll_core::scaling::{MetricError, MetricValue};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    transport::{HttpTransport, TransportConfig, WallClock},
};

use super::loopback_server::{LoopbackServer, TestResponse};
use crate::support::clock::wall_now;

const PERIOD: Duration = Duration::from_secs(15);
const NOW: Time = Time::from_secs(1_800_000_000);

fn limits() -> QueryLimits {
    QueryLimits { max_in_flight: 2, timeout: Duration::from_secs(20), ..QueryLimits::default() }
}

fn queries(server: &LoopbackServer, limits: QueryLimits) -> PromqlCache {
    let config = TransportConfig { address: server.url(""), ..TransportConfig::default() };
    let door =
        HttpTransport::new(config, WallClock::new(|| wall_now().into())).expect("valid address");
    PromqlCache::new(PrometheusClient::new(Arc::new(door), limits), PERIOD)
}

fn result(kind: &str, result: &str) -> TestResponse {
    let data = format!(r#"{{"resultType":"{kind}","result":{result}}}"#);
    TestResponse::json(format!(r#"{{"status":"success","data":{data}}}"#))
}

/// A response with one current sample per value.
fn vector(values: &[&str]) -> TestResponse {
    let series = |(place, value): (usize, &&str)| {
        format!(r#"{{"metric":{{"a":"{place}"}},"value":[1800000000,"{value}"]}}"#)
    };
    let series: Vec<_> = values.iter().enumerate().map(series).collect();
    result("vector", &format!("[{}]", series.join(",")))
}

async fn ask(reply: TestResponse) -> Result<MetricValue, MetricError> {
    let server = LoopbackServer::start_plain(move |_| reply.clone()).await;
    queries(&server, limits()).get("shop", "sum(up)", NOW, None).await
}

#[tokio::test]
async fn the_samples_of_a_response_are_summed() {
    for (reply, sum) in [
        (vector(&["42"]), 42_000),
        (vector(&["0.1", "0.2", "-0.0001"]), 300),
        (vector(&["0"]), 0),
        (vector(&["1e300", "1"]), i64::MAX),
        (result("scalar", r#"[1800000000,"1.5"]"#), 1500),
    ] {
        assert_eq!(ask(reply).await, Ok(MetricValue::Sum { sum, at: Some(NOW) }));
    }
}

#[tokio::test]
async fn a_response_without_a_number_is_an_error_and_not_zero() {
    assert_eq!(ask(vector(&[])).await, Err(MetricError::Empty("Prometheus")));
    for value in ["NaN", "+Inf", "-Inf"] {
        assert_eq!(ask(vector(&["1", value])).await, Err(MetricError::NotANumber), "{value}");
    }
    let scalar = result("scalar", r#"[1800000000,"NaN"]"#);
    assert_eq!(ask(scalar).await, Err(MetricError::NotANumber));
    let histogram = r#"[{"metric":{},"value":[1800000000,"1"]},
        {"metric":{"a":"b"},"histogram":[1800000000,{"count":"1","sum":"1","buckets":[]}]}]"#;
    assert_eq!(ask(result("vector", histogram)).await, Err(MetricError::NotANumber));
    let matrix = r#"[{"metric":{},"values":[[1799999990,"1"],[1800000000,"2"]]}]"#;
    let partial = TestResponse::json(
        r#"{"status":"success","isPartial":true,"data":{"resultType":"vector","result":[]}}"#,
    );
    let bad = r#"{"status":"error","errorType":"bad_data","error":"1:1: parse\nerror"}"#;
    for (reply, expected) in [
        (result("matrix", matrix), "the query returns a range instead of a number"),
        (result("string", r#"[1800000000,"x"]"#), "the query returns a string instead of a number"),
        (partial, "the response is partial"),
        (TestResponse::new(400, bad), "rejected the query: bad_data: 1:1: parse error"),
        (TestResponse::new(500, "oops"), "the server failed"),
        (TestResponse::new(401, ""), "401"),
        (TestResponse::json("<html>"), "not from Prometheus"),
    ] {
        let why = ask(reply).await.expect_err(expected);
        assert_eq!(why.as_str(), "error", "{why}");
        let message = why.to_string();
        assert!(message.starts_with("unable to query Prometheus: "), "{message}");
        assert!(message.contains(expected) && !message.contains('\n'), "{expected}: {message}");
    }
}

#[tokio::test]
async fn an_invalid_query_is_not_sent() {
    let server = LoopbackServer::start_plain(|_| vector(&["1"])).await;
    let message = queries(&server, limits())
        .get("shop", "sum(up", NOW, None)
        .await
        .expect_err("no query")
        .to_string();
    assert!(message.contains("unclosed parenthesis"), "{message}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn concurrent_identical_queries_are_sent_once_and_cached_for_a_period() {
    let server =
        LoopbackServer::start_plain(|_| vector(&["1"]).after(Duration::from_millis(100))).await;
    let queries = queries(&server, limits());
    let at = |seconds: u64| NOW.later(Duration::from_secs(seconds));
    let many = (0..50).map(|second| queries.get("shop", "up", at(second % 3), None));
    let answers = futures::future::join_all(many).await;
    assert!(answers.iter().all(|answer| answer == &answers[0]));
    assert_eq!(server.requests().len(), 1);
    queries.get("shop", "up", at(14), None).await.expect("cached");
    assert_eq!(server.requests().len(), 1, "it is of this period");
    queries.get("shop", "up", at(15), None).await.expect("queried again");
    assert_eq!(server.requests().len(), 2);
    assert!(server.requests()[1].body.contains("time=1800000015"), "{:?}", server.requests());
    queries.get("shop", "down", at(15), None).await.expect("a second one");
    assert_eq!(server.requests().len(), 3);
    queries.get("shop", "up", at(200), None).await.expect("queried again");
    queries
        .get("shop", "down", at(200), None)
        .await
        .expect("queried again after eviction from the cache");
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn each_user_of_a_query_gets_a_new_value_in_the_next_period_even_if_it_is_late() {
    let server = LoopbackServer::start_plain(|_| vector(&["1"])).await;
    let queries = queries(&server, limits());
    let mut last_fetch = None;
    for (turn, late) in [0, 300, 100, 7500, 0, 10_000, 50].into_iter().enumerate() {
        let at = NOW.later(PERIOD * turn as u32).later(Duration::from_millis(late));
        queries.get("shop", "up", at, last_fetch).await.expect("response");
        assert_eq!(server.requests().len(), turn + 1, "{late}");
        last_fetch = Some(at.later(Duration::from_millis(20)));
        // After a failure, a retry by one user does not repeat the queries of the others.
        queries
            .get("shop", "up", at.later(Duration::from_secs(1)), last_fetch)
            .await
            .expect("cached");
        assert_eq!(server.requests().len(), turn + 1, "{late}");
    }
}

#[tokio::test]
async fn users_spread_over_a_period_share_one_query_per_period() {
    let server = LoopbackServer::start_plain(|_| vector(&["1"])).await;
    let queries = queries(&server, limits());
    let mut last_fetch = [None; 30];
    for period in 0..4_u32 {
        for (place, last_fetch) in last_fetch.iter_mut().enumerate() {
            // Slightly late now and then.
            let late = Duration::from_millis((place as u64 * 7 + u64::from(period) * 29) % 40);
            let at = NOW.later(PERIOD * period).later(PERIOD * place as u32 / 30).later(late);
            queries.get("shop", "up", at, *last_fetch).await.expect("response");
            *last_fetch = Some(at.later(Duration::from_millis(5)));
        }
        assert_eq!(server.requests().len(), period as usize + 1);
    }
}

#[tokio::test]
async fn a_failure_is_cached_until_the_end_of_the_period() {
    let server = LoopbackServer::start_plain(|request| {
        if request.body.contains("time=1800000000") {
            TestResponse::new(500, "")
        } else {
            vector(&["1"])
        }
    })
    .await;
    let queries = queries(&server, limits());
    let later = NOW.later(Duration::from_secs(1));
    let first = queries.get("shop", "up", NOW, None).await.expect_err("must fail");
    assert_eq!(queries.get("shop", "up", later, None).await, Err(first));
    assert_eq!(server.requests().len(), 1, "a failure is cached");
    queries.get("shop", "up", NOW.later(PERIOD), None).await.expect("healthy again");
}

#[tokio::test]
async fn a_silent_server_blocks_for_one_query_timeout_only() {
    let server =
        LoopbackServer::start_plain(|_| vector(&["1"]).after(Duration::from_mins(1))).await;
    let limits = QueryLimits { timeout: Duration::from_millis(300), ..limits() };
    let queries = queries(&server, limits);
    let texts: Vec<_> = (0..20).map(|number| format!("up + {number}")).collect();
    let answers =
        futures::future::join_all(texts.iter().map(|text| queries.get("shop", text, NOW, None)))
            .await;
    assert!(
        answers.iter().all(|answer| matches!(answer, Err(MetricError::Failed(_)))),
        "{answers:?}"
    );
    assert!(server.requests().len() <= 4, "two at once, and none after those time out");
}

fn scope(unrestricted: &[&str]) -> TenantScope {
    let unrestricted = unrestricted.iter().map(|name| (*name).to_owned()).collect();
    TenantScope { label: "namespace".to_owned(), unrestricted }
}

/// Returns the decoded query of each request, once each.
fn texts(server: &LoopbackServer) -> Vec<String> {
    let query = |body: String| {
        form_urlencoded::parse(body.as_bytes())
            .find_map(|(key, value)| (key == "query").then(|| value.into_owned()))
    };
    server.requests().into_iter().filter_map(|request| query(request.body)).collect()
}

#[tokio::test]
async fn queries_of_a_namespace_read_only_its_own_series_unless_it_is_exempt() {
    let server = LoopbackServer::start_plain(|_| vector(&["1"])).await;
    let mut queries = queries(&server, limits());
    queries.scope = Some(scope(&["platform"]));
    for namespace in ["shop", "platform", "bank"] {
        queries.get(namespace, "sum(load)", NOW, None).await.expect("response");
    }
    let own = r#"sum(load{namespace="shop"})"#;
    assert_eq!(texts(&server), [own, "sum(load)", r#"sum(load{namespace="bank"})"#]);
    queries.get("shop", "sum(load)", NOW, None).await.expect("cached");
    assert_eq!(server.requests().len(), 3, "the answer is shared within a namespace only");
    let message = queries.get("shop", r#"load{namespace="bank"}"#, NOW, None).await;
    let message = message.expect_err("other namespaces are rejected").to_string();
    assert!(message.contains(r#"only series with namespace="shop" may be read"#), "{message}");
    assert_eq!(server.requests().len(), 3, "not sent");
    queries
        .get("platform", r#"load{namespace="bank"}"#, NOW, None)
        .await
        .expect("namespace is unrestricted");
    let mut all_namespaces = queries;
    all_namespaces.scope = Some(scope(&["*"]));
    all_namespaces
        .get("shop", r#"load{namespace="other"}"#, NOW, None)
        .await
        .expect("all namespaces are allowed");
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test]
async fn slow_queries_of_one_namespace_do_not_block_other_namespaces() {
    let server = LoopbackServer::start_plain(|request| {
        let is_slow = request.body.contains("slow");
        vector(&["1"]).after(if is_slow { Duration::from_mins(1) } else { Duration::ZERO })
    })
    .await;
    let limits = QueryLimits { max_in_flight: 4, timeout: Duration::from_mins(10), ..limits() };
    let queries = Arc::new(queries(&server, limits));
    let slow = (0..8).map(|number| {
        let queries = Arc::clone(&queries);
        let query = format!("slow + {number}");
        tokio::spawn(async move { queries.get("shop", &query, NOW, None).await })
    });
    let slow: Vec<_> = slow.collect();
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    queries.get("bank", "up", NOW, None).await.expect("fits");
    assert_eq!(texts(&server).iter().filter(|text| text.contains("slow")).count(), 1);
    slow.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn the_age_of_a_selector_is_that_of_its_oldest_sample() {
    let server = LoopbackServer::start_plain(|request| {
        if request.body.contains("timestamp") {
            vector(&["1799999990", "1799999970.5"])
        } else {
            vector(&["1", "2"])
        }
    })
    .await;
    let mut aged = queries(&server, limits());
    aged.include_sample_age = true;
    let oldest = Time::from_nanos(1_799_999_970_500_000_000);
    let sum = |at| Ok(MetricValue::Sum { sum: 3000, at: Some(at) });
    assert_eq!(aged.get("shop", "up # all", NOW, None).await, sum(oldest));
    assert_eq!(aged.get("shop", "sum(up)", NOW, None).await, sum(NOW), "computed from now on");
    assert_eq!(
        queries(&server, limits()).get("shop", "up", NOW, None).await,
        sum(NOW),
        "not requested"
    );
}
