//! Answers requests for pages: limits, access, the page, and the headers of every response.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION,
        REFERRER_POLICY, RETRY_AFTER, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
    },
};
use http_body_util::Full;
use hyper::body::Incoming;
use moka::future::Cache;
use parking_lot::Mutex;
use plimsoll_core::types::Time;
use ring::digest::{SHA256, digest};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    access::{AuthMode, Claim, Peer, Refusal, Scope, User, claim, is_loopback_host},
    assets::Asset,
    layout::Place,
    list_query::{ListQuery, Span},
    pages::{
        AutoscalerPage, AutoscalersPage, BacktestsPage, HeldBackPage, OverviewPage, Page,
        PreviewPage, ReportFile, StatusPage, WorkloadDetails, WorkloadPage, WorkloadsPage,
    },
    router::{Form, Route, RouteError, Routed, is_file_stem, route},
    snapshot::Snapshot,
    timeline_reader::TimelineSubject,
};
use crate::cluster::server::{WebHandler, WebPeer};

/// Everything comes from this server, and nothing is in the page itself.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'",
);
/// Reports are files with scripts and styles of their own. In a sandbox they belong to no origin, so that their scripts
/// can read nothing of this server.
const REPORT_POLICY: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
/// The time of the data: scripts only draw a page again if it has changed.
const DATA_VERSION: HeaderName = HeaderName::from_static("x-plimsoll-version");

/// How long the user of a token, and the rights of a user, are remembered.
const ACCESS_LIFETIME: Duration = Duration::from_mins(1);
/// Tokens and users that are remembered.
const MAX_REMEMBERED: u64 = 10_000;
/// Concurrent reviews for one user.
const MAX_REVIEWS: usize = 16;
/// Namespaces that are reviewed for one user.
const MAX_NAMESPACES: usize = 5_000;
/// The largest report file.
const MAX_REPORT_BYTES: u64 = 64 << 20;
/// Report files in the list.
const MAX_REPORTS: usize = 1_000;

/// What pages are made from.
#[async_trait]
pub trait PageSource: Send + Sync + 'static {
    /// The data of all pages; `None` until it has been read for the first time.
    fn snapshot(&self) -> Option<Arc<Snapshot>>;

    /// What is read for the page of one workload.
    async fn details(&self, subject: &TimelineSubject, span: Span) -> WorkloadDetails;
}

/// Reviews users.
#[async_trait]
pub trait AccessReviewer: Send + Sync + 'static {
    /// The user of a token; `None` if it is not valid.
    async fn user_of_token(&self, token: &str) -> Result<Option<User>, String>;

    /// Whether a user may list VPAs in a namespace, or in all of them.
    async fn may_list(&self, user: &User, namespace: Option<&str>) -> Result<bool, String>;
}

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct UiServerConfig {
    /// How users are identified.
    pub auth: AuthMode,
    /// Whether it listens on a loopback address only.
    pub is_loopback: bool,
    /// The path below which all pages are; empty for none.
    pub base_path: String,
    /// The folder of reports.
    pub reports: Option<PathBuf>,
    /// Requests per second on average.
    pub requests_per_second: f64,
    /// Requests at once.
    pub burst: f64,
}

impl Default for UiServerConfig {
    fn default() -> Self {
        Self {
            auth: AuthMode::None,
            is_loopback: true,
            base_path: String::new(),
            reports: None,
            requests_per_second: 50.0,
            burst: 200.0,
        }
    }
}

/// Answers requests for pages.
pub struct UiServer {
    config: UiServerConfig,
    source: Arc<dyn PageSource>,
    reviewer: Arc<dyn AccessReviewer>,
    pace: Mutex<(f64, Instant)>,
    users: Cache<[u8; 32], Option<User>>,
    scopes: Cache<User, Arc<Scope>>,
}

