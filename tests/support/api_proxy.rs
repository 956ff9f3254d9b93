//! Owns a way to the real API server that can be made slow, deaf or unwilling, have others write first, or break off,
//! and that notes what is written through it.

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

/// What happens to a request before it reaches the server: an answer instead, or nothing.
pub type Interception = Pin<Box<dyn Future<Output = Option<Response<Full<Bytes>>>> + Send>>;
type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;
type Interceptor = dyn Fn(&Method, &str) -> Interception + Send + Sync;

/// A proxy, until it is dropped.
pub struct ApiProxy {
    /// A client that goes through it.
    pub client: Client,
    seen: Arc<Mutex<Vec<(Method, String, Instant)>>>,
    written: Arc<Mutex<BTreeSet<String>>>,
    codes: Arc<Mutex<Vec<(Method, String, StatusCode)>>>,
    cuts: watch::Sender<u64>,
    task: JoinHandle<()>,
    port: Port,
}

impl ApiProxy {
    /// Passes requests on with this client, once the meddler lets them.
    pub async fn start(
        behind: Client,
        meddler: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
    ) -> Self {
        Self::start_with_response_interceptor(behind, meddler, |_, _| pass_through()).await
    }

    /// The same with a second meddler, which is asked once the server has answered: it can keep the answer back, or give
    /// another one.
    pub async fn start_with_response_interceptor(
        behind: Client,
        meddler: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
        afterwards: impl Fn(&Method, &str) -> Interception + Send + Sync + 'static,
    ) -> Self {
        let port = Port::claim();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await.expect("claimed");
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let written: Arc<Mutex<BTreeSet<_>>> = Arc::default();
        let codes: Arc<Mutex<Vec<_>>> = Arc::default();
        let meddler: Arc<Interceptor> = Arc::new(meddler);
        let afterwards: Arc<Interceptor> = Arc::new(afterwards);
        let (cuts, cut) = watch::channel(0);
        let task = tokio::spawn({
            let (seen, written, codes) =
                (Arc::clone(&seen), Arc::clone(&written), Arc::clone(&codes));
            async move {
                loop {
                    let Ok((stream, _)) = listener.accept().await else { continue };
                    let (seen, meddler) = (Arc::clone(&seen), Arc::clone(&meddler));
                    let (written, codes) = (Arc::clone(&written), Arc::clone(&codes));
                    let afterwards = Arc::clone(&afterwards);
                    let (behind, cut) = (behind.clone(), cut.clone());
                    tokio::spawn(async move {
                        let service = service_fn(move |request: Request<Incoming>| {
                            let path = request.uri().path().to_owned();
                            let method = request.method().clone();
                            let meddle = meddler(&method, &path);
                            seen.lock().expect("no panic").push((method, path, Instant::now()));
                            let way = ProxyContext {
                                upstream: behind.clone(),
                                written: Arc::clone(&written),
                                codes: Arc::clone(&codes),
                                response_interceptor: Arc::clone(&afterwards),
                            };
                            respond(way, request, meddle, cut.clone())
                        });
                        // A client that goes away is no concern of a test.
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
        Self { client, seen, written, codes, cuts, task, port }
    }

    /// A kubeconfig for a process that is to go through it.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: way\n\
             clusters: [{{name: way, cluster: {{server: '{}'}}}}]\n\
             users: [{{name: way, user: {{}}}}]\n\
             contexts: [{{name: way, context: {{cluster: way, user: way}}}}]\n",
            address(&self.port),
        )
    }

    /// Ends all answers that are still being given: watches, above all.
    pub fn cut_responses(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many requests have arrived.
    pub fn request_count(&self) -> usize {
        self.seen.lock().expect("no panic").len()
    }

    /// All requests that have arrived, in order.
    pub fn requests(&self) -> Vec<(Method, String)> {
        let seen = self.seen.lock().expect("no panic");
        seen.iter().map(|(method, path, _)| (method.clone(), path.clone())).collect()
    }

    /// Those that the server answered, and how, in the order of its answers.
    pub fn responses(&self) -> Vec<(Method, String, StatusCode)> {
        self.codes.lock().expect("no panic").clone()
    }

    /// How many of these the server answered with a conflict: somebody else had written first.
    pub fn conflict_count(&self, is_one: impl Fn(&Method, &str) -> bool) -> usize {
        let late = self.responses().into_iter().filter(|(.., code)| *code == StatusCode::CONFLICT);
        late.filter(|(method, path, _)| is_one(method, path)).count()
    }

    /// The objects below this path that were to be written, a status as the object that it is of: after
    /// `/apis/apps/v1/` it is `namespaces/web/deployments/web`.
    pub fn written_objects(&self, below: &str) -> BTreeSet<String> {
        let written = self.written.lock().expect("no panic");
        written.iter().filter_map(|path| path.strip_prefix(below)).map(str::to_owned).collect()
    }

    /// When requests of this method to paths that end so arrived.
    pub fn arrival_times(&self, method: &Method, end: &str) -> Vec<Instant> {
        let seen = self.seen.lock().expect("no panic");
        let fits = seen.iter().filter(|(is, path, _)| is == method && path.ends_with(end));
        fits.map(|(_, _, at)| *at).collect()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lets a request pass.
pub fn pass_through() -> Interception {
    Box::pin(async { None })
}

/// Never answers.
pub fn hang() -> Interception {
    Box::pin(std::future::pending())
}

/// Answers in the server's place.
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

/// Where requests go on to, and what is noted and asked on the way.
struct ProxyContext {
    upstream: Client,
    written: Arc<Mutex<BTreeSet<String>>>,
    codes: Arc<Mutex<Vec<(Method, String, StatusCode)>>>,
    response_interceptor: Arc<Interceptor>,
}

async fn respond(
    ProxyContext { upstream: behind, written, codes, response_interceptor: afterwards }: ProxyContext,
    request: Request<Incoming>,
    meddle: Interception,
    mut cut: watch::Receiver<u64>,
) -> Result<Answer, Infallible> {
    let whole = |body: Full<Bytes>| body.map_err(|never| match never {}).boxed_unsync();
    if let Some(answer) = meddle.await {
        return Ok(answer.map(whole));
    }
    let (mut parts, body) = request.into_parts();
    let (method, asked) = (parts.method.clone(), parts.uri.path().to_owned());
    let bad = |why: String| {
        let answer = Response::builder().status(StatusCode::BAD_GATEWAY);
        answer.body(whole(Full::from(why))).expect("an answer")
    };
    // One that is given up half-way is nobody's any more.
    let Ok(body) = body.collect().await else { return Ok(bad("half a request".into())) };
    let body = body.to_bytes();
    if parts.method != Method::GET {
        let object = object_path(&parts.method, parts.uri.path(), &body);
        written.lock().expect("no panic").insert(object);
    }
    parts.headers.remove(http::header::HOST);
    let path = parts.uri.path_and_query().expect("a path").as_str();
    parts.uri = path.parse().expect("a path is a URI");
    parts.version = http::Version::HTTP_11;
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    cut.mark_unchanged();
    let answer = match behind.send(request).await {
        Ok(answer) => answer,
        Err(why) => return Ok(bad(why.to_string())),
    };
    codes.lock().expect("no panic").push((method.clone(), asked.clone(), answer.status()));
    if let Some(other) = afterwards(&method, &asked).await {
        return Ok(other.map(whole));
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

/// The path of the object that a request writes: one that is created has its name in the body.
fn object_path(method: &Method, path: &str, body: &[u8]) -> String {
    let path = path.trim_end_matches("/status");
    if method != Method::POST {
        return path.to_owned();
    }
    let created: Value = serde_json::from_slice(body).unwrap_or_default();
    format!("{path}/{}", created["metadata"]["name"].as_str().unwrap_or("?"))
}
