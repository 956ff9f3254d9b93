//! Owns an API server that answers as a real one did when it was recorded, and has our updater make its passes with it,
//! in this process, at the time of the recording.
//!
//! It is no fake: it knows nothing but what a real server said. What was not asked then is not answered, and is named.

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
use plimsoll::clock::Clock;
use plimsoll::run::updater;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

use super::recording::{Deeds, Recorded, Recording, streamed};
use super::rehearsal::{LEASE, Notes, what_is_read};
use super::surroundings::lease;
use super::told::about_updaters;
use super::{Did, Part};
use crate::support::clock::wall_now;
use crate::support::fetch::fetch;
use crate::support::wait;

/// From pass to pass, on the updater's clock. A pass may take as long on real time.
const INTERVAL: Duration = Duration::from_hours(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// The end of boosts is over when at so many looks in a row nothing more was asked.
const QUIET_LOOKS: usize = 40;

type Answered = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// The API server, for one part of a recording.
#[derive(Clone, Debug)]
struct Replay(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    recording: Arc<Recording>,
    deeds: Arc<Deeds>,
    number: usize,
    part: &'static Part,
    notes: Mutex<Notes>,
    /// What was not asked when this was recorded.
    unknown: Mutex<Vec<String>>,
    over: watch::Sender<bool>,
}

/// What our updater does in one part.
pub async fn play(
    recording: &Arc<Recording>,
    deeds: &Arc<Deeds>,
    (number, part): (usize, &'static Part),
) -> Did {
    let replay = Replay(Arc::new(Inner {
        recording: Arc::clone(recording),
        deeds: Arc::clone(deeds),
        number,
        part,
        notes: Mutex::default(),
        unknown: Mutex::default(),
        over: watch::Sender::new(false),
    }));
    let interval = format!("--updater-interval={}s", INTERVAL.as_secs());
    let mut flags = vec!["--address=127.0.0.1:0", "--compat=upstream", &*interval];
    flags.extend(part.flags);
    flags.extend(["--kube-api-qps=-1", "--kube-api-burst=1000"]);
    let home = |name: &str| if name == "NAMESPACE" { "kube-system" } else { "" }.to_owned();
    let config = plimsoll::cli::updater_config(&flags, home).expect("flags that make sense");
    let began = replay.0.recorded().began.into();
    let clock = Clock::stepped(began);
    let client = Client::new(replay.clone(), "kube-system");
    let running = updater::start(config, client, clock.clone()).await.expect("starts");
    wait::often(BETWEEN_LOOKS, wait::PATIENCE, "ours has made its passes", || async {
        if replay.0.notes().is_over(part.passes) {
            return Ok(());
        }
        // It sleeps for an interval, and finds that no time has gone by.
        clock.step(INTERVAL);
        clock.set(began);
        Err(format!("{:?}", replay.0.unknown.lock().expect("no panic")))
    })
    .await;
    replay.0.is_quiet().await;
    let page = fetch(&format!("http://{}/metrics", running.address())).await.expect("is served");
    replay.0.over.send_replace(true);
    running.stop().await;
    let unknown = replay.0.unknown.lock().expect("no panic").clone();
    assert!(
        unknown.is_empty(),
        "ours asks what upstream's recording has no answer to: run `cargo xtask record updater` and review the \
         difference: {unknown:?}"
    );
    let notes = replay.0.notes();
    Did {
        asked: notes.asked.clone(),
        elsewhere: notes.elsewhere.iter().cloned().collect(),
        metrics: about_updaters(&String::from_utf8_lossy(&page)),
        ..Did::default()
    }
}

// === impl Inner ===

impl Inner {
    fn recorded(&self) -> &Recorded {
        &self.recording.parts[self.number]
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("no panic")
    }

    /// Waits until nothing more is asked: boosts are taken back beside the passes, after a pause of a fifth of a second.
    async fn is_quiet(&self) {
        let looked = Cell::new((0, 0));
        wait::often(BETWEEN_LOOKS, wait::PATIENCE, "nothing more is asked", || async {
            let (before, looks) = looked.get();
            let count = self.notes().asked.len();
            looked.set((count, if count == before { looks + 1 } else { 0 }));
            if looks < QUIET_LOOKS { Err(format!("{count} deeds so far")) } else { Ok(()) }
        })
        .await;
    }

    async fn answer(&self, request: Request<Body>) -> Answered {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.expect("ours sends whole requests");
        let path = parts.uri.path();
        if parts.method == Method::GET {
            if path.ends_with(&format!("/leases/{LEASE}")) {
                return self.lease().await;
            }
            let query = parts.uri.query().unwrap_or_default();
            return self.read(&what_is_read(&parts.uri), query);
        }
        if path.starts_with("/apis/authorization.k8s.io/") {
            let mut review: Value = serde_json::from_slice(&body).expect("JSON");
            review["status"] = json!({ "allowed": true });
            return whole(201, &review);
        }
        let number = self.notes().note(self.part.passes, &parts.method, path, &body);
        let Some(number) = number else {
            return whole(201, &serde_json::from_slice(&body).unwrap_or_default());
        };
        let asked = self.notes().asked[number].clone();
        let deed = self.deeds.name(&asked);
        let known = deed.as_ref().and_then(|deed| self.recorded().answers.get(deed));
        let answer = match known {
            Some(answer) => (answer.code, &answer.body),
            // What upstream did not do is a difference, and not for this server to judge.
            None => (501, &Value::Null),
        };
        self.notes().asked[number].code = answer.0;
        whole(answer.0, answer.1)
    }

    /// The Lease that passes begin with.
    async fn lease(&self) -> Answered {
        let passes = self.part.passes;
        let look = self.notes().look();
        if look >= passes.idle + passes.made {
            let mut over = self.over.subscribe();
            over.wait_for(|over| *over).await.expect("its sender is here");
        } else if look >= passes.idle {
            // It is renewed on real time, whatever clock the updater runs on.
            return whole(200, &lease(wall_now()));
        }
        absent(LEASE)
    }

    fn read(&self, what: &str, query: &str) -> Answered {
        let is_set = |pair: &str| query.split('&').any(|one| one == pair);
        let Some(answer) = self.recording.reads.get(what) else {
            self.unknown.lock().expect("no panic").push(what.to_owned());
            return absent(what);
        };
        if answer.code != 200 || !is_set("watch=true") {
            return whole(answer.code, &answer.body);
        }
        let events =
            if is_set("sendInitialEvents=true") { streamed(&answer.body) } else { String::new() };
        let begins = stream::iter([Ok(Frame::data(Bytes::from(events)))]);
        let body = StreamBody::new(begins.chain(stream::pending()));
        Response::builder()
            .header(CONTENT_TYPE, "application/json")
            .body(body.boxed_unsync())
            .expect("an answer")
    }
}

fn whole(code: u16, body: &Value) -> Answered {
    let body = Full::from(body.to_string()).boxed_unsync();
    let answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    answer.body(body).expect("an answer")
}

fn absent(what: &str) -> Answered {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound",
        "message": format!("{what} not found"), "code": 404,
    });
    whole(404, &status)
}

impl Service<Request<Body>> for Replay {
    type Response = Answered;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Answered, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let replay = self.clone();
        async move { Ok(replay.0.answer(request).await) }.boxed()
    }
}