/// The body of a response with its type.
type Body = Full<Bytes>;

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Failure {
    BadRequest,
    UnknownHost,
    Unauthorized(Refusal),
    NotFound,
    MethodNotAllowed,
    UriTooLong,
    TooManyRequests,
    Redirect(String),
    Starting,
    /// A review failed.
    Unreviewed,
    Internal,
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::BadRequest => Self::BadRequest,
            RouteError::NotFound => Self::NotFound,
            RouteError::MethodNotAllowed => Self::MethodNotAllowed,
            RouteError::UriTooLong => Self::UriTooLong,
            RouteError::Redirect(to) => Self::Redirect(to),
        }
    }
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::UnknownHost => StatusCode::MISDIRECTED_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
            Self::Redirect(_) => StatusCode::PERMANENT_REDIRECT,
            Self::Starting | Self::Unreviewed => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::BadRequest => "The address is not valid.",
            Self::UnknownHost => "This server only answers to localhost and loopback addresses.",
            Self::Unauthorized(Refusal::NoToken) => {
                "A valid bearer token of the cluster is required: Authorization: Bearer TOKEN."
            }
            Self::Unauthorized(Refusal::NoProxy) => {
                "The request does not come from the authenticating proxy, or names no user."
            }
            Self::NotFound => "There is no such page, or you may not see it.",
            Self::MethodNotAllowed => "Only GET and HEAD are allowed.",
            Self::UriTooLong => "The address is too long.",
            Self::TooManyRequests => "There are too many requests. Try again in a second.",
            Self::Redirect(_) => "The page has moved.",
            Self::Starting => {
                "The cluster is being read for the first time. Try again in a few seconds."
            }
            Self::Unreviewed => {
                "The API server does not review access at the moment. Try again later."
            }
            Self::Internal => "The page could not be made.",
        }
    }
}

impl UiServer {
    /// A server of these pages.
    pub fn new(
        config: UiServerConfig,
        source: Arc<dyn PageSource>,
        reviewer: Arc<dyn AccessReviewer>,
    ) -> Self {
        let pace = Mutex::new((config.burst, Instant::now()));
        let cache = || Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(ACCESS_LIFETIME);
        Self {
            config,
            source,
            reviewer,
            pace,
            users: cache().build(),
            scopes: Cache::builder()
                .max_capacity(MAX_REMEMBERED)
                .time_to_live(ACCESS_LIFETIME)
                .build(),
        }
    }

