//! An in-memory API server: the same requests and responses as a real one, without sockets, so that a test can run on
//! tokio's paused clock. It is for tests of lease expiry, retry delays and hanging requests; server behavior is
//! tested against a real server. `tests/cluster_writes/conformance.rs` runs the same script of requests against both.

mod patch_and_selector;
mod status_error;
mod store;

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, stream};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tower_service::Service;

use self::patch_and_selector::{Patch, Selector};
use self::status_error::StatusError;
use self::store::{ResourcePath, Store};
use super::api_proxy::{Interception, pass_through};

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;
type Interceptor = dyn Fn(&Method, &str) -> Interception + Send + Sync;

/// A request, and when it arrived.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    pub method: Method,
    pub path: String,
    pub at: Instant,
    /// `None` until the response is sent, and forever if the client gave up.
    pub answered: Option<(Instant, StatusCode)>,
}

/// The generation of the server, and its settings.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ServerState {
    number: u32,
    is_stopped: bool,
    streams_lists: bool,
    keeps_watch_history: bool,
}

/// An in-memory API server. Clones share the same state.
#[derive(Clone)]
pub struct InMemoryApiServer {
    store: Arc<Mutex<Store>>,
    server: Arc<watch::Sender<ServerState>>,
    changes: Arc<watch::Sender<u64>>,
    received: Arc<Mutex<Vec<RecordedRequest>>>,
    interceptor: Arc<Interceptor>,
}

impl InMemoryApiServer {
    /// A server without faults.
    pub fn new() -> Self {
        Self::with_interceptor(|_, _| pass_through())
    }

    /// Runs the interceptor before each request, like [`super::api_proxy::ApiProxy`]: it can respond in place of the
    /// server, or wait.
    pub fn with_interceptor(
        interceptor: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
    ) -> Self {
        let server = ServerState {
            number: 1,
            is_stopped: false,
            streams_lists: true,
            keeps_watch_history: true,
        };
        Self {
            store: Arc::default(),
            server: Arc::new(watch::Sender::new(server)),
            changes: Arc::new(watch::Sender::new(0)),
            received: Arc::default(),
            interceptor: Arc::new(interceptor),
        }
    }

    /// A client of this server. Needs a runtime.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Stops the server like SIGSTOP: connections stay open and requests are accepted, but never answered.
    pub fn stop(&self) {
        self.server.send_modify(|server| server.is_stopped = true);
    }

    /// Replaces a stopped server with another one that has the same objects. Requests that the old one accepted are
    /// never answered.
    pub fn replace(&self) {
        self.server.send_modify(|server| {
            server.number += 1;
            server.is_stopped = false;
        });
    }

    /// Whether it supports streaming lists.
    pub fn stream_lists(&self, does: bool) {
        self.server.send_modify(|server| server.streams_lists = does);
    }

    /// Whether it keeps the watch history. If not, every watch that continues from a version fails as expired.
    pub fn keep_watch_history(&self, does: bool) {
        self.server.send_modify(|server| server.keeps_watch_history = does);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.received.lock().expect("no panic").clone()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().expect("no panic")
    }

    async fn answer(self, request: Request<Body>) -> Result<Answer, kube::Error> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let number = {
            let mut received = self.received.lock().expect("no panic");
            let (method, path) = (parts.method.clone(), path.clone());
            received.push(RecordedRequest { method, path, at: Instant::now(), answered: None });
            received.len() - 1
        };
        if self.server.borrow().is_stopped {
            std::future::pending::<()>().await;
        }
        let answer = match (self.interceptor)(&parts.method, &path).await {
            Some(answer) => answer.map(full_body),
            None => self.serve(&parts, &body.collect_bytes().await?),
        };
        let status = answer.status();
        self.received.lock().expect("no panic")[number].answered = Some((Instant::now(), status));
        Ok(answer)
    }

    fn serve(&self, parts: &http::request::Parts, body: &[u8]) -> Answer {
        let query = ListOptions::read(parts.uri.query().unwrap_or_default());
        let Some(place) = ResourcePath::read(parts.uri.path()) else {
            return failure(&StatusError::unknown_path());
        };
        if parts.method == Method::GET && place.name.is_none() && query.is_watch {
            return self.watch(place, query);
        }
        let before = self.store().version();
        let done = self.apply_request(parts, &place, &query, body);
        let version = self.store().version();
        if version != before {
            self.changes.send_replace(version);
        }
        done.map_or_else(|why| failure(&why), |(code, object)| json(code, &object))
    }

    fn apply_request(
        &self,
        parts: &http::request::Parts,
        place: &ResourcePath,
        query: &ListOptions,
        body: &[u8],
    ) -> Result<(StatusCode, Value), StatusError> {
        let read = || serde_json::from_slice(body).map_err(|_| StatusError::bad_request());
        let mut store = self.store();
        match (&parts.method, &place.name) {
            (&Method::GET, Some(_)) => store.get(place).map(|object| (StatusCode::OK, object)),
            (&Method::GET, None) => {
                store.list(place, &query.selector).map(|all| (StatusCode::OK, all))
            }
            (&Method::POST, None) => {
                store.create(place, read()?).map(|new| (StatusCode::CREATED, new))
            }
            (&Method::PUT, Some(_)) => store.replace(place, read()?),
            (&Method::PATCH, Some(_)) => {
                let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
                let patch = Patch::read(kind.unwrap_or_default(), read()?)?;
                store.patch(place, &patch).map(|object| (StatusCode::OK, object))
            }
            (&Method::DELETE, Some(_)) => {
                let options = if body.is_empty() { Value::Null } else { read()? };
                store.delete(place, &options["preconditions"]).map(|gone| (StatusCode::OK, gone))
            }
            _ => Err(StatusError::method_not_allowed()),
        }
    }

    /// The events of a resource after a version, one per line, until the timeout.
    fn watch(&self, place: ResourcePath, query: ListOptions) -> Answer {
        let server = *self.server.borrow();
        if query.sends_initial && !server.streams_lists {
            return failure(&StatusError::no_initial_events());
        }
        let since = match query.since {
            // Without a version, or from version 0: all existing objects come first.
            None | Some(0) => {
                let store = self.store();
                let mut first = store.initial_events(&place, &query.selector);
                if query.sends_initial {
                    first.extend(store.bookmark(&place, true));
                }
                let version = store.version();
                drop(store);
                return self.events(place, query, version, first);
            }
            Some(_) if !server.keeps_watch_history => return failure(&StatusError::expired()),
            Some(since) => since,
        };
        self.events(place, query, since, Vec::new())
    }

    fn events(
        &self,
        place: ResourcePath,
        query: ListOptions,
        since: u64,
        first: Vec<Value>,
    ) -> Answer {
        let end = query.timeout.map(|timeout| Instant::now() + timeout);
        let from = WatchStream {
            api: self.clone(),
            changed: self.changes.subscribe(),
            server: self.server.subscribe(),
            number: self.server.borrow().number,
            has_bookmarks: query.has_bookmarks,
            place,
            selector: query.selector,
            since,
            ready: first.into(),
            end,
        };
        let mut answer = Response::new(StreamBody::new(from.lines()).boxed_unsync());
        answer.headers_mut().insert(CONTENT_TYPE, JSON);
        answer
    }
}

