//! Owns what a recommender in the test's own process is seen to do: its writes, and its words in the log.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use kube::client::Body;
use plimsoll::{
    cli::recommender_config,
    clock::Clock,
    run::recommender::{self, Running},
};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::subscriber::DefaultGuard;

use crate::support::fleet::collection;
use crate::support::ports::Port;

/// A way to the API server that notes what is written through it.
pub struct Noted {
    /// Goes through it, with all rights.
    pub client: Client,
    writes: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
    _port: Port,
}

impl Noted {
    /// Passes everything on as this client.
    pub async fn through(behind: Client) -> Self {
        let port = Port::claim();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        let listener = TcpListener::bind(address).await.expect("claimed");
        let writes: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let noted = Arc::clone(&writes);
        let task = tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (behind, noted) = (behind.clone(), Arc::clone(&noted));
                let service = service_fn(move |request: Request<Incoming>| {
                    pass_on(behind.clone(), request, Arc::clone(&noted))
                });
                tokio::spawn(async move {
                    // A client that goes away is no concern of a test.
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        let address = format!("http://127.0.0.1:{}", port.number());
        let mut config = kube::Config::new(address.parse().expect("an address"));
        config.default_retry = false;
        let client = Client::try_from(config).expect("a client");
        Self { client, writes, task, _port: port }
    }

    /// The objects of the autoscaler that were written: `namespaces/web/verticalpodautoscalers/web`.
    pub fn writes(&self) -> BTreeSet<String> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass_on(
    behind: Client,
    request: Request<Incoming>,
    noted: Arc<Mutex<BTreeSet<String>>>,
) -> kube::Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.expect("the request is whole").to_bytes();
    if parts.method != Method::GET
        && let Some(path) = parts.uri.path().strip_prefix("/apis/autoscaling.k8s.io/v1/")
    {
        let mut object = path.trim_end_matches("/status").to_owned();
        if parts.method == Method::POST {
            let created: Value = serde_json::from_slice(&body).unwrap_or_default();
            object = format!("{object}/{}", created["metadata"]["name"].as_str().unwrap_or("?"));
        }
        noted.lock().unwrap_or_else(PoisonError::into_inner).insert(object);
    }
    parts.headers.remove(http::header::HOST);
    let path = parts.uri.path_and_query().expect("a path").as_str();
    parts.uri = path.parse().expect("a path is a URI");
    parts.version = http::Version::HTTP_11;
    // Watches go on, so the answer is passed on as it comes.
    behind.send(Request::from_parts(parts, Body::from(body.to_vec()))).await
}

/// Starts a recommender with this client and these flags.
pub async fn start_with(client: Client, clock: &Clock, flags: &[&str]) -> Running {
    let mut all = vec!["--address=127.0.0.1:0"];
    all.extend(flags);
    let config = recommender_config(&all).expect("flags that make sense");
    recommender::start(config, client, clock.clone()).await.expect("starts")
}

/// All objects of a kind of the autoscaler in a namespace, as they are on the wire.
pub async fn read(client: &Client, namespace: &str, plural: &str) -> Vec<Value> {
    let path = collection("autoscaling.k8s.io/v1", namespace, plural);
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let list: Value = client.request(request).await.expect("a list");
    list["items"].as_array().cloned().unwrap_or_default()
}

/// What is logged on this thread, where all tasks of a test run.
#[derive(Clone, Default)]
pub struct Words(Arc<Mutex<Vec<u8>>>);

impl Words {
    /// Listens until the guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        let words = Self::default();
        let writer = words.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .finish();
        (words, tracing::subscriber::set_default(subscriber))
    }

    /// The last lines, for a test that fails.
    pub fn tail(&self) -> String {
        let lines = self.lines(&[]);
        lines[lines.len().saturating_sub(25)..].join("\n")
    }

    /// The lines that contain all of this.
    pub fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(has_all).map(str::to_owned).collect()
    }
}

impl io::Write for Words {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