    /// Answers a request.
    pub async fn respond(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Response<Body> {
        match self.answer(method, uri, headers, peer).await {
            Ok(response) => response,
            Err(failure) => self.failure_response(&failure, uri),
        }
    }

    async fn answer(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Response<Body>, Failure> {
        if !self.takes_request() {
            return Err(Failure::TooManyRequests);
        }
        if self.config.is_loopback {
            let host = headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
            let host = host.or(uri.authority().map(http::uri::Authority::as_str));
            if !host.is_some_and(is_loopback_host) {
                return Err(Failure::UnknownHost);
            }
        }
        let routed = route(method, uri.path(), uri.query(), &self.config.base_path)?;
        match routed.route {
            Route::Asset(asset) => return Ok(asset_response(asset)),
            Route::Livez => return Ok(response("text/plain; charset=utf-8", "ok\n")),
            Route::Readyz => {
                self.source.snapshot().ok_or(Failure::Starting)?;
                return Ok(response("text/plain; charset=utf-8", "ok\n"));
            }
            _ => {}
        }
        let claimed = claim(&self.config.auth, peer, headers).map_err(Failure::Unauthorized)?;
        let scope = self.scope(claimed).await?;
        if routed.route.needs_everything() && !scope.is_all() {
            return Err(Failure::NotFound);
        }
        if let Route::Backtest(name) = &routed.route {
            return self.report_response(name).await;
        }
        let snapshot = self.source.snapshot().ok_or(Failure::Starting)?;
        let details = match &routed.route {
            // The timeline is not read for those who may not see it, and not to find out whether it has changed.
            Route::Workload { namespace, kind, name }
                if method == Method::GET && scope.allows(namespace) =>
            {
                match snapshot.workload(namespace, kind, name) {
                    None => return Err(Failure::NotFound),
                    Some((workload, _)) => {
                        let subject = TimelineSubject {
                            namespace: namespace.clone(),
                            kind: kind.clone(),
                            name: name.clone(),
                            vpa: workload.vpa.clone(),
                        };
                        self.source.details(&subject, routed.query.span).await
                    }
                }
            }
            _ => WorkloadDetails::default(),
        };
        let files = match &routed.route {
            Route::Backtests => self.report_files().await,
            _ => None,
        };
        // Lists of large clusters take milliseconds, which connections should not wait for.
        let rendered = spawn_blocking(move || render(&snapshot, &scope, &routed, details, files));
        rendered.await.map_err(|_| Failure::Internal)?
    }

    /// Takes a token of the bucket.
    fn takes_request(&self) -> bool {
        let UiServerConfig { requests_per_second, burst, .. } = self.config;
        let mut pace = self.pace.lock();
        let (tokens, last) = *pace;
        let now = Instant::now();
        let tokens = (tokens + (now - last).as_secs_f64() * requests_per_second).min(burst);
        let takes = tokens >= 1.0;
        *pace = (if takes { tokens - 1.0 } else { tokens }, now);
        takes
    }

    /// The namespaces that may be seen.
    async fn scope(&self, claimed: Claim) -> Result<Arc<Scope>, Failure> {
        let user = match claimed {
            Claim::Everything => return Ok(Arc::new(Scope::All)),
            Claim::User(user) => user,
            Claim::Token(token) => {
                let mut key = [0; 32];
                key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
                let review = self.reviewer.user_of_token(&token);
                let user = self.users.try_get_with(key, review).await;
                let user = user.map_err(|why| unreviewed(&why))?;
                user.ok_or(Failure::Unauthorized(Refusal::NoToken))?
            }
        };
        let scope = self.scopes.try_get_with_by_ref(&user, self.review(&user)).await;
        scope.map_err(|why| unreviewed(&why))
    }

    async fn review(&self, user: &User) -> Result<Arc<Scope>, String> {
        if self.reviewer.may_list(user, None).await? {
            return Ok(Arc::new(Scope::All));
        }
        let snapshot = self.source.snapshot();
        let namespaces =
            snapshot.as_ref().map(|snapshot| snapshot.namespaces()).unwrap_or_default();
        let namespaces: Vec<String> =
            namespaces.into_iter().take(MAX_NAMESPACES).map(ToOwned::to_owned).collect();
        let reviews = namespaces.into_iter().map(|namespace| async move {
            let allowed = self.reviewer.may_list(user, Some(&namespace)).await?;
            Ok::<_, String>(allowed.then_some(namespace))
        });
        let reviewed: Vec<_> = stream::iter(reviews).buffer_unordered(MAX_REVIEWS).collect().await;
        let allowed = reviewed.into_iter().filter_map(Result::transpose);
        Ok(Arc::new(Scope::Namespaces(allowed.collect::<Result<BTreeSet<_>, _>>()?)))
    }

    async fn report_files(&self) -> Option<Vec<ReportFile>> {
        let folder = self.config.reports.clone()?;
        spawn_blocking(move || list_reports(&folder)).await.ok()
    }

    async fn report_response(&self, name: &str) -> Result<Response<Body>, Failure> {
        let folder = self.config.reports.clone().ok_or(Failure::NotFound)?;
        let name = name.to_owned();
        let read = spawn_blocking(move || read_report(&folder, &name)).await;
        let text = read.map_err(|_| Failure::Internal)?.ok_or(Failure::NotFound)?;
        let mut response = response("text/html; charset=utf-8", text);
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, REPORT_POLICY);
        Ok(response)
    }

    fn failure_response(&self, failure: &Failure, uri: &Uri) -> Response<Body> {
        // The way back depends on nothing but the depth of the path.
        let path = uri.path().strip_prefix(&*self.config.base_path).unwrap_or(uri.path());
        let depth = path.matches('/').count().saturating_sub(1).min(8);
        let text = match failure {
            // The same for what does not exist and for what may not be seen.
            Failure::NotFound => failure_page(failure, Some(depth)),
            _ => failure_page(failure, None),
        };
        let mut response = response("text/html; charset=utf-8", text);
        *response.status_mut() = failure.status();
        let headers = response.headers_mut();
        match failure {
            Failure::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            Failure::Unauthorized(Refusal::NoToken) => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Failure::TooManyRequests => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Failure::Starting | Failure::Unreviewed => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            Failure::Redirect(to) => {
                if let Ok(to) = HeaderValue::from_str(to) {
                    headers.insert(LOCATION, to);
                }
            }
            _ => {}
        }
        response
    }
}

impl WebHandler for UiServer {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: WebPeer) -> Response<Body> {
        let (parts, _body) = request.into_parts();
        let peer = Peer { address: peer.address, has_proxy_certificate: peer.has_certificate };
        self.respond(&parts.method, &parts.uri, &parts.headers, peer).await
    }
}

fn unreviewed(why: &Arc<String>) -> Failure {
    tracing::warn!(%why, "access could not be reviewed");
    Failure::Unreviewed
}

