//! What is answered under which path.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{ALLOW, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
};

use super::{
    body::Body, go_duration::go_duration, readiness::ReadinessCheck, scrape_pages::ScrapeRenderer,
};

/// Prometheus' text format.
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// Neither of these changes anything, so they are all that is understood.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");

/// Something that can be scraped: what it has to say, chunk by chunk, each made when the reader has room for it, on a thread
/// for blocking work.
pub trait Exposition: Send + Sync {
    /// Begins a scrape.
    fn scrape(&self) -> Box<dyn Iterator<Item = Bytes> + Send>;
}

impl<F, I> Exposition for F
where
    F: Fn() -> I + Send + Sync,
    I: Iterator<Item = Bytes> + Send + 'static,
{
    fn scrape(&self) -> Box<dyn Iterator<Item = Bytes> + Send> {
        Box::new(self())
    }
}

/// What a role says of itself.
pub trait Probes: Send + Sync {
    /// Whether its loops turn. Never fails because something else is away. Called on the thread that answers probes: it must
    /// not take a lock that is held during the work of a controller.
    fn check_liveness(&self) -> Result<(), Stalled>;

    /// Whether it can do its work, or what is missing: a line each. Called on a thread for blocking work.
    fn check_readiness(&self) -> Result<(), Vec<String>>;
}

/// A loop that does not turn any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} stands still for {}: see its last line in the log", go_duration(*.last_activity))]
pub struct Stalled {
    /// Which loop.
    pub what: String,
    /// How long ago it turned last.
    pub last_activity: Duration,
}

/// What a listener answers with.
#[derive(Clone)]
pub(super) struct Routes {
    renderer: ScrapeRenderer,
    readiness: ReadinessCheck,
    probes: Arc<dyn Probes>,
}

impl Routes {
    pub fn new(exposition: Arc<dyn Exposition>, probes: Arc<dyn Probes>) -> Self {
        let (renderer, readiness) =
            (ScrapeRenderer::new(exposition), ReadinessCheck::new(Arc::clone(&probes)));
        Self { renderer, readiness, probes }
    }
}

/// Answers a request.
pub(super) async fn handle<B>(request: Request<B>, answers: Routes) -> Response<Body> {
    let wants_body = request.method() == Method::GET;
    if !wants_body && request.method() != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, METHODS);
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            // The headers of a scrape need none of its work.
            let body = if wants_body {
                Body::pages(answers.renderer.pages())
            } else {
                Body::unknown_length()
            };
            let mut response = Response::new(body);
            response.headers_mut().insert(CONTENT_TYPE, METRICS);
            response
        }
        // The latter are where the original of the watermark controller says that it lives.
        "/livez" | "/healthz" | "/healthz/" | "/healthz/health-probe" => {
            match answers.probes.check_liveness() {
                Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
                Err(stalled) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{stalled}\n")),
            }
        }
        // Upstream's path with upstream's words, for probes that were written for it.
        "/health-check" => match answers.probes.check_liveness() {
            Ok(()) => text(StatusCode::OK, "OK".to_owned()),
            Err(Stalled { last_activity, .. }) => {
                let ago = go_duration(last_activity);
                let said = format!("Error: last activity more than {ago} ago\n");
                text(StatusCode::INTERNAL_SERVER_ERROR, said)
            }
        },
        "/readyz" => match answers.readiness.check().await {
            Ok(()) => text(StatusCode::OK, "ok\n".to_owned()),
            Err(missing) => {
                let lines = missing.iter().flat_map(|line| [line, "\n"]).collect();
                text(StatusCode::SERVICE_UNAVAILABLE, lines)
            }
        },
        path if path.starts_with("/debug/pprof") => text(
            StatusCode::NOT_FOUND,
            "profiles are a feature of Go programs: use perf on the process instead\n".to_owned(),
        ),
        _ => text(
            StatusCode::NOT_FOUND,
            "here are /metrics, /livez, /readyz, /health-check and /healthz\n".to_owned(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::whole(Some(body.into()), ()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PLAIN);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
