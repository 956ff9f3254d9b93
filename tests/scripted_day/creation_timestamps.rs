//! Rewrites what the controllers read from the API server, because two minutes of the day take less than a second.
//!
//! - Creation timestamps of pods come from the wall clock, which cannot be stepped: by the stepped clock every pod would
//!   be older than it is, and the updater would never observe the replacement of an evicted pod. So the controllers
//!   read creation timestamps of the stepped clock.
//! - Recommender and updater run their passes at the same moment. Recommendations are written after the updater's pass, so
//!   that pods created meanwhile are sized by the recommendation that the updater used, as is nearly always the case in
//!   reality.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use jiff::Timestamp;
use kube::{Client, client::Body};
use plimsoll::cluster::clock::Clock;
use tokio::sync::watch;
use tower_service::Service;

/// The text before an object's UID and before its creation timestamp: the API server writes them in this order, and
/// other UIDs, such as those of owners, after both.
const UID_MARKER: &str = "\"uid\":\"";
/// Part of the recommender's writes only.
const RECOMMENDATION_MARKER: &[u8] = b"\"recommendation\"";
const CREATION_TIMESTAMP_MARKER: &str = "\"creationTimestamp\":\"";

/// Wraps a client so that a pod is created when this clock first sees it. The clock does not move until all pods
/// exist, so that is the correct time. While `held` is true, recommendations wait.
pub fn with_clock_timestamps(
    client: Client,
    clock: Clock,
    held: watch::Receiver<bool>,
    lease_lists: Arc<LeaseLists>,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(
        CreationTimestampRewriter {
            client,
            first_seen: Arc::new(FirstSeenTimes::new(clock)),
            held,
            lease_lists,
        },
        namespace,
    )
}

/// Counts the lists of all Leases, by which the updater observes heartbeats.
#[derive(Debug, Default)]
pub struct LeaseLists {
    begun: AtomicU64,
    /// The number of the last list that was answered.
    answered: AtomicU64,
}

impl LeaseLists {
    /// The number of lists that have begun so far.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Whether a list was answered that began after `begun` others.
    pub fn answered_after(&self, begun: u64) -> bool {
        self.answered.load(Ordering::SeqCst) > begun
    }

    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn answer(&self, number: u64) {
        self.answered.fetch_max(number, Ordering::SeqCst);
    }
}

/// Whether a request lists all Leases of a namespace, not one of them by its name.
fn lists_leases(request: &Request<Body>) -> bool {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default();
    request.method() == Method::GET
        && uri.path().ends_with("/leases")
        && !["fieldSelector=", "watch="].iter().any(|parameter| query.contains(parameter))
}

#[derive(Clone)]
struct CreationTimestampRewriter {
    client: Client,
    first_seen: Arc<FirstSeenTimes>,
    held: watch::Receiver<bool>,
    lease_lists: Arc<LeaseLists>,
}

/// When each pod was first seen, by UID.
struct FirstSeenTimes {
    clock: Clock,
    seen: Mutex<HashMap<String, String>>,
}

impl FirstSeenTimes {
    fn new(clock: Clock) -> Self {
        Self { clock, seen: Mutex::default() }
    }

    fn first_seen(&self, uid: &str) -> String {
        let mut seen = self.seen.lock().expect("no panic");
        let now = || {
            let now = Timestamp::from_second(self.clock.now().as_secs());
            now.expect("in range").to_string()
        };
        seen.entry(uid.to_owned()).or_insert_with(now).clone()
    }

    /// Rewrites the timestamps in a line of a response.
    fn rewrite_line(&self, line: &str) -> String {
        let mut rewritten = String::with_capacity(line.len());
        let mut rest = line;
        while let Some((uid, created)) = next_timestamp(rest) {
            rewritten.push_str(&rest[..created]);
            rewritten.push_str(&self.first_seen(uid));
            rest = &rest[created..];
            rest = &rest[rest.find('"').expect("string literal is closed")..];
        }
        rewritten + rest
    }
}

