//! A proxy in front of the real API server that can delay, reject or cut off requests, run code before them, and
//! record the writes.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ports::Port;

/// Runs before a request is forwarded: returns a response instead, or `None` to forward it.
pub type Interception = Pin<Box<dyn Future<Output = Option<Response<Full<Bytes>>>> + Send>>;
type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;
type Interceptor = dyn Fn(&Method, &str) -> Interception + Send + Sync;

/// Method and path of a request that the server responded to, the status, and when the request arrived.
type ServerResponse = (Method, String, StatusCode, Instant);

/// A proxy, which runs until it is dropped.
pub struct ApiProxy {
    /// A client that uses the proxy.
    pub client: Client,
    received: Arc<Mutex<Vec<(Method, String, Instant)>>>,
    written: Arc<Mutex<BTreeSet<String>>>,
    codes: Arc<Mutex<Vec<ServerResponse>>>,
    cuts: watch::Sender<u64>,
    task: JoinHandle<()>,
    port: Port,
}

impl ApiProxy {
    /// Starts a proxy that forwards requests with this client after `interceptor` has let them pass.
    pub async fn start(
        behind: Client,
        interceptor: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
    ) -> Self {
        Self::start_with_response_interceptor(behind, interceptor, |_, _| pass_through()).await
    }

