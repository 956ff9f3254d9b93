//! Counts requests to the API server and queries to Prometheus.

use std::{
    task::{Context, Poll},
    time::Instant,
};

use futures::{FutureExt as _, future::BoxFuture};
use http::{Method, Request, Response, Uri};
use kube::{Client, client::Body};
use plimsoll_storage::prometheus::{
    client::{CompletedQuery, QueryObserver},
    query_error::QueryError,
};
use tower_service::Service;

use crate::telemetry::{ApiRequestMetrics, PrometheusQueryMetrics};

pub(crate) fn with_call_metrics(client: Client, calls: ApiRequestMetrics) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(CountingService { client, calls }, namespace)
}

#[derive(Clone)]
struct CountingService {
    client: Client,
    calls: ApiRequestMetrics,
}

impl Service<Request<Body>> for CountingService {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        // The inner client waits for its own readiness.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, calls } = self.clone();
        let verb = verb(request.method(), request.uri());
        async move {
            let started = Instant::now();
            let response = client.send(request).await;
            let code = response.as_ref().ok().map(|response| response.status().as_u16());
            calls.observe(verb, code, started.elapsed());
            response
        }
        .boxed()
    }
}

/// The verb of a request, as in RBAC rules and audit logs.
fn verb(method: &Method, uri: &Uri) -> &'static str {
    let is_one = || is_object_path(uri.path());
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_one() => "delete",
        Method::DELETE => "deletecollection",
        _ if is_watch(uri.query().unwrap_or_default()) => "watch",
        _ if is_one() => "get",
        _ => "list",
    }
}

fn is_watch(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

/// Whether a path identifies one object, or something that is not a resource, such as `/version`.
fn is_object_path(path: &str) -> bool {
    let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let version = match segments.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return true,
    };
    let mut rest = segments.split_off(version.min(segments.len()));
    if rest.len() > 2 && rest[0] == "namespaces" {
        rest.drain(..2);
    }
    rest.len() != 1
}

#[derive(Debug)]
pub(crate) struct QueryRecorder(PrometheusQueryMetrics);

impl QueryRecorder {
    pub fn new(calls: PrometheusQueryMetrics) -> Self {
        calls.init_outcomes(&["ok", "empty"]);
        calls.init_outcomes(&QueryError::REASONS);
        Self(calls)
    }
}

impl QueryObserver for QueryRecorder {
    fn on_query(&self, query: &CompletedQuery<'_>) {
        self.0.observe(outcome(query), query.duration);
    }
}

/// The outcome of a query as a label value. A response without series is not an error, but it is not useful either.
fn outcome(query: &CompletedQuery<'_>) -> &'static str {
    match query.outcome {
        // Only queries have a kind. Of other responses, only the size is known.
        Ok(summary) if summary.kind.is_some() && summary.series == 0 => "empty",
        Ok(_) => "ok",
        Err(error) => error.reason(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_verbs_of_rbac() {
        for (method, uri, expected) in [
            (Method::GET, "/api/v1/namespaces/shop/pods?limit=500", "list"),
            (Method::GET, "/api/v1/pods?&watch=true&timeoutSeconds=290", "watch"),
            (Method::GET, "/api/v1/namespaces/shop/pods/web-1", "get"),
            (Method::GET, "/api/v1/namespaces/shop", "get"),
            (Method::GET, "/api/v1/namespaces", "list"),
            (Method::GET, "/apis/apps/v1/deployments", "list"),
            (Method::GET, "/apis/apps/v1/namespaces/shop/deployments/web/scale", "get"),
            (Method::PUT, "/apis/apps/v1/namespaces/shop/deployments/web/scale", "update"),
            (Method::POST, "/api/v1/namespaces/shop/pods/web-1/eviction", "create"),
            (Method::PATCH, "/api/v1/namespaces/shop/pods/web-1/resize", "patch"),
            (Method::DELETE, "/api/v1/namespaces/shop/pods/web-1", "delete"),
            (Method::DELETE, "/api/v1/namespaces/shop/pods", "deletecollection"),
            (Method::GET, "/version", "get"),
            (Method::GET, "/apis", "get"),
        ] {
            let uri: Uri = uri.parse().expect("an address");
            assert_eq!(verb(&method, &uri), expected, "{method} {uri}");
        }
    }
}
