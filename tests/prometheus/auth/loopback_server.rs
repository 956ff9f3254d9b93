//! An HTTP server on loopback, plain or with TLS, whose responses the test defines.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::support::ports::Port;

/// A request with its body.
pub struct ReceivedRequest {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The response to a request.
pub struct TestResponse {
    pub status: u16,
    pub location: Option<String>,
    pub body: String,
}

/// TLS configuration of a server; it may change between connections.
pub type SharedTlsConfig = Arc<Mutex<Arc<ServerConfig>>>;

/// A running server; stops when dropped.
pub struct LoopbackServer {
    /// Base URL of the server.
    pub address: String,
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
    _port: Port,
}

impl ReceivedRequest {
    /// A header, empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The fields of the form in the body.
    pub fn form(&self) -> BTreeMap<String, String> {
        form_urlencoded::parse(&self.body).into_owned().collect()
    }

    /// The query parameters.
    pub fn query(&self) -> BTreeMap<String, String> {
        let query = self.uri.query().unwrap_or_default();
        form_urlencoded::parse(query.as_bytes()).into_owned().collect()
    }
}

/// A 200 response.
pub fn ok_response(body: impl Into<String>) -> TestResponse {
    TestResponse { status: 200, location: None, body: body.into() }
}

/// A response with another status.
pub fn error_response(status: u16) -> TestResponse {
    TestResponse { status, location: None, body: "no".into() }
}

impl LoopbackServer {
    /// Starts a server without TLS.
    pub async fn start(
        answer: impl Fn(&ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    ) -> Self {
        Self::run(None, answer).await
    }

    /// Starts a server with TLS.
    pub async fn start_tls(
        tls: SharedTlsConfig,
        answer: impl Fn(&ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    ) -> Self {
        Self::run(Some(tls), answer).await
    }

    async fn run(
        tls: Option<SharedTlsConfig>,
        answer: impl Fn(&ReceivedRequest) -> TestResponse + Send + Sync + 'static,
    ) -> Self {
        let port = Port::claim();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await.expect("claimed");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://127.0.0.1:{port}");
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let answer = Arc::new(answer);
        let task = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                        async move {
                            let (parts, body) = request.into_parts();
                            let body = body.collect().await.expect("a whole request").to_bytes();
                            let (method, uri) = (parts.method, parts.uri);
                            seen.lock().expect("no panic").push(format!("{method} {uri}"));
                            let received =
                                ReceivedRequest { method, uri, headers: parts.headers, body };
                            Ok::<_, Infallible>(into_http(answer(&received)))
                        }
                    });
                    let tls = tls.as_ref().map(|tls| Arc::clone(&tls.lock().expect("no panic")));
                    tokio::spawn(async move {
                        let server = Builder::new(TokioExecutor::new());
                        // A failed handshake or a closed connection does not affect the server.
                        if let Some(tls) = tls {
                            let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await else {
                                return;
                            };
                            let _ = server.serve_connection(TokioIo::new(stream), service).await;
                        } else {
                            let _ = server.serve_connection(TokioIo::new(stream), service).await;
                        }
                    });
                }
            }
        });
        Self { address, seen, task, _port: port }
    }

    /// Number of requests received.
    pub fn request_count(&self) -> usize {
        self.seen.lock().expect("no panic").len()
    }
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn into_http(reply: TestResponse) -> Response<Full<Bytes>> {
    let mut answer = Response::builder().status(reply.status);
    if let Some(location) = reply.location {
        answer = answer.header("location", location);
    }
    answer.body(Full::from(reply.body)).expect("response")
}