/// The UID of the next object, and the position of its creation timestamp.
fn next_timestamp(text: &str) -> Option<(&str, usize)> {
    let created = text.find(CREATION_TIMESTAMP_MARKER)? + CREATION_TIMESTAMP_MARKER.len();
    let uid = &text[text[..created].rfind(UID_MARKER)? + UID_MARKER.len()..];
    Some((&uid[..uid.find('"')?], created))
}

impl Service<Request<Body>> for CreationTimestampRewriter {
    type Response = Response<UnsyncBoxBody<Bytes, kube::Error>>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        // `call` waits for the inner client to be ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, first_seen: births, mut held, lease_lists } = self.clone();
        let lease_list = lists_leases(&request).then(|| lease_lists.begin());
        let has = |segment: &str| request.uri().path().split('/').any(|part| part == segment);
        let is_of_pods = has("pods");
        let is_of_a_vpa = has("verticalpodautoscalers") && request.method() != Method::GET;
        async move {
            let request = if is_of_a_vpa {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                if body
                    .windows(RECOMMENDATION_MARKER.len())
                    .any(|part| part == RECOMMENDATION_MARKER)
                {
                    held.wait_for(|held| !held).await.expect("sender is alive");
                }
                Request::from_parts(parts, Body::from(body.to_vec()))
            } else {
                request
            };
            let (mut parts, body) = client.send(request).await?.into_parts();
            if let Some(number) = lease_list {
                lease_lists.answer(number);
            }
            if !is_of_pods {
                return Ok(Response::from_parts(parts, body.boxed_unsync()));
            }
            // A timestamp of another length changes the length of the body.
            parts.headers.remove(header::CONTENT_LENGTH);
            let lines = lines(body).map(move |line| {
                let line = line?;
                let line = std::str::from_utf8(&line).expect("JSON is UTF-8");
                Ok(Frame::data(Bytes::from(births.rewrite_line(line))))
            });
            Ok(Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(lines))))
        }
        .boxed()
    }
}

/// A body line by line, for the events of a watch; the rest at the end, as a list is a single line.
fn lines(body: Body) -> impl futures::Stream<Item = Result<Vec<u8>, kube::Error>> + Send {
    let state = (body.into_data_stream(), Vec::new(), false);
    stream::unfold(state, |(mut body, mut kept, mut is_over)| async move {
        loop {
            if let Some(end) = kept.iter().position(|byte| *byte == b'\n') {
                let more = kept.split_off(end + 1);
                return Some((Ok(kept), (body, more, is_over)));
            }
            if is_over {
                return (!kept.is_empty()).then(|| (Ok(kept), (body, Vec::new(), true)));
            }
            match body.next().await {
                Some(Ok(data)) => kept.extend_from_slice(&data),
                Some(Err(why)) => return Some((Err(why), (body, Vec::new(), true))),
                None => is_over = true,
            }
        }
    })
}

#[test]
fn the_creation_time_of_a_pod_is_rewritten_and_other_times_stay() {
    let clock = Clock::fake(plimsoll_core::types::Time::from_secs(1_800_000_000));
    let births = FirstSeenTimes::new(clock.clone());
    let pod = |name: &str, created: &str| {
        format!(
            "{{\"metadata\":{{\"name\":\"{name}\",\"uid\":\"{name}-1\",\"creationTimestamp\":\"{created}\",\
             \"ownerReferences\":[{{\"uid\":\"web-9\"}}]}}}}"
        )
    };
    let (first, second) = ("2027-01-15T08:00:00Z", "2027-01-15T08:02:00Z");
    assert_eq!(births.rewrite_line(&pod("one", "2026-01-01T00:00:00Z")), pod("one", first));
    clock.step(std::time::Duration::from_mins(2));
    let list = |one: &str, two: &str| format!("[{},{}]", pod("one", one), pod("two", two));
    let wall = "2026-01-01T00:00:00Z";
    assert_eq!(births.rewrite_line(&list(wall, wall)), list(first, second));
    assert_eq!(
        births.rewrite_line("{\"metadata\":{\"resourceVersion\":\"7\"}}\n"),
        "{\"metadata\":{\"resourceVersion\":\"7\"}}\n"
    );
}