/// A watch in progress.
struct WatchStream {
    api: InMemoryApiServer,
    changed: watch::Receiver<u64>,
    server: watch::Receiver<ServerState>,
    /// Generation of the server that accepted it.
    number: u32,
    has_bookmarks: bool,
    place: ResourcePath,
    selector: Selector,
    since: u64,
    ready: std::collections::VecDeque<Value>,
    end: Option<Instant>,
}

impl WatchStream {
    fn lines(self) -> impl Stream<Item = Result<Frame<Bytes>, kube::Error>> + Send {
        stream::unfold(self, |mut watching| async move {
            loop {
                let server = *watching.server.borrow_and_update();
                if server.is_stopped || server.number != watching.number {
                    std::future::pending::<()>().await;
                }
                if let Some(event) = watching.ready.pop_front() {
                    // A real server writes the type first, and readers of raw objects rely on it.
                    let (kind, object) = (&event["type"], &event["object"]);
                    let line = format!("{{\"type\":{kind},\"object\":{object}}}\n");
                    return Some((Ok(Frame::data(Bytes::from(line))), watching));
                }
                watching.changed.mark_unchanged();
                let (events, until) = watching.api.store().events(
                    &watching.place,
                    &watching.selector,
                    watching.since,
                );
                watching.since = until;
                watching.ready.extend(events);
                if !watching.ready.is_empty() {
                    continue;
                }
                let (end, next_mark) = (watching.end, Instant::now() + BOOKMARK_INTERVAL);
                let is_over = async move {
                    match end {
                        Some(end) => tokio::time::sleep_until(end).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    changed = watching.changed.changed() => changed.ok()?,
                    changed = watching.server.changed() => changed.ok()?,
                    () = is_over => return None,
                    () = tokio::time::sleep_until(next_mark), if watching.has_bookmarks => {
                        let mark = watching.api.store().bookmark(&watching.place, false);
                        watching.ready.extend(mark);
                    }
                }
            }
        })
    }
}

impl Service<Request<Body>> for InMemoryApiServer {
    type Response = Answer;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Answer, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().answer(request).boxed()
    }
}

/// The interval of a real server.
const BOOKMARK_INTERVAL: Duration = Duration::from_mins(1);

const JSON: http::HeaderValue = http::HeaderValue::from_static("application/json");

/// The parameters of a list or watch.
#[derive(Default)]
struct ListOptions {
    is_watch: bool,
    has_bookmarks: bool,
    sends_initial: bool,
    since: Option<u64>,
    timeout: Option<Duration>,
    selector: Selector,
}

impl ListOptions {
    fn read(text: &str) -> Self {
        let mut query = Self::default();
        for (key, value) in form_urlencoded::parse(text.as_bytes()) {
            match &*key {
                "watch" => query.is_watch = is_true(&value),
                "allowWatchBookmarks" => query.has_bookmarks = is_true(&value),
                "sendInitialEvents" => query.sends_initial = is_true(&value),
                "resourceVersion" => query.since = value.parse().ok(),
                "timeoutSeconds" => query.timeout = value.parse().ok().map(Duration::from_secs),
                "labelSelector" => query.selector.labels(&value),
                "fieldSelector" => query.selector.fields(&value),
                _ => {}
            }
        }
        query
    }
}

fn is_true(value: &str) -> bool {
    matches!(value, "true" | "1")
}

fn full_body(body: Full<Bytes>) -> UnsyncBoxBody<Bytes, kube::Error> {
    body.map_err(|never| match never {}).boxed_unsync()
}

fn json(code: StatusCode, object: &Value) -> Answer {
    let mut answer = Response::new(full_body(Full::from(object.to_string())));
    *answer.status_mut() = code;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    answer
}

fn failure(why: &StatusError) -> Answer {
    json(why.code(), &why.status())
}
