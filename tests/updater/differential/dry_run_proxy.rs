//! A proxy to the real API server that turns every write into a dry run: the server responds, nothing changes, and the proxy
//! records the requests about pods, pass by pass.
//!
//! An updater reads the Lease of the admission controller at the start of each pass, so a pass lies between two reads. The
//! first reads may return 404, which makes idle passes; the read after the last pass gets no response.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::Testbed;
use crate::support::ports::Port;

/// The Lease that an updater reads at the start of each pass.
pub const LEASE: &str = "vpa-admission-controller";

/// Number of passes of each type.
#[derive(Clone, Copy, Debug)]
pub struct PassCounts {
    /// Passes at the start that find no Lease.
    pub idle: usize,
    /// Passes that are recorded.
    pub recorded: usize,
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// A running proxy. Stops when dropped.
#[derive(Debug)]
pub struct DryRunProxy {
    /// Kubeconfig for clients of this proxy.
    pub kubeconfig: PathBuf,
    passes: PassCounts,
    notes: Arc<Mutex<UpdaterLog>>,
    task: JoinHandle<()>,
    _port: Port,
}

/// A write request about a pod, or about anything but pods.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedWrite {
    /// Number of the pass: 0 before the first recorded one.
    pub pass: usize,
    /// Time since the start of the pass.
    #[serde(skip)]
    pub after: Duration,
    /// HTTP method.
    pub method: String,
    /// Request path.
    pub path: String,
    /// Request body.
    pub body: Value,
    /// Status code of the response.
    pub code: u16,
    /// Message of the response.
    #[serde(skip)]
    pub answer: Value,
}

/// What one updater does, in the order of arrival.
#[derive(Debug, Default)]
pub struct UpdaterLog {
    /// Start times of the passes.
    pass_starts: Vec<Instant>,
    /// Requests about pods so far, in order.
    pub asked: Vec<RecordedWrite>,
    /// Writes to anything but pods and events.
    pub elsewhere: BTreeSet<String>,
    read: BTreeSet<String>,
}

// === impl DryRunProxy ===