    /// Like `start`, with a second interceptor that runs after the server responded: it can delay the response or
    /// replace it.
    pub async fn start_with_response_interceptor(
        behind: Client,
        interceptor: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
        afterwards: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
    ) -> Self {
        let port = Port::claim();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await.expect("claimed");
        let received: Arc<Mutex<Vec<_>>> = Arc::default();
        let written: Arc<Mutex<BTreeSet<_>>> = Arc::default();
        let codes: Arc<Mutex<Vec<_>>> = Arc::default();
        let interceptor: Arc<Interceptor> = Arc::new(interceptor);
        let afterwards: Arc<Interceptor> = Arc::new(afterwards);
        let (cuts, cut) = watch::channel(0);
        let task = tokio::spawn({
            let (received, written, codes) =
                (Arc::clone(&received), Arc::clone(&written), Arc::clone(&codes));
            async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    let (received, interceptor) = (Arc::clone(&received), Arc::clone(&interceptor));
                    let (written, codes) = (Arc::clone(&written), Arc::clone(&codes));
                    let afterwards = Arc::clone(&afterwards);
                    let (behind, cut) = (behind.clone(), cut.clone());
                    tokio::spawn(async move {
                        let service = service_fn(move |request: Request<Incoming>| {
                            let path = request.uri().path().to_owned();
                            let method = request.method().clone();
                            let interception = interceptor(&method, &path);
                            received.lock().expect("no panic").push((method, path, Instant::now()));
                            let context = ProxyContext {
                                upstream: behind.clone(),
                                written: Arc::clone(&written),
                                codes: Arc::clone(&codes),
                                response_interceptor: Arc::clone(&afterwards),
                            };
                            respond(context, request, interception, cut.clone())
                        });
                        // Ignore clients that disconnect.
                        let _ = Builder::new(TokioExecutor::new())
                            .serve_connection(TokioIo::new(stream), service)
                            .await;
                    });
                }
            }
        });
        let mut config = kube::Config::new(address(&port).parse().expect("an address"));
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        Self { client, received, written, codes, cuts, task, port }
    }

    /// A kubeconfig for a process that uses the proxy.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\n\
             clusters: [{{name: proxy, cluster: {{server: '{}'}}}}]\n\
             users: [{{name: proxy, user: {{}}}}]\n\
             contexts: [{{name: proxy, context: {{cluster: proxy, user: proxy}}}}]\n",
            address(&self.port),
        )
    }

    /// Ends all responses in progress, in particular watches.
    pub fn cut_responses(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The number of requests received.
    pub fn request_count(&self) -> usize {
        self.received.lock().expect("no panic").len()
    }

    /// All requests received, in order.
    pub fn requests(&self) -> Vec<(Method, String)> {
        let received = self.received.lock().expect("no panic");
        received.iter().map(|(method, path, _)| (method.clone(), path.clone())).collect()
    }

    /// The requests that the server responded to, with status codes, in order of the responses.
    pub fn responses(&self) -> Vec<(Method, String, StatusCode)> {
        let responses = self.codes.lock().expect("no panic");
        responses
            .iter()
            .map(|(method, path, status, _)| (method.clone(), path.clone(), *status))
            .collect()
    }

    /// The requests that the server accepted, and when they arrived, in that order.
    pub fn accepted(&self) -> Vec<(Method, String, Instant)> {
        let responses = self.codes.lock().expect("no panic");
        let accepted = responses.iter().filter(|(_, _, status, _)| status.is_success());
        let mut accepted: Vec<_> =
            accepted.map(|(method, path, _, at)| (method.clone(), path.clone(), *at)).collect();
        accepted.sort_by_key(|(.., at)| *at);
        accepted
    }

    /// The number of these requests that the server rejected with a conflict.
    pub fn conflict_count(&self, is_one: impl Fn(&Method, &str) -> bool) -> usize {
        let late = self.responses().into_iter().filter(|(.., code)| *code == StatusCode::CONFLICT);
        late.filter(|(method, path, _)| is_one(method, path)).count()
    }

    /// The paths of the objects below this path that requests tried to write; that of a status is the path of its
    /// object. Below `/apis/apps/v1/` it is `namespaces/web/deployments/web`.
    pub fn written_objects(&self, below: &str) -> BTreeSet<String> {
        let written = self.written.lock().expect("no panic");
        written.iter().filter_map(|path| path.strip_prefix(below)).map(str::to_owned).collect()
    }

    /// When requests with this method and path suffix arrived.
    pub fn arrival_times(&self, method: &Method, end: &str) -> Vec<Instant> {
        let received = self.received.lock().expect("no panic");
        let fits = received.iter().filter(|(is, path, _)| is == method && path.ends_with(end));
        fits.map(|(_, _, at)| *at).collect()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards a request.
pub fn pass_through() -> Interception {
    Box::pin(async { None })
}

/// Never responds.
pub fn hang() -> Interception {
    Box::pin(std::future::pending())
}

/// Responds in place of the server.
pub fn respond_with(code: u16, retry_after: Option<u64>) -> Interception {
    let mut answer = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        answer = answer.header("retry-after", seconds);
    }
    let answer = answer.body(Full::from("not\nnow")).expect("an answer");
    Box::pin(async { Some(answer) })
}

fn address(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}

/// The upstream client, and the records and interceptors of a request.
struct ProxyContext {
    upstream: Client,
    written: Arc<Mutex<BTreeSet<String>>>,
    codes: Arc<Mutex<Vec<ServerResponse>>>,
    response_interceptor: Arc<Interceptor>,
}

async fn respond(
    ProxyContext { upstream: behind, written, codes, response_interceptor: afterwards }: ProxyContext,
    request: Request<Incoming>,
    interception: Interception,
    mut cut: watch::Receiver<u64>,
) -> Result<Answer, Infallible> {
    let arrived = Instant::now();
    let boxed = |body: Full<Bytes>| body.map_err(|never| match never {}).boxed_unsync();
    if let Some(answer) = interception.await {
        return Ok(answer.map(boxed));
    }
    let (mut parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let bad = |why: String| {
        let answer = Response::builder().status(StatusCode::BAD_GATEWAY);
        answer.body(boxed(Full::from(why))).expect("an answer")
    };
    // A request that the client aborted.
    let Ok(body) = body.collect().await else { return Ok(bad("truncated request".into())) };
    let body = body.to_bytes();
    if parts.method != Method::GET {
        let object = object_path(&parts.method, parts.uri.path(), &body);
        written.lock().expect("no panic").insert(object);
    }
    parts.headers.remove(http::header::HOST);
    let target = parts.uri.path_and_query().expect("a path").as_str();
    parts.uri = target.parse().expect("a path is a URI");
    parts.version = http::Version::HTTP_11;
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    cut.mark_unchanged();
    let answer = match behind.send(request).await {
        Ok(answer) => answer,
        Err(why) => return Ok(bad(why.to_string())),
    };
    let response = (method.clone(), path.clone(), answer.status(), arrived);
    codes.lock().expect("no panic").push(response);
    if let Some(other) = afterwards(&method, &path).await {
        return Ok(other.map(boxed));
    }
    let (parts, body) = answer.into_parts();
    let ends = async move {
        if cut.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let body = BodyExt::boxed_unsync(StreamBody::new(BodyStream::new(body).take_until(ends)));
    let mut answer = Response::new(body);
    *answer.status_mut() = parts.status;
    for name in [http::header::CONTENT_TYPE, http::header::RETRY_AFTER] {
        if let Some(value) = parts.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    Ok(answer)
}

/// The path of the object that a request writes; for a create the name is in the body.
fn object_path(method: &Method, path: &str, body: &[u8]) -> String {
    let path = path.trim_end_matches("/status");
    if method != Method::POST {
        return path.to_owned();
    }
    let created: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{path}/{}", created["metadata"]["name"].as_str().unwrap_or("?"))
}
