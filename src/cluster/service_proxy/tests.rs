//! Requests to an API server in memory, and what becomes of its responses.

use std::{future::ready, io::Write as _, sync::Arc, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::Response;
use hyper::body::Frame;
use parking_lot::Mutex;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    promql::Query,
    query_error::QueryError,
    selector::Selector,
};
use proptest::prelude::*;
use serde_json::json;
use tower::service_fn;

use super::{
    Body, Client, HeaderMap, HeaderValue, Request, ServiceAddress, ServiceProxy, Transport as _,
    TransportErrorKind,
};

const OK: &str = r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"42"]}]}}"#;

/// The requests that an API server received.
type Requests = Arc<Mutex<Vec<Request<()>>>>;

/// A response: status, headers, body.
type Canned = (u16, Vec<(&'static str, &'static str)>, Vec<u8>);

/// A client of an API server that gives this response to every request.
fn api_server((status, headers, body): Canned) -> (Client, Requests) {
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Body>| {
        log.lock().push(request.map(|_| ()));
        let response = Response::builder().status(status);
        let response =
            headers.iter().fold(response, |response, (name, value)| response.header(*name, *value));
        ready(response.body(Body::from(body.clone())))
    });
    (Client::new(service, "default"), requests)
}

fn json_body(body: &str) -> Canned {
    (200, vec![("content-type", "application/json")], body.into())
}

/// An error object of the API server.
fn api_error(code: u16, reason: &str, message: &str) -> Canned {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, vec![("content-type", "application/json")], status.to_string().into())
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

fn address() -> ServiceAddress {
    "m/https:prometheus:9090/prom".parse().expect("an address")
}

fn prometheus(client: Client) -> PrometheusClient {
    let limits =
        QueryLimits { max_attempts: 1, timeout: Duration::from_secs(5), ..QueryLimits::default() };
    PrometheusClient::new(Arc::new(ServiceProxy::new(client, address())), limits)
}

/// The result of a query that gets this response.
async fn count(response: Canned) -> Result<u64, QueryError> {
    let query = Query::from(Selector::metric("up"));
    prometheus(api_server(response).0).count(&query, Time::from_secs(1)).await
}