/// Makes a page. This takes time in proportion to the size of the cluster, and waits for nothing.
fn render(
    snapshot: &Snapshot,
    scope: &Scope,
    routed: &Routed,
    details: WorkloadDetails,
    files: Option<Vec<ReportFile>>,
) -> Result<Response<Body>, Failure> {
    let page = make_page(snapshot, scope, routed, details, files).ok_or(Failure::NotFound)?;
    let Routed { route, form, query } = routed;
    let mut response = match form {
        Form::Html => response("text/html; charset=utf-8", page.html(Place { route, query })),
        Form::Json => {
            let json = page.json().map_err(|_| Failure::Internal)?;
            response("application/json", json)
        }
        Form::Csv => {
            let csv = page.csv().ok_or(Failure::NotFound)?;
            let mut response = response("text/csv; charset=utf-8", csv);
            let name = format!("attachment; filename=\"{}.csv\"", route.last_segment());
            if let Ok(name) = HeaderValue::from_str(&name) {
                response.headers_mut().insert(CONTENT_DISPOSITION, name);
            }
            response
        }
    };
    let version = HeaderValue::from(snapshot.parts.at.as_secs());
    response.headers_mut().insert(DATA_VERSION, version);
    Ok(response)
}

/// The page of a route; `None` if there is nothing, or nothing that may be seen.
fn make_page(
    snapshot: &Snapshot,
    scope: &Scope,
    routed: &Routed,
    details: WorkloadDetails,
    files: Option<Vec<ReportFile>>,
) -> Option<Page> {
    let list = |namespace: Option<&str>, query: &ListQuery| {
        let all_rows = routed.form == Form::Csv;
        WorkloadsPage::of(snapshot, scope, namespace, query, all_rows).map(Page::Workloads)
    };
    Some(match &routed.route {
        Route::Overview => Page::Overview(Box::new(OverviewPage::of(snapshot, scope))),
        Route::Workloads => list(None, &routed.query)?,
        Route::Namespace(namespace) => list(Some(namespace), &routed.query)?,
        Route::Workload { namespace, kind, name } => {
            let page = WorkloadPage::of(snapshot, scope, (namespace, kind, name), details)?;
            Page::Workload(Box::new(page))
        }
        Route::Autoscalers => Page::Autoscalers(AutoscalersPage::of(snapshot, scope)),
        Route::Autoscaler { namespace, name } => {
            Page::Autoscaler(AutoscalerPage::of(snapshot, scope, namespace, name)?)
        }
        Route::HeldBack => Page::HeldBack(HeldBackPage::of(snapshot, scope)),
        Route::Preview => Page::Preview(PreviewPage::of(snapshot, scope)),
        Route::Backtests => Page::Backtests(BacktestsPage::of(snapshot, scope, files)),
        Route::Status => Page::Status(Box::new(StatusPage::of(snapshot, scope))),
        Route::Backtest(_) | Route::Asset(_) | Route::Livez | Route::Readyz => return None,
    })
}

/// A response with the headers that all have.
fn response(media_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::from(body.into()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn asset_response(asset: &'static Asset) -> Response<Body> {
    let mut response = response(asset.media_type, asset.text.as_bytes());
    let year = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, year);
    response
}

/// A page without data. `depth` is the number of folders to the overview.
fn failure_page(failure: &Failure, depth: Option<usize>) -> String {
    let (title, message) =
        (failure.status().canonical_reason().unwrap_or("Error"), failure.message());
    let back = depth.map_or_else(String::new, |depth| {
        format!("<p><a href=\"./{}\">Overview</a></p>\n", "../".repeat(depth))
    });
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · Plimsoll</title>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n<p>{message}</p>\n{back}\
         </main>\n</body>\n</html>\n"
    )
}

/// The HTML files of a folder.
fn list_reports(folder: &Path) -> Vec<ReportFile> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_report = name.strip_suffix(".html").is_some_and(is_file_stem);
        // The files of a ConfigMap are links.
        let data = fs::metadata(entry.path()).ok().filter(|data| is_report && data.is_file())?;
        let written = data.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok();
        let written_at = written.map(|since| Time::EPOCH.later(since));
        Some(ReportFile { name, bytes: data.len(), written_at })
    });
    files.take(MAX_REPORTS).collect()
}

/// The text of a report; `None` if there is no such file in the folder.
fn read_report(folder: &Path, name: &str) -> Option<Vec<u8>> {
    name.strip_suffix(".html").filter(|stem| is_file_stem(stem))?;
    let folder = folder.canonicalize().ok()?;
    let path = folder.join(name).canonicalize().ok()?;
    if !path.starts_with(&folder) {
        return None;
    }
    let data = fs::metadata(&path).ok()?;
    let fits = data.is_file() && data.len() <= MAX_REPORT_BYTES;
    fits.then(|| fs::read(&path).ok()).flatten()
}
