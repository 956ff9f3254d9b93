//! An API server that replays recorded responses, with Plimsoll's updater running in this process at the time of the
//! recording.
//!
//! It only returns what a real server returned. A request that was not recorded gets no response and is reported.

use std::cell::Cell;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use plimsoll::cluster::clock::Clock;
use plimsoll::controllers;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

use super::dry_run_proxy::{LEASE, UpdaterLog, read_scope};
use super::exported_metrics::updater_metrics;
use super::generated_restrictions::lease;
use super::recording::{ActionNames, Recorded, Recording, streamed};
use super::{DifferentialPart, UpdaterActions};
use crate::support::clock::wall_now;
use crate::support::http_get::http_get;
use crate::support::wait;

/// Interval between passes on the updater's clock. A pass may take as long in real time.
const INTERVAL: Duration = Duration::from_hours(1);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Boost removal is complete after this many polls in a row without a new request.
const QUIET_POLLS: usize = 40;

type ReplayResponse = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The API server, for one part of a recording.
#[derive(Clone, Debug)]
struct ReplayApiServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recording: Arc<Recording>,
    names: Arc<ActionNames>,
    number: usize,
    part: &'static DifferentialPart,
    notes: Mutex<UpdaterLog>,
    /// Requests that were not recorded.
    unknown: Mutex<Vec<String>>,
    finished: watch::Sender<bool>,
}

/// Returns what Plimsoll's updater does in one part.
pub async fn replay_recording(
    recording: &Arc<Recording>,
    names: &Arc<ActionNames>,
    (number, part): (usize, &'static DifferentialPart),
) -> UpdaterActions {
    let replay = ReplayApiServer(Arc::new(Inner {
        recording: Arc::clone(recording),
        names: Arc::clone(names),
        number,
        part,
        notes: Mutex::default(),
        unknown: Mutex::default(),
        finished: watch::Sender::new(false),
    }));
    let interval = format!("--updater-interval={}s", INTERVAL.as_secs());
    let mut flags = vec!["--address=127.0.0.1:0", "--compat=upstream", &*interval];
    flags.extend(part.flags);
    flags.extend(["--kube-api-qps=-1", "--kube-api-burst=1000"]);
    let home = |name: &str| if name == "NAMESPACE" { "kube-system" } else { "" }.to_owned();
    let config = plimsoll::cli::updater_config(&flags, home).expect("valid flags");
    let began = replay.0.recorded().began.into();
    let clock = Clock::fake(began);
    let client = Client::new(replay.clone(), "kube-system");
    let running = controllers::start(config, client, clock.clone()).await.expect("starts");
    wait::often(POLL_INTERVAL, wait::PATIENCE, "ours has made its passes", || async {
        if replay.0.notes().is_over(part.passes) {
            return Ok(());
        }
        // The updater sleeps for an interval, during which no other time passes.
        clock.step(INTERVAL);
        clock.set(began);
        Err(format!("{:?}", replay.0.unknown.lock().expect("no panic")))
    })
    .await;
    replay.0.is_quiet().await;
    let page = http_get(&format!("http://{}/metrics", running.address())).await.expect("served");
    replay.0.finished.send_replace(true);
    running.stop().await;
    let unknown = replay.0.unknown.lock().expect("no panic").clone();
    assert!(
        unknown.is_empty(),
        "Plimsoll sent a request that the recording of upstream has no response to: run `cargo xtask record updater` and review the \
         difference: {unknown:?}"
    );
    let notes = replay.0.notes();
    UpdaterActions {
        asked: notes.asked.clone(),
        elsewhere: notes.elsewhere.iter().cloned().collect(),
        metrics: updater_metrics(&String::from_utf8_lossy(&page)),
        ..UpdaterActions::default()
    }
}

// === impl Inner ===

impl Inner {
    fn recorded(&self) -> &Recorded {
        &self.recording.parts[self.number]
    }

    fn notes(&self) -> MutexGuard<'_, UpdaterLog> {
        self.notes.lock().expect("no panic")
    }

    /// Waits until there are no new requests: boosts are removed concurrently with the passes, with pauses of 200 ms.
    async fn is_quiet(&self) {
        let state = Cell::new((0, 0));
        wait::often(POLL_INTERVAL, wait::PATIENCE, "no more requests arrive", || async {
            let (before, polls) = state.get();
            let count = self.notes().asked.len();
            state.set((count, if count == before { polls + 1 } else { 0 }));
            if polls < QUIET_POLLS { Err(format!("{count} requests so far")) } else { Ok(()) }
        })
        .await;
    }

    async fn answer(&self, request: Request<Body>) -> ReplayResponse {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.expect("Plimsoll sends complete requests");
        let path = parts.uri.path();
        if parts.method == Method::GET {
            if path.ends_with(&format!("/leases/{LEASE}")) {
                return self.lease().await;
            }
            let query = parts.uri.query().unwrap_or_default();
            return self.read(&read_scope(&parts.uri), query);
        }
        if path.starts_with("/apis/authorization.k8s.io/") {
            let mut review: Value = serde_json::from_slice(&body).expect("JSON");
            review["status"] = json!({ "allowed": true });
            return complete(201, &review);
        }
        let number = self.notes().note(self.part.passes, &parts.method, path, &body);
        let Some(number) = number else {
            return complete(201, &serde_json::from_slice(&body).unwrap_or_default());
        };
        let write = self.notes().asked[number].clone();
        let name = self.names.name(&write);
        let known = name.as_ref().and_then(|name| self.recorded().answers.get(name));
        let answer = match known {
            Some(answer) => (answer.code, &answer.body),
            // Something upstream did not do is a difference, which the comparison reports.
            None => (501, &Value::Null),
        };
        self.notes().asked[number].code = answer.0;
        complete(answer.0, answer.1)
    }

    /// The Lease that an updater reads at the start of each pass.
    async fn lease(&self) -> ReplayResponse {
        let passes = self.part.passes;
        let pass = self.notes().begin_pass();
        if pass >= passes.idle + passes.recorded {
            let mut finished = self.finished.subscribe();
            finished.wait_for(|finished| *finished).await.expect("sender is alive");
        } else if pass >= passes.idle {
            // The Lease is renewed in real time, independent of the updater's clock.
            return complete(200, &lease(wall_now()));
        }
        absent(LEASE)
    }

    fn read(&self, scope: &str, query: &str) -> ReplayResponse {
        let is_set = |pair: &str| query.split('&').any(|other| other == pair);
        let Some(answer) = self.recording.reads.get(scope) else {
            self.unknown.lock().expect("no panic").push(scope.to_owned());
            return absent(scope);
        };
        if answer.code != 200 || !is_set("watch=true") {
            return complete(answer.code, &answer.body);
        }
        let events =
            if is_set("sendInitialEvents=true") { streamed(&answer.body) } else { String::new() };
        let begins = stream::iter([Ok(Frame::data(Bytes::from(events)))]);
        let body = StreamBody::new(begins.chain(stream::pending()));
        Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(body.boxed_unsync())
            .expect("response")
    }
}

fn complete(code: u16, body: &Value) -> ReplayResponse {
    let body = Full::from(body.to_string()).boxed_unsync();
    let answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    answer.body(body).expect("response")
}

fn absent(scope: &str) -> ReplayResponse {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound",
        "message": format!("{scope} not found"), "code": 404,
    });
    complete(404, &status)
}

impl Service<Request<Body>> for ReplayApiServer {
    type Response = ReplayResponse;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<ReplayResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let replay = self.clone();
        async move { Ok(replay.0.answer(request).await) }.boxed()
    }
}
