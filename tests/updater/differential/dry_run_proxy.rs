//! Owns a way to the real API server on which every write is a rehearsal: the server answers as if, nothing is changed,
//! and what was asked about pods is written down, pass by pass.
//!
//! An updater looks at the Lease of the admission controller at the start of each pass, so a pass is what lies between
//! two looks. The first looks may find no Lease, which makes passes of nothing; the look after the last pass is not answered.

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

/// The Lease that passes begin with.
pub const LEASE: &str = "vpa-admission-controller";

/// Which passes there are.
#[derive(Clone, Copy, Debug)]
pub struct PassCounts {
    /// Those that find no Lease, at first.
    pub idle: usize,
    /// Those that are written down.
    pub made: usize,
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// One way, until it is dropped.
#[derive(Debug)]
pub struct DryRunProxy {
    /// For whoever is to go this way.
    pub kubeconfig: PathBuf,
    passes: PassCounts,
    notes: Arc<Mutex<UpdaterLog>>,
    task: JoinHandle<()>,
    _port: Port,
}

/// What was asked about a pod, or about what is written beside pods.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedWrite {
    /// In which pass: 0 before the first of those that count.
    pub pass: usize,
    /// How long after its beginning.
    #[serde(skip)]
    pub after: Duration,
    /// How.
    pub method: String,
    /// Of what.
    pub path: String,
    /// What is to be written.
    pub body: Value,
    /// What the server says to it.
    pub code: u16,
    /// In its words.
    #[serde(skip)]
    pub answer: Value,
}

/// What one updater does, as it comes.
#[derive(Debug, Default)]
pub struct UpdaterLog {
    /// When passes began.
    looks: Vec<Instant>,
    /// What was asked about pods so far, in order.
    pub asked: Vec<RecordedWrite>,
    /// What was to be written beside pods and events.
    pub elsewhere: BTreeSet<String>,
    read: BTreeSet<String>,
}

// === impl Rehearsal ===

impl DryRunProxy {
    /// A way to the API server of a bed, with the rights of whoever made the bed.
    pub async fn start(bed: &Testbed, name: &str, passes: PassCounts) -> Self {
        let port = Port::claim();
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await.expect("claimed");
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
        std::fs::write(&kubeconfig, text).expect("the bed's folder is writable");
        Self { kubeconfig, passes, notes, task, _port: port }
    }

    /// Whether all passes were made.
    pub fn is_over(&self) -> bool {
        self.notes().is_over(self.passes)
    }

    /// What was asked about pods so far, in order.
    pub fn asked(&self) -> Vec<RecordedWrite> {
        self.notes().asked.clone()
    }

    /// What was to be written beside pods and events.
    pub fn elsewhere(&self) -> BTreeSet<String> {
        self.notes().elsewhere.clone()
    }

    /// What was read, as [`what_is_read`] names it.
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
            // A client that goes away is no concern of a test.
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
    // One that is given up half-way is nobody's any more.
    let Ok(body) = body.collect().await else { return Ok(bad_request("half a request".into())) };
    let body = body.to_bytes();
    let mut number = None;
    if parts.method == Method::GET {
        if path.ends_with(&format!("/leases/{LEASE}")) {
            let look = notes.lock().expect("no panic").begin_pass();
            if look < passes.idle {
                path.push_str("-that-is-absent");
            } else if look >= passes.idle + passes.made {
                std::future::pending::<()>().await;
            }
        } else {
            notes.lock().expect("no panic").read.insert(read_scope(&parts.uri));
        }
    } else if !path.starts_with("/apis/authorization.k8s.io/") {
        query = format!("{query}{}dryRun=All", if query.is_empty() { "" } else { "&" });
        number = notes.lock().expect("no panic").note(passes, &parts.method, &path, &body);
    }
    // Answers are passed on as they are, so they come as they are to be read.
    parts.headers.remove(HOST);
    parts.headers.remove(ACCEPT_ENCODING);
    let whole = if query.is_empty() { path } else { format!("{path}?{query}") };
    parts.uri = whole.parse::<Uri>().expect("a path is a URI");
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
            let asked = &mut notes.lock().expect("no panic").asked[number];
            asked.code = parts.status.as_u16();
            asked.answer = serde_json::from_slice(&body).unwrap_or_default();
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

/// Path and selectors of what is read: a watch of some objects reads the same as a list of them.
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
    answer.body(body).expect("an answer")
}

// === impl Notes ===

impl UpdaterLog {
    /// Which look at the Lease this is.
    pub fn begin_pass(&mut self) -> usize {
        self.looks.push(Instant::now());
        self.looks.len() - 1
    }

    /// Whether all passes were made.
    pub fn is_over(&self, passes: PassCounts) -> bool {
        self.looks.len() > passes.idle + passes.made
    }

    /// Writes down what is to be written; its number if it is about a pod.
    pub fn note(
        &mut self,
        passes: PassCounts,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Option<usize> {
        let mut words = path.trim_start_matches('/').split('/').skip(4);
        let of = words.next().filter(|_| path.starts_with("/api/v1/namespaces/"));
        match of {
            Some("pods") => {}
            _ if path.contains("/events") => return None,
            _ => {
                self.elsewhere.insert(format!("{method} {path}"));
                return None;
            }
        }
        let pass = self.looks.len().saturating_sub(passes.idle).min(passes.made);
        let body = serde_json::from_slice(body).unwrap_or_default();
        let after = self.looks.last().map(Instant::elapsed).unwrap_or_default();
        let (method, path) = (method.to_string(), path.to_owned());
        let answer = Value::Null;
        self.asked.push(RecordedWrite { pass, after, method, path, body, code: 0, answer });
        Some(self.asked.len() - 1)
    }
}