impl DryRunProxy {
    /// Starts a proxy to the testbed's API server, with the rights of the testbed's owner.
    pub async fn start(bed: &Testbed, name: &str, passes: PassCounts) -> Self {
        let port = Port::claim();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await.expect("port is free");
        let notes: Arc<Mutex<UpdaterLog>> = Arc::default();
        let task = tokio::spawn(serve(listener, bed.client(), passes, Arc::clone(&notes)));
        let kubeconfig = bed.process_guard().folder().join(format!("{name}.kubeconfig"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: way\n\
             clusters: [{{name: way, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             users: [{{name: way, user: {{}}}}]\n\
             contexts: [{{name: way, context: {{cluster: way, user: way}}}}]\n",
            port = port.number(),
        );
        std::fs::write(&kubeconfig, text).expect("testbed directory is writable");
        Self { kubeconfig, passes, notes, task, _port: port }
    }

    /// Whether all passes are done.
    pub fn is_over(&self) -> bool {
        self.notes().is_over(self.passes)
    }

    /// Returns the requests about pods so far, in order.
    pub fn asked(&self) -> Vec<RecordedWrite> {
        self.notes().asked.clone()
    }

    /// Returns the writes to anything but pods and events.
    pub fn elsewhere(&self) -> BTreeSet<String> {
        self.notes().elsewhere.clone()
    }

    /// Returns what was read, as [`read_scope`] names it.
    pub fn read(&self) -> BTreeSet<String> {
        self.notes().read.clone()
    }

    fn notes(&self) -> MutexGuard<'_, UpdaterLog> {
        self.notes.lock().expect("no panic")
    }
}

impl Drop for DryRunProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    behind: Client,
    passes: PassCounts,
    notes: Arc<Mutex<UpdaterLog>>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (behind, notes) = (behind.clone(), Arc::clone(&notes));
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                respond(behind.clone(), passes, Arc::clone(&notes), request)
            });
            // Ignore clients that disconnect.
            let _ = Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn respond(
    behind: Client,
    passes: PassCounts,
    notes: Arc<Mutex<UpdaterLog>>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let (mut parts, body) = request.into_parts();
    let mut path = parts.uri.path().to_owned();
    let mut query = parts.uri.query().unwrap_or_default().to_owned();
    // The client has gone away in the middle of the request.
    let Ok(body) = body.collect().await else { return Ok(bad_request("half a request".into())) };
    let body = body.to_bytes();
    let mut number = None;
    if parts.method == Method::GET {
        if path.ends_with(&format!("/leases/{LEASE}")) {
            let pass = notes.lock().expect("no panic").begin_pass();
            if pass < passes.idle {
                path.push_str("-that-is-absent");
            } else if pass >= passes.idle + passes.recorded {
                std::future::pending::<()>().await;
            }
        } else {
            notes.lock().expect("no panic").read.insert(read_scope(&parts.uri));
        }
    } else if !path.starts_with("/apis/authorization.k8s.io/") {
        query = format!("{query}{}dryRun=All", if query.is_empty() { "" } else { "&" });
        number = notes.lock().expect("no panic").note(passes, &parts.method, &path, &body);
    }
    // Responses are forwarded as they are, so do not ask for compression.
    parts.headers.remove(HOST);
    parts.headers.remove(ACCEPT_ENCODING);
    let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
    parts.uri = uri.parse::<Uri>().expect("a path is a valid URI");
    parts.version = http::Version::HTTP_11;
    let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
    let answer = match behind.send(request).await {
        Ok(answer) => answer,
        Err(why) => return Ok(bad_request(why.to_string())),
    };
    let (parts, body) = answer.into_parts();
    let body = match number {
        None => body.boxed_unsync(),
        Some(number) => {
            let body = match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(why) => return Ok(bad_request(why.to_string())),
            };
            let write = &mut notes.lock().expect("no panic").asked[number];
            write.code = parts.status.as_u16();
            write.answer = serde_json::from_slice(&body).unwrap_or_default();
            Full::from(body).map_err(|never| match never {}).boxed_unsync()
        }
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = parts.status;
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = parts.headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    Ok(answer)
}

/// Path and selectors of a read: a watch counts as the same read as a list.
pub fn read_scope(uri: &Uri) -> String {
    let selectors = uri.query().unwrap_or_default().split('&').filter(|pair| {
        ["fieldSelector=", "labelSelector="].iter().any(|name| pair.starts_with(name))
    });
    let mut selectors: Vec<_> = selectors.filter(|pair| !pair.ends_with('=')).collect();
    selectors.sort_unstable();
    let mark = if selectors.is_empty() { "" } else { "?" };
    format!("{}{mark}{}", uri.path(), selectors.join("&"))
}

fn bad_request(why: String) -> Answer {
    let body = Full::from(why).map_err(|never| match never {}).boxed_unsync();
    let answer = Response::builder().status(StatusCode::BAD_GATEWAY);
    answer.body(body).expect("response")
}

// === impl UpdaterLog ===

impl UpdaterLog {
    /// Records a read of the Lease, and returns the number of the pass that it starts.
    pub fn begin_pass(&mut self) -> usize {
        self.pass_starts.push(Instant::now());
        self.pass_starts.len() - 1
    }

    /// Whether all passes are done.
    pub fn is_over(&self, passes: PassCounts) -> bool {
        self.pass_starts.len() > passes.idle + passes.recorded
    }

    /// Records a write. Returns its index if it is about a pod.
    pub fn note(
        &mut self,
        passes: PassCounts,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Option<usize> {
        let mut segments = path.trim_start_matches('/').split('/').skip(4);
        let of = segments.next().filter(|_| path.starts_with("/api/v1/namespaces/"));
        match of {
            Some("pods") => {}
            _ if path.contains("/events") => return None,
            _ => {
                self.elsewhere.insert(format!("{method} {path}"));
                return None;
            }
        }
        let pass = self.pass_starts.len().saturating_sub(passes.idle).min(passes.recorded);
        let body = serde_json::from_slice(body).unwrap_or_default();
        let after = self.pass_starts.last().map(Instant::elapsed).unwrap_or_default();
        let (method, path) = (method.to_string(), path.to_owned());
        let answer = Value::Null;
        self.asked.push(RecordedWrite { pass, after, method, path, body, code: 0, answer });
        Some(self.asked.len() - 1)
    }
}