#[tokio::test]
async fn a_query_is_a_get_request_for_the_service() {
    let (client, requests) = api_server(json_body(OK));
    let mut headers = HeaderMap::new();
    headers.insert("x-scope-orgid", HeaderValue::from_static("team"));
    let proxy = ServiceProxy::new(client, address()).with_headers(headers);
    let limits = QueryLimits { timeout: Duration::from_secs(5), ..QueryLimits::default() };
    let client = PrometheusClient::new(Arc::new(proxy), limits);
    let query = Query::from(Selector::metric("up").equals("job", "a+b&c;d %é#"));
    assert_eq!(client.count(&query, Time::from_secs(1)).await, Ok(42));
    let requests = requests.lock();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.method(), http::Method::GET);
    assert_eq!(
        request.uri().path(),
        "/api/v1/namespaces/m/services/https:prometheus:9090/proxy/prom/api/v1/query"
    );
    let raw = request.uri().query().expect("a query");
    assert!(!raw.contains('+') && !raw.contains(';'), "{raw}");
    let form: Vec<_> = form_urlencoded::parse(raw.as_bytes()).into_owned().collect();
    let form: Vec<_> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(form, [("query", r#"up{job="a+b&c;d %é#"}"#), ("time", "1"), ("timeout", "5")]);
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    assert_eq!(header("accept-encoding"), Some("gzip"));
    assert_eq!(header("accept"), Some("application/json"));
    assert_eq!(header("x-scope-orgid"), Some("team"));
}

proptest! {
    #[test]
    fn every_form_arrives_as_it_was_sent(
        form in prop::collection::vec((".{0,12}", ".{0,40}"), 0..4)
    ) {
        let (client, _) = runtime().block_on(async { api_server(json_body(OK)) });
        let proxy = ServiceProxy::new(client, address());
        let sent: Vec<(&str, String)> =
            form.iter().map(|(name, value)| (&**name, value.clone())).collect();
        let request = proxy.request("/api/v1/query", &sent).expect("a short one");
        let raw = request.uri().query().unwrap_or_default().as_bytes();
        let received: Vec<_> = form_urlencoded::parse(raw).into_owned().collect();
        prop_assert_eq!(received, form);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

#[tokio::test]
async fn compressed_responses_are_decompressed() {
    for body in
        [gzip(OK.as_bytes()), [gzip(&OK.as_bytes()[..20]), gzip(&OK.as_bytes()[20..])].concat()]
    {
        let headers = vec![("content-type", "application/json"), ("content-encoding", "gzip")];
        assert_eq!(count((200, headers, body)).await, Ok(42));
    }
    // An error of the server behind the proxy is compressed too.
    let error = br#"{"status":"error","errorType":"bad_data","error":"1:1: parse error"}"#;
    let headers = vec![("content-type", "application/json"), ("content-encoding", "gzip")];
    let result = count((400, headers, gzip(error))).await;
    assert_eq!(result, Err(QueryError::BadQuery("bad_data: 1:1: parse error".to_owned())));
}

#[tokio::test]
async fn a_truncated_response_is_no_result() {
    let json = vec![("content-type", "application/json")];
    let compressed = vec![("content-type", "application/json"), ("content-encoding", "gzip")];
    let whole = gzip(OK.as_bytes());
    for (headers, body) in [
        (json, OK.as_bytes()[..OK.len() / 2].to_vec()),
        (compressed.clone(), whole[..whole.len() / 2].to_vec()),
        (compressed, whole[..whole.len() - 8].to_vec()),
    ] {
        let result = count((200, headers, body)).await;
        assert!(matches!(result, Err(QueryError::Unavailable(_))), "{result:?}");
    }
}

#[tokio::test]
async fn a_response_has_size_limits_after_decompression() {
    let series = r#"{"metric":{"pod":"web-0"},"value":[1,"1"]},"#;
    let start = r#"{"status":"success","data":{"resultType":"vector","result":["#;
    let body = format!("{start}{}", series.repeat(100_000));
    let headers = vec![("content-type", "application/json"), ("content-encoding", "gzip")];
    let (client, _) = api_server((200, headers, gzip(body.as_bytes())));
    let limits = QueryLimits { max_response_bytes: Some(1 << 20), ..QueryLimits::default() };
    let client = PrometheusClient::new(Arc::new(ServiceProxy::new(client, address())), limits);
    let query = Query::from(Selector::metric("up"));
    let result = client.count(&query, Time::from_secs(1)).await;
    assert!(matches!(result, Err(QueryError::TooLarge(_))), "{result:?}");
}

/// Checks that a query fails for this reason, with a single line that contains these words.
async fn assert_fails(response: Canned, reason: &str, words: &[&str]) {
    let error = count(response.clone()).await.expect_err("it fails");
    assert_eq!(error.reason(), reason, "{response:?}: {error}");
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    for word in words {
        assert!(line.contains(word), "{word:?} is missing: {line}");
    }
}

#[tokio::test]
async fn errors_of_the_api_server_name_the_cause_and_the_remedy() {
    let port_forward = "run `kubectl port-forward -n m service/prometheus 9090:9090` and pass \
                        --prometheus-address=https://127.0.0.1:9090/prom";
    let rbac = "services \"https:prometheus:9090\" is forbidden: User \"amy\" cannot get resource \"services/proxy\" \
                in API group \"\" in the namespace \"m\"";
    assert_fails(
        api_error(403, "Forbidden", rbac),
        "refused",
        &["User \"amy\"", "grant `get` on `services/proxy` in the namespace m", port_forward],
    )
    .await;
    let impersonate =
        "users \"bob\" is forbidden: User \"amy\" cannot impersonate resource \"users\"";
    assert_fails(api_error(403, "Forbidden", impersonate), "refused", &["cannot impersonate"])
        .await;
    let login = api_error(401, "Unauthorized", "Unauthorized");
    assert_fails(login, "refused", &["the API server rejected the credentials"]).await;
    let missing = api_error(404, "NotFound", "services \"prometheus\" not found");
    let names =
        ["m/https:prometheus:9090/prom does not exist", "services \"prometheus\" not found"];
    assert_fails(missing, "refused", &names).await;
    for (message, reason, words) in [
        (
            "no endpoints available for service \"prometheus\"",
            "unavailable",
            "has no ready endpoints",
        ),
        ("no service port 9090 found for service \"prometheus\"", "refused", "has no such port"),
        (
            "error trying to reach service: dial tcp 10.0.0.1:9090: connect: connection refused",
            "unavailable",
            "connection refused",
        ),
        ("etcd is gone", "unavailable", "the API server failed to reach"),
    ] {
        assert_fails(api_error(503, "ServiceUnavailable", message), reason, &[words]).await;
    }
    let late = api_error(504, "Timeout", "request did not complete");
    assert_fails(late, "timeout", &["in time"]).await;
    let odd = api_error(400, "BadRequest", "invalid service request");
    assert_fails(odd, "refused", &["invalid service request"]).await;
}

#[tokio::test]
async fn a_busy_api_server_says_when_to_retry() {
    let (status, mut headers, body) = api_error(429, "TooManyRequests", "too many requests");
    headers.push(("retry-after", "7"));
    match count((status, headers, body)).await {
        Err(QueryError::Busy { why, retry_after }) => {
            assert!(why.contains("too many requests"), "{why}");
            assert_eq!(retry_after, Some(Duration::from_secs(7)));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_with_a_login_cannot_be_queried_through_the_proxy() {
    let port_forward = "kubectl port-forward -n m service/prometheus 9090:9090";
    let words = ["the API server's proxy drops the header Authorization", port_forward];
    let text = || vec![("content-type", "text/plain")];
    for (status, body) in [(401, "Unauthorized"), (403, "Forbidden (user=system:anonymous)")] {
        assert_fails((status, text(), body.into()), "refused", &words).await;
    }
    let html = vec![("content-type", "text/html"), ("location", "/oauth/start?state=secret")];
    let error = count((302, html, Vec::new())).await.expect_err("it fails");
    assert_eq!(error.reason(), "not_prometheus");
    assert!(error.to_string().contains("redirects to /oauth/start (302)"), "{error}");
    assert!(error.to_string().contains(port_forward) && !error.to_string().contains("secret"));
}

#[tokio::test]
async fn errors_of_the_server_behind_the_proxy_are_its_own() {
    let json = || vec![("content-type", "application/json")];
    let html = || vec![("content-type", "text/html")];
    let error = |kind: &str, message: &str| {
        json!({"status": "error", "errorType": kind, "error": message}).to_string().into()
    };
    for (response, reason, word) in [
        ((200, html(), b"<title>Grafana</title>".to_vec()), "not_prometheus", "Grafana"),
        ((404, html(), b"404 page not found".to_vec()), "not_prometheus", "404"),
        ((422, json(), error("execution", "too many samples")), "too_large", "too many samples"),
        ((503, json(), error("unavailable", "TSDB not ready")), "busy", "TSDB not ready"),
        ((500, json(), error("internal", "block is gone")), "unavailable", "block is gone"),
        // Longer than what is read to find out whose error it is.
        ((400, json(), error("bad_data", &"x".repeat(100_000))), "bad_query", "bad_data"),
    ] {
        assert_fails(response, reason, &[word]).await;
    }
}

#[tokio::test]
async fn a_query_that_is_too_long_for_a_url_is_not_sent() {
    let (client, requests) = api_server(json_body(OK));
    let client = prometheus(client);
    for (length, is_sent) in [(4 << 10, true), (16 << 10, false)] {
        requests.lock().clear();
        let query = Query::from(Selector::metric("up").equals("pod", "x".repeat(length)));
        let result = client.count(&query, Time::from_secs(1)).await;
        assert_eq!(requests.lock().len(), usize::from(is_sent), "{length}");
        let is_refused =
            matches!(&result, Err(QueryError::AccessDenied(why)) if why.contains("its URL has"));
        assert_eq!(is_refused, !is_sent, "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeout_includes_the_body() {
    // A response that never begins, and one that never ends.
    let silent = service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, http::Error>>()
    });
    let endless = service_fn(|_: Request<Body>| {
        let body = futures::stream::pending::<Result<Frame<Bytes>, std::io::Error>>();
        ready(Ok::<_, http::Error>(Response::new(http_body_util::StreamBody::new(body))))
    });
    let limit = Duration::from_secs(3);
    let proxy = ServiceProxy::new(Client::new(silent, "default"), address());
    let error = proxy.send("/x", &[], limit).await.expect_err("it times out");
    assert_eq!(error.kind, TransportErrorKind::TimedOut, "{error}");
    let proxy = ServiceProxy::new(Client::new(endless, "default"), address());
    let mut response = proxy.send("/x", &[], limit).await.expect("the head arrives");
    let error = response.chunk().await.expect_err("it times out");
    assert!(error.is_timeout(), "{error:?}");
}

#[tokio::test]
async fn an_unreachable_api_server_is_transient() {
    let service = service_fn(|_: Request<Body>| {
        let why = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "connection refused");
        ready(Err::<Response<Body>, _>(why))
    });
    let proxy = ServiceProxy::new(Client::new(service, "default"), address());
    let error = proxy.send("/x", &[], Duration::from_secs(3)).await.expect_err("no response");
    assert_eq!(error.kind, TransportErrorKind::Unreachable);
    assert!(error.is_transient() && error.to_string().contains("connection refused"), "{error}");
}
