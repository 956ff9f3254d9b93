//! Routes of the admin server.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;

use super::{go_duration::go_duration, readiness::ReadinessCheck, scrape_pages::ScrapeRenderer};

/// Prometheus' text format.
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// The supported methods; neither changes anything.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// A source of metrics. Each chunk is rendered on a blocking thread when the client is ready to read it.
pub type Exposition = Arc<dyn Fn() -> ScrapePages + Send + Sync>;
pub type ScrapePages = Box<dyn Iterator<Item = Bytes> + Send>;

pub trait Probes: Send + Sync {
    /// Whether its loops make progress. Must not depend on other services. Runs on the thread that serves probes, so
    /// it must not take a lock that a controller holds while it works.
    fn check_liveness(&self) -> Result<(), Stalled>;

    /// Whether it can do its work; otherwise what is missing, one line each. Runs on a blocking thread.
    fn check_readiness(&self) -> Result<(), Vec<String>>;
}

/// A loop that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has made no progress for {}: check its last log line", go_duration(*.last_activity))]
pub struct Stalled {
    pub what: String,
    pub last_activity: Duration,
}

#[derive(Clone)]
pub(super) struct Routes {
    renderer: ScrapeRenderer,
    readiness: ReadinessCheck,
    probes: Arc<dyn Probes>,
}

impl Routes {
    pub fn new(exposition: Exposition, probes: Arc<dyn Probes>) -> Self {
        let (renderer, readiness) =
            (ScrapeRenderer::new(exposition), ReadinessCheck::new(Arc::clone(&probes)));
        Self { renderer, readiness, probes }
    }
}

pub(super) async fn handle<B>(
    request: Request<B>,
    routes: Routes,
) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let wants_body = request.method() == Method::GET;
    if !wants_body && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, METHODS);
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            // A HEAD request needs no rendering.
            let pages = if wants_body {
                routes.renderer.pages().left_stream()
            } else {
                stream::empty().right_stream()
            };
            let pages = StreamBody::new(pages.map(|page| Ok(Frame::data(page))));
            let mut response = Response::new(pages.boxed_unsync());
            response.headers_mut().insert(CONTENT_TYPE, METRICS);
            response
        }
        // Upstream's watermark controller serves its liveness probe on the `/healthz` paths.
        "/livez" | "/healthz" | "/healthz/" | "/healthz/health-probe" => {
            match routes.probes.check_liveness() {
                Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
                Err(stalled) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{stalled}\n")),
            }
        }
        // Upstream's path and response, for existing probe configurations.
        "/health-check" => match routes.probes.check_liveness() {
            Ok(()) => text(StatusCode::OK, "OK".to_owned()),
            Err(Stalled { last_activity, .. }) => {
                let ago = go_duration(last_activity);
                let message = format!("Error: last activity more than {ago} ago\n");
                text(StatusCode::INTERNAL_SERVER_ERROR, message)
            }
        },
        "/readyz" => match routes.readiness.check().await {
            Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
            Err(missing) => {
                let lines = missing.iter().flat_map(|line| [line, "\n"]).collect();
                text(StatusCode::SERVICE_UNAVAILABLE, lines)
            }
        },
        path if path.starts_with("/debug/pprof") => text(
            StatusCode::NOT_FOUND,
            "pprof is not supported: use perf on the process instead\n".to_owned(),
        ),
        _ => text(
            StatusCode::NOT_FOUND,
            "404 page not found; available paths: /metrics, /livez, /readyz, /health-check and /healthz\n".to_owned(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let mut response = Response::new(Full::from(body).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PLAIN);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
