//! Recommenders over plain HTTP: the request, which redirects are followed, and the error for each failure.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use plimsoll::cluster::metric_sources::external_recommender::{
    RecommenderCallObserver, RecommenderClient, RequestLimits,
};
use plimsoll_core::{
    api::scale_target::TlsConfig,
    scaling::{MetricError, RecommendResponse},
};
use serde_json::{Value, json};

use super::loopback_server::{LoopbackServer, ReceivedRequest, TestResponse};
use crate::support::wait;

/// Counts requests as the metrics would.
#[derive(Debug, Default)]
pub struct CallCounts(Mutex<BTreeMap<String, usize>>);

impl CallCounts {
    fn add(&self, name: String) {
        *self.0.lock().expect("no panic").entry(name).or_default() += 1;
    }

    /// Returns all counts.
    pub fn all(&self) -> Vec<(String, usize)> {
        self.0.lock().expect("no panic").clone().into_iter().collect()
    }
}

impl RecommenderCallObserver for CallCounts {
    fn on_start(&self, client: &str) {
        self.add(format!("began {client}"));
    }

    fn on_end(&self, client: &str, method: &'static str, result: Result<u16, ()>, took: Duration) {
        assert!(took < Duration::from_mins(1));
        self.add(format!("ended {client} {method} {result:?}"));
    }
}

fn reply() -> Value {
    json!({
        "timestamp": "2026-11-23T00:00:00Z", "targetReplicas": 6, "lowerBoundReplicas": 4,
        "upperBoundReplicas": 6, "reason": "because", "observedTargets": [{"targetValue": 0.438}],
    })
}

fn advice() -> RecommendResponse {
    RecommendResponse {
        replicas: 6,
        lower_bound: 4,
        upper_bound: 6,
        observed_target: 0.438,
        reason: "because".to_owned(),
    }
}

async fn consult(url: &str) -> Result<RecommendResponse, MetricError> {
    consult_within(url, RequestLimits::default()).await
}

async fn consult_within(url: &str, pace: RequestLimits) -> Result<RecommendResponse, MetricError> {
    let body = json!({"state": {"currentReplicas": 3}});
    RecommenderClient::new("wpa-controller", Arc::new(()), pace)
        .recommend(url, None, &TlsConfig::default(), &body)
        .await
}

/// Vector H7.
#[tokio::test]
async fn requests_are_posted_as_json_with_upstreams_user_agent() {
    let server = LoopbackServer::start_plain(|_| TestResponse::json(reply())).await;
    assert_eq!(consult(&server.url("/autoscaling?key=a%2Fb")).await, Ok(advice()));
    let request = &server.requests()[0];
    assert_eq!((&*request.method, &*request.path), ("POST", "/autoscaling?key=a%2Fb"));
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("user-agent"), "wpa-controller");
    assert_eq!(request.header("host"), format!("127.0.0.1:{}", server.port));
    assert_eq!(request.header("authorization"), "");
    assert_eq!(request.body, r#"{"state":{"currentReplicas":3}}"#);
}

/// Vector H6 and related cases.
#[tokio::test]
async fn redirects_keep_or_drop_the_body_according_to_their_status() {
    for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")]
    {
        let server = LoopbackServer::start_plain(move |request| match &*request.path {
            "/a" => TestResponse::redirect(status, "/b/c"),
            "/b/c" => TestResponse::redirect(307, "../d"),
            _ => TestResponse::json(reply()),
        })
        .await;
        assert_eq!(consult(&server.url("/a")).await, Ok(advice()), "{status}");
        let requests = server.requests();
        let paths: Vec<_> = requests.iter().map(|request| &*request.path).collect();
        assert_eq!(paths, ["/a", "/b/c", "/d"], "{status}");
        for ReceivedRequest { method: redirected_method, body, headers, .. } in &requests[1..] {
            assert_eq!(redirected_method, method, "{status}");
            assert_eq!(body.is_empty(), method == "GET", "{status}");
            assert_eq!(headers.contains_key("content-type"), method == "POST", "{status}");
        }
    }
}

#[tokio::test]
async fn redirect_loops_and_other_schemes_are_rejected() {
    let circle = LoopbackServer::start_plain(|_| TestResponse::redirect(308, "/again")).await;
    let error = consult(&circle.url("/")).await.expect_err("redirects forever").to_string();
    assert_eq!(error, "error sending request: stopped after 10 redirects");
    assert_eq!(circle.requests().len(), 10);
    let file =
        LoopbackServer::start_plain(|_| TestResponse::redirect(302, "file:///etc/passwd")).await;
    let error = consult(&file.url("/")).await.expect_err("no file").to_string();
    assert_eq!(error, "only http and https schemes are supported");
    let nowhere = LoopbackServer::start_plain(|_| TestResponse::new(302, "no place")).await;
    let error = consult(&nowhere.url("/")).await.expect_err("no location").to_string();
    assert_eq!(error, "unexpected response code: 302 (no place)");
}

