//! A proxy to a real Prometheus that delays, truncates, replaces or drops responses.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION, RETRY_AFTER,
};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{ports::Port, wait};

/// A fault of one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The response is forwarded.
    None,
    /// No response.
    Hang,
    /// The body is sent in chunks of this size, with a pause before each.
    Slow(usize, Duration),
    /// The connection is closed after this many bytes of the body.
    Disconnected(usize),
    /// The body ends after this many bytes as if it were complete.
    Truncated(usize),
    /// Another response: status, content type, body.
    Replaced(u16, &'static str, &'static str),
    /// The real body with another content type.
    Typed(&'static str),
    /// 302 to a login page.
    Redirect,
    /// 429 with a `Retry-After` of this many seconds.
    Busy(u64),
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// A running proxy; stops when dropped.
pub struct FaultyProxy {
    url: String,
    state: Arc<State>,
    task: JoinHandle<()>,
    _port: Port,
}

#[derive(Default)]
struct State {
    upstream: String,
    /// Faults of the next requests, in order.
    next_faults: Mutex<VecDeque<Fault>>,
    /// Fault of all other requests.
    standing_fault: Mutex<Option<Fault>>,
    /// Requests forwarded to the server: paths with their forms.
    forwarded: Mutex<Vec<String>>,
    /// The only bearer token that is accepted, if one is required.
    token: Mutex<Option<String>>,
    /// A path that returns 404.
    missing_path: Mutex<Option<&'static str>>,
    /// Fault of requests whose path or form contains this, and for how many of them.
    matching_fault: Mutex<Option<(&'static str, Fault, usize)>>,
    /// Queries that contain this are rejected.
    rejected_part: Mutex<Option<&'static str>>,
    seen: AtomicUsize,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

impl FaultyProxy {
    /// Starts a proxy to the server at this address.
    pub async fn start(behind: &str) -> Self {
        let port = Port::claim();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await.expect("claimed");
        let state = Arc::new(State { upstream: behind.to_owned(), ..State::default() });
        let task = tokio::spawn({
            let state = Arc::clone(&state);
            async move {
                loop {
                    let Ok((connection, _)) = listener.accept().await else { continue };
                    let state = Arc::clone(&state);
                    let service = service_fn(move |request| {
                        let state = Arc::clone(&state);
                        async move { Ok::<_, Infallible>(state.respond(request).await) }
                    });
                    tokio::spawn(async move {
                        // A client that disconnects is not an error here.
                        let _ = Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(connection), service)
                            .await;
                    });
                }
            }
        });
        Self { url: format!("http://127.0.0.1:{}", port.number()), state, task, _port: port }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Injects faults into the next requests, one each.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut next = self.state.next_faults.lock().expect("no panic");
        next.clear();
        next.extend(faults);
    }

    /// Injects the fault into all other requests from now on.
    pub fn fail_all(&self, fault: Fault) {
        *self.state.standing_fault.lock().expect("no panic") = Some(fault);
    }

    /// Injects the fault into the next requests whose path or form contains this, up to a number.
    pub fn fail_matching(&self, part: &'static str, fault: Fault, count: usize) {
        *self.state.matching_fault.lock().expect("no panic") = Some((part, fault, count));
    }

    /// Runs something, and steps the clock while no request is under way: pauses before retries take no time.
    pub async fn without_pauses<T>(&self, work: impl Future<Output = T>) -> T {
        // Longer than the pauses of the client.
        const STEP: Duration = Duration::from_secs(20);
        let mut work = std::pin::pin!(work);
        let mut idle = 0;
        loop {
            tokio::select! {
                biased;
                result = &mut work => return result,
                () = tokio::time::sleep(Duration::from_millis(2)) => {}
            }
            let is_idle = self.state.in_flight.load(Ordering::SeqCst) == 0;
            idle = if is_idle { idle + 1 } else { 0 };
            if idle == 20 {
                tokio::time::pause();
                tokio::time::advance(STEP).await;
                tokio::time::resume();
                idle = 0;
            }
        }
    }

    /// Returns the requests forwarded since the last call, each a path with its form.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.forwarded.lock().expect("no panic"))
    }

    /// Rejects requests without this bearer token from now on.
    pub fn require_token(&self, token: &str) {
        *self.state.token.lock().expect("no panic") = Some(format!("Bearer {token}"));
    }

    /// Responds 404 at this path.
    pub fn respond_not_found_at(&self, path: &'static str) {
        *self.state.missing_path.lock().expect("no panic") = Some(path);
    }

    /// Rejects each query whose form contains this, as an invalid one.
    pub fn reject_queries_with(&self, part: &'static str) {
        *self.state.rejected_part.lock().expect("no panic") = Some(part);
    }

    /// Number of requests received.
    pub fn request_count(&self) -> usize {
        self.state.seen.load(Ordering::SeqCst)
    }

    /// Waits until `requests` requests were received and the last one is pending, then steps the clock by `limit`. A
    /// fault thus times out at once, and healthy requests are not in a hurry.
    pub async fn time_out_at(&self, requests: usize, limit: Duration) {
        let checks = std::cell::Cell::new(0);
        wait::until("only the faulty request is in flight", || async {
            let is_alone = self.state.in_flight.load(Ordering::SeqCst) == 1;
            // Keep the clock until the last response has been read.
            checks.set(if is_alone && self.request_count() >= requests {
                checks.get() + 1
            } else {
                0
            });
            (checks.get() > 2).then_some(())
        })
        .await;
        tokio::time::pause();
        tokio::time::advance(limit).await;
        tokio::time::resume();
    }

    /// The maximum number of concurrent requests.
    pub fn max_in_flight(&self) -> usize {
        self.state.max_in_flight.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Counts a request as in flight until its body has been sent.
struct InFlightRequest(Arc<State>);

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl State {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        self.seen.fetch_add(1, Ordering::SeqCst);
        let under_way = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.max_in_flight.fetch_max(under_way, Ordering::SeqCst);
        let under = InFlightRequest(Arc::clone(&self));
        let token = self.token.lock().expect("no panic").clone();
        let shown = request.headers().get(AUTHORIZATION).and_then(|shown| shown.to_str().ok());
        if token.is_some() && shown != token.as_deref() {
            return proxy_response(401, &[(CONTENT_TYPE, "text/plain")], "the token has expired");
        }
        if *self.missing_path.lock().expect("no panic") == Some(request.uri().path()) {
            return proxy_response(404, &[(CONTENT_TYPE, "text/plain")], "404 page not found");
        }
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return proxy_response(400, &[], "half a request");
        };
        let request = Request::from_parts(parts, body.to_bytes());
        let next = self.next_faults.lock().expect("no panic").pop_front();
        let next = next.or_else(|| self.take_matching_fault(&request));
        let usual = || self.standing_fault.lock().expect("no panic").clone();
        let fault = next.or_else(usual).unwrap_or(Fault::None);
        match fault {
            Fault::Hang => std::future::pending().await,
            Fault::Replaced(status, kind, body) => {
                proxy_response(status, &[(CONTENT_TYPE, kind)], body)
            }
            Fault::Redirect => proxy_response(302, &[(LOCATION, "/login?next=%2F")], ""),
            Fault::Busy(seconds) => {
                proxy_response(429, &[(RETRY_AFTER, &seconds.to_string())], "slow\ndown")
            }
            fault => self.pass(request, fault, under).await,
        }
    }

    fn take_matching_fault(&self, request: &Request<Bytes>) -> Option<Fault> {
        let mut matching = self.matching_fault.lock().expect("no panic");
        let (part, fault, count) = matching.as_mut().filter(|(.., count)| *count > 0)?;
        let form = String::from_utf8_lossy(request.body());
        let is_matching = request.uri().to_string().contains(*part) || form.contains(*part);
        is_matching.then(|| {
            *count -= 1;
            fault.clone()
        })
    }

    async fn pass(
        &self,
        request: Request<Bytes>,
        fault: Fault,
        under: InFlightRequest,
    ) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().expect("a path").as_str();
        let form = String::from_utf8_lossy(&body);
        if self.rejected_part.lock().expect("no panic").is_some_and(|part| form.contains(part)) {
            let words = r#"{"status":"error","errorType":"bad_data","error":"not like this"}"#;
            return proxy_response(400, &[(CONTENT_TYPE, "application/json")], words);
        }
        self.forwarded.lock().expect("no panic").push(format!("{path}?{form}"));
        parts.uri = format!("{}{path}", self.upstream).parse().expect("an address");
        parts.headers.remove(HOST);
        if !matches!(fault, Fault::None) {
            parts.headers.remove(ACCEPT_ENCODING);
        }
        let request = Request::from_parts(parts, Full::new(body));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let Ok(answer) = client.request(request).await else {
            return proxy_response(502, &[], "nobody");
        };
        let (mut parts, body) = answer.into_parts();
        if matches!(fault, Fault::None) {
            let body = body.map_err(std::io::Error::other).map_frame(move |frame| {
                // Keep the guard until the last frame is sent.
                let _ = &under;
                frame
            });
            return Response::from_parts(parts, body.boxed_unsync());
        }
        parts.headers.remove(CONTENT_LENGTH);
        let Ok(body) = body.collect().await else {
            return proxy_response(502, &[], "half an answer");
        };
        let mut body = body.to_bytes();
        let (piece, pause, ends) = match fault {
            Fault::Slow(piece, pause) => (piece, pause, Ok(())),
            Fault::Disconnected(after) => {
                assert!(after < body.len(), "{} bytes cannot be cut at {after}", body.len());
                body.truncate(after);
                (1024, Duration::ZERO, Err(()))
            }
            Fault::Truncated(after) => {
                body.truncate(after);
                (1024, Duration::ZERO, Ok(()))
            }
            Fault::Typed(kind) => {
                parts.headers.insert(CONTENT_TYPE, kind.parse().expect("a content type"));
                (1024, Duration::ZERO, Ok(()))
            }
            _ => (1024, Duration::ZERO, Ok(())),
        };
        let mut pieces: Vec<std::io::Result<Frame<Bytes>>> = body
            .chunks(piece)
            .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
            .collect();
        if ends.is_err() {
            pieces.push(Err(std::io::Error::other("cut")));
        }
        let body = stream::iter(pieces).then(move |piece| {
            let _ = &under;
            async move {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                } else if piece.is_err() {
                    // Send what arrived before this first.
                    tokio::task::yield_now().await;
                }
                piece
            }
        });
        Response::from_parts(parts, StreamBody::new(body).boxed_unsync())
    }
}

fn proxy_response(status: u16, headers: &[(http::HeaderName, &str)], body: &str) -> Response<Body> {
    let body = Full::from(body.to_owned()).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    for (name, value) in headers {
        answer.headers_mut().insert(name, value.parse().expect("a value"));
    }
    answer
}
