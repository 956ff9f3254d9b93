//! Answers requests for pages: limits, access, the page, and the headers of every response.

mod access_cache;
mod failure;
mod report_files;
mod response;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header::CONTENT_DISPOSITION,
};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::spawn_blocking, time::Instant};

#[cfg(test)]
pub(super) use self::access_cache::ACCESS_LIFETIME;
use self::{
    access_cache::AccessCache,
    failure::Failure,
    report_files::{list_reports, read_report},
    response::{Body, asset_response, report_response, response},
};
use super::{
    access::{AuthMode, Peer, Scope, User, claim, is_loopback_host},
    layout::Place,
    list_query::{ListQuery, Span},
    pages::{
        AutoscalerPage, AutoscalersPage, BacktestsPage, HeldBackPage, OverviewPage, Page,
        PreviewPage, ReportFile, StatusPage, WorkloadDetails, WorkloadPage, WorkloadsPage,
    },
    replica_timeline::ReplicaTimeline,
    router::{Form, Route, Routed, route},
    snapshot::Snapshot,
    timeline_reader::{ReplicaSubject, TimelineSubject},
};
use crate::cluster::server::{WebHandler, WebPeer};

/// The time of the data: scripts only draw a page again if it has changed.
const DATA_VERSION: HeaderName = HeaderName::from_static("x-plimsoll-version");

/// Reads of what may have been deleted, at once: their names are those of requests.
const MAX_UNKNOWN: usize = 2;

/// What pages are made from.
#[async_trait]
pub trait PageSource: Send + Sync + 'static {
    /// The data of all pages; `None` until it has been read for the first time.
    fn snapshot(&self) -> Option<Arc<Snapshot>>;

    /// What is read for the page of one workload.
    async fn details(&self, subject: &TimelineSubject, span: Span) -> WorkloadDetails;

    /// The timeline of one autoscaler of replicas; `None` if there is no server to read it from.
    async fn replica_timeline(
        &self,
        subject: &ReplicaSubject,
        span: Span,
    ) -> Option<Result<ReplicaTimeline, String>>;
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
    access: AccessCache,
    pace: Mutex<(f64, Instant)>,
    unknown: Semaphore,
}

impl UiServer {
    /// A server of these pages.
    pub fn new(
        config: UiServerConfig,
        source: Arc<dyn PageSource>,
        reviewer: Arc<dyn AccessReviewer>,
    ) -> Self {
        let pace = Mutex::new((config.burst, Instant::now()));
        let access = AccessCache::new(reviewer);
        Self { config, source, access, pace, unknown: Semaphore::new(MAX_UNKNOWN) }
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
            Err(failure) => {
                // The way back depends on nothing but the depth of the path.
                let path = uri.path().strip_prefix(&*self.config.base_path).unwrap_or(uri.path());
                failure.response(path.matches('/').count().saturating_sub(1).min(8))
            }
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
        let scope = self.access.scope(claimed, &*self.source).await?;
        if routed.route.needs_everything() && !scope.is_all() {
            return Err(Failure::NotFound);
        }
        if let Route::Backtest(name) = &routed.route {
            return self.report_response(name).await;
        }
        let snapshot = self.source.snapshot().ok_or(Failure::Starting)?;
        let read = self.read_for(method, &routed, &snapshot, &scope).await?;
        // Lists of large clusters take milliseconds, which connections should not wait for.
        let rendered = spawn_blocking(move || render(&snapshot, &scope, &routed, read));
        rendered.await.map_err(|_| Failure::Internal)?
    }