/// Vector H2.
#[tokio::test]
async fn an_invalid_address_gets_no_request() {
    for url in ["", "recommender", "ftp://any/a", "http://", "://", "unix:///run/a", "http:///a b"]
    {
        let error = consult(url).await.expect_err(url).to_string();
        let is_spoken = error.starts_with("error sending request: ") && url == "http:///a b";
        assert!(
            error == "only http and https schemes are supported" || is_spoken,
            "{url}: {error}"
        );
    }
}

/// Vector H12, and all other failures.
#[tokio::test]
async fn each_failure_is_reported_in_one_line() {
    let long = "x".repeat(5000);
    for (reply, expected) in [
        (TestResponse::new(503, "not\nyet"), "unexpected response code: 503 (not yet)".to_owned()),
        (
            TestResponse::new(201, reply()),
            format!("unexpected response code: 201 ({})", &reply().to_string()[..100]),
        ),
        (
            TestResponse::new(500, &long),
            format!("unexpected response code: 500 ({})", &long[..100]),
        ),
        (TestResponse::new(404, ""), "unexpected response code: 404 ()".to_owned()),
        (
            TestResponse::json(json!({"error": {"code": 7, "message": "no idea"}})),
            "error from recommender: 7 no idea".to_owned(),
        ),
        (
            TestResponse::json("x".repeat((1 << 20) + 1)),
            "error reading response: larger than 1 MiB".to_owned(),
        ),
    ] {
        let server = LoopbackServer::start_plain(move |_| reply.clone()).await;
        let why = consult(&server.url("/")).await.expect_err(&expected);
        assert_eq!((why.as_str(), why.to_string()), ("error", expected));
    }
    let server =
        LoopbackServer::start_plain(|_| TestResponse::json("{\"targetReplicas\": 6, \"news\": 1}"))
            .await;
    let error = consult(&server.url("/")).await.expect_err("unknown field").to_string();
    assert!(error.starts_with("error unmarshaling response: "), "{error}");
    let stopped = LoopbackServer::start_plain(|_| TestResponse::json("")).await;
    let url = format!("http://me:secret@127.0.0.1:{}/a?key=secret", stopped.port);
    let port = stopped.port;
    drop(stopped);
    wait::until("the port is closed", || async {
        tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err().then_some(())
    })
    .await;
    let error = consult(&url).await.expect_err("connection refused").to_string();
    assert!(error.starts_with("error sending request: http://127.0.0.1:"), "{error}");
    assert!(error.contains("refused") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn one_timeout_covers_all_redirects_and_the_body() {
    let pace = RequestLimits { timeout: Duration::from_millis(400), ..RequestLimits::default() };
    let slow =
        LoopbackServer::start_plain(|_| TestResponse::json("{}").after(Duration::from_mins(1)))
            .await;
    let error = consult_within(&slow.url("/"), pace).await.expect_err("times out").to_string();
    assert_eq!(error, "error sending request: no complete reply within 400ms");
    let winding = LoopbackServer::start_plain(|_| {
        TestResponse::redirect(307, "/on").after(Duration::from_millis(150))
    })
    .await;
    let error = consult_within(&winding.url("/"), pace).await.expect_err("times out").to_string();
    assert!(error.contains("within 400ms"), "{error}");
    assert!(winding.requests().len() < 5, "each one is fast, all together are not");
}

#[tokio::test]
async fn every_request_is_counted_by_method_and_status() {
    let server = LoopbackServer::start_plain(|request| match &*request.path {
        "/a" => TestResponse::redirect(303, "/b"),
        "/slow" => TestResponse::json("{}").after(Duration::from_mins(1)),
        _ => TestResponse::json(reply()),
    })
    .await;
    let counts = Arc::<CallCounts>::default();
    let pace = RequestLimits { timeout: Duration::from_secs(3), ..RequestLimits::default() };
    let recommenders = RecommenderClient::new("test", Arc::clone(&counts) as _, pace);
    let consult = async |path: &str| {
        let tls = TlsConfig::default();
        recommenders.recommend(&server.url(path), None, &tls, &json!({})).await
    };
    consult("/a").await.expect("response");
    consult("/b?key=secret").await.expect("response");
    consult("/slow").await.expect_err("times out");
    let client = |path: &str| server.url(path);
    let expected = [
        (format!("began {}", client("/a")), 2),
        (format!("began {}", client("/b")), 1),
        (format!("began {}", client("/slow")), 1),
        (format!("ended {} get Ok(200)", client("/a")), 1),
        (format!("ended {} post Ok(303)", client("/a")), 1),
        (format!("ended {} post Ok(200)", client("/b")), 1),
        (format!("ended {} post Err(())", client("/slow")), 1),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(counts.all(), expected);
}