    /// Reads what the snapshot does not have. Nothing is read for those who may not see it, nor for lists, nor only to find
    /// out whether a page has changed.
    async fn read_for(
        &self,
        method: &Method,
        routed: &Routed,
        snapshot: &Snapshot,
        scope: &Scope,
    ) -> Result<ReadForPage, Failure> {
        let mut read = ReadForPage::default();
        let (source, span) = (&self.source, routed.query.span);
        match &routed.route {
            Route::Workload { namespace, kind, name } if scope.allows(namespace) => {
                let known = snapshot.row(namespace, kind, name);
                let vpa = match known {
                    Some(row) => row.vpa.as_deref().map(ToOwned::to_owned),
                    None => snapshot.vpa_for(namespace, kind, name),
                };
                let subject = TimelineSubject {
                    namespace: namespace.clone(),
                    kind: kind.clone(),
                    name: name.clone(),
                    vpa,
                };
                if known.is_none() {
                    let _permit =
                        self.unknown.try_acquire().map_err(|_| Failure::TooManyRequests)?;
                    // What is gone may have been gone for long.
                    read.workload = source.details(&subject, Span::Month).await;
                } else if method == Method::GET {
                    read.workload = source.details(&subject, span).await;
                }
            }
            Route::Autoscaler { namespace, name }
                if scope.allows(namespace) && method == Method::GET =>
            {
                for subject in snapshot.replica_subjects(namespace, name) {
                    read.replicas.push(source.replica_timeline(&subject, span).await);
                }
            }
            Route::Backtests => read.files = self.report_files().await,
            _ => {}
        }
        Ok(read)
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

    async fn report_files(&self) -> Option<Vec<ReportFile>> {
        let folder = self.config.reports.clone()?;
        spawn_blocking(move || list_reports(&folder)).await.ok()
    }

    async fn report_response(&self, name: &str) -> Result<Response<Body>, Failure> {
        let folder = self.config.reports.clone().ok_or(Failure::NotFound)?;
        let name = name.to_owned();
        let read = spawn_blocking(move || read_report(&folder, &name)).await;
        let text = read.map_err(|_| Failure::Internal)?.ok_or(Failure::NotFound)?;
        Ok(report_response(text))
    }
}

impl WebHandler for UiServer {
    async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: WebPeer) -> Response<Body> {
        let (parts, _body) = request.into_parts();
        let peer = Peer { address: peer.address, has_proxy_certificate: peer.has_certificate };
        self.respond(&parts.method, &parts.uri, &parts.headers, peer).await
    }
}

/// What is read for one page, besides the snapshot.
#[derive(Default)]
struct ReadForPage {
    workload: WorkloadDetails,
    /// For each autoscaler of the page.
    replicas: Vec<Option<Result<ReplicaTimeline, String>>>,
    files: Option<Vec<ReportFile>>,
}

/// Makes a page. This takes time in proportion to the size of the cluster, and waits for nothing.
fn render(
    snapshot: &Snapshot,
    scope: &Scope,
    routed: &Routed,
    read: ReadForPage,
) -> Result<Response<Body>, Failure> {
    let page = make_page(snapshot, scope, routed, read).ok_or(Failure::NotFound)?;
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
    read: ReadForPage,
) -> Option<Page> {
    let list = |namespace: Option<&str>, query: &ListQuery| {
        let all_rows = routed.form == Form::Csv;
        WorkloadsPage::of(snapshot, scope, namespace, query, all_rows).map(Page::Workloads)
    };
    Some(match &routed.route {
        Route::Overview => {
            Page::Overview(Box::new(OverviewPage::of(snapshot, scope, &routed.query.by)))
        }
        Route::Workloads => list(None, &routed.query)?,
        Route::Namespace(namespace) => list(Some(namespace), &routed.query)?,
        Route::Workload { namespace, kind, name } => {
            let page = WorkloadPage::of(snapshot, scope, (namespace, kind, name), read.workload)?;
            Page::Workload(Box::new(page))
        }
        Route::Autoscalers => Page::Autoscalers(AutoscalersPage::of(snapshot, scope)),
        Route::Autoscaler { namespace, name } => {
            Page::Autoscaler(AutoscalerPage::of(snapshot, scope, (namespace, name), read.replicas)?)
        }
        Route::HeldBack => Page::HeldBack(HeldBackPage::of(snapshot, scope)),
        Route::Preview => Page::Preview(PreviewPage::of(snapshot, scope)),
        Route::Backtests => Page::Backtests(BacktestsPage::of(snapshot, scope, read.files)),
        Route::Status => Page::Status(Box::new(StatusPage::of(snapshot, scope))),
        Route::Backtest(_) | Route::Asset(_) | Route::Livez | Route::Readyz => return None,
    })
}
