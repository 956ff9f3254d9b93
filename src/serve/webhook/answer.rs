//! From an HTTP request to a review and back. What is no review is answered as upstream answers it; a pod is never
//! refused because something here went wrong.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use tokio::time::timeout;

use super::{
    connections::Busy,
    observer::{Answered, Observer, ReviewStatus},
    parts::part,
    reply::{End, Reply, reply},
    review::{self, Reviewer, Verdict},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Of the time that the API server waits, so much is for deciding; the rest is for the way back.
const SHARE: f64 = 0.8;
/// A decision that takes longer comes too late for whoever created the pod, whatever the API server would wait.
const LONGEST: Duration = Duration::from_secs(10);
/// What is counted when nobody decides about a kind.
const UNKNOWN: &str = "unknown";

/// Who decides about what, and who counts.
pub struct Reviews {
    routes: BTreeMap<(&'static str, &'static str), Arc<dyn Reviewer>>,
    observer: Arc<dyn Observer>,
}

impl std::fmt::Debug for Reviews {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.routes.keys()).finish()
    }
}

impl Reviews {
    /// Nobody decides about anything yet.
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self { routes: BTreeMap::new(), observer }
    }

    /// From now on this one decides about a resource of a group.
    #[must_use]
    pub fn route(
        mut self,
        group: &'static str,
        resource: &'static str,
        reviewer: Arc<dyn Reviewer>,
    ) -> Self {
        self.routes.insert((group, resource), reviewer);
        self
    }

    /// Who counts.
    pub(super) fn observer(&self) -> &dyn Observer {
        &*self.observer
    }

    fn find(&self, asked: &review::Request<'_>) -> Option<&Arc<dyn Reviewer>> {
        let (group, resource) = (&*asked.resource.group, &*asked.resource.resource);
        self.routes.iter().find(|(known, _)| **known == (group, resource)).map(|(_, found)| found)
    }

    /// The decision about a body, with the uid that it is for.
    async fn decide(&self, body: &[u8], limit: Duration) -> Decided {
        let parts = part(body);
        let asked = match review::read(body, parts.as_ref()) {
            Ok(asked) => asked,
            // Upstream lets what it cannot read through, under no name.
            Err(nothing) => {
                let verdict = Verdict::allow(nothing.as_str());
                let (uid, resource) = (String::new(), UNKNOWN);
                return Decided { uid, resource, status: ReviewStatus::Error, verdict };
            }
        };
        let uid = asked.uid.to_string();
        let Some(reviewer) = self.find(&asked) else {
            let verdict = Verdict::allow("unknown_kind");
            return Decided { uid, resource: UNKNOWN, status: ReviewStatus::Error, verdict };
        };
        let resource = reviewer.resource();
        let verdict = timeout(limit, reviewer.review(&asked)).await.unwrap_or_else(|_| {
            let (namespace, name) = (&*asked.namespace, &*asked.name);
            tracing::warn!(resource, namespace, name, ?limit, "not decided in time; let through");
            Verdict::allow("timeout")
        });
        let status = match verdict.patch {
            Some(_) => ReviewStatus::Applied,
            None => ReviewStatus::Skipped,
        };
        Decided { uid, resource, status, verdict }
    }
}

struct Decided {
    uid: String,
    resource: &'static str,
    status: ReviewStatus,
    verdict: Verdict,
}

/// How much of a body is read, and how long that may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyLimits {
    pub bytes: usize,
    pub time: Duration,
}

/// Answers a request.
pub(super) async fn answer<B>(
    request: Request<B>,
    reviews: Arc<Reviews>,
    limits: BodyLimits,
    busy: Busy,
) -> Response<Reply>
where
    B: Body<Data = Bytes> + Unpin,
{
    let begun = Instant::now();
    let limit = patience(request.uri().query());
    // To the letter, as upstream has it, which answers whatever else comes with nothing.
    if request.headers().get(CONTENT_TYPE) != Some(&JSON) {
        if request.method() == http::Method::POST {
            reviews.observer.turned_away("content_type");
        }
        return plain(StatusCode::OK, "", busy);
    }
    let read = match timeout(limits.time, read(request.into_body(), limits.bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(Unread::TooLarge)) => {
            reviews.observer.turned_away("too_large");
            return plain(StatusCode::PAYLOAD_TOO_LARGE, "Request entity too large\n", busy);
        }
        // Upstream goes on with an empty body.
        Ok(Err(Unread::Broken)) => Bytes::new(),
        Err(_) => {
            reviews.observer.turned_away("slow_body");
            return plain(StatusCode::REQUEST_TIMEOUT, "the request did not come in time\n", busy);
        }
    };
    let was_read = Instant::now();
    let Decided { uid, resource, status, verdict } = reviews.decide(&read, limit).await;
    let decided = Instant::now();
    let outcome = verdict.outcome;
    let bytes = review::write(&uid, verdict);
    let built = Instant::now();
    let answered = Answered {
        resource,
        status,
        outcome,
        read: was_read - begun,
        admit: decided - was_read,
        build: built - decided,
        write: Duration::ZERO,
        total: Duration::ZERO,
    };
    let end = End { answered, begun, built, observer: Arc::clone(&reviews.observer) };
    let reply = reply(Some(bytes.into()), Some(end), busy);
    let mut response = Response::new(reply);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// How long may be decided: a share of what the API server says that it waits.
fn patience(query: Option<&str>) -> Duration {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    let said = pairs.find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = said.and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok());
    let waits = seconds.filter(|seconds| (0.0..=3600.0).contains(seconds));
    waits.map_or(LONGEST, |seconds| Duration::from_secs_f64(seconds * SHARE)).min(LONGEST)
}

enum Unread {
    TooLarge,
    Broken,
}

async fn read<B: Body<Data = Bytes> + Unpin>(mut body: B, most: usize) -> Result<Bytes, Unread> {
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if promised > most {
        return Err(Unread::TooLarge);
    }
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else { continue };
        let so_far = whole.len() + first.as_ref().map_or(0, Bytes::len);
        if so_far + data.len() > most {
            return Err(Unread::TooLarge);
        }
        // Most bodies are one piece, which then need not be copied.
        match first.take() {
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(begin) => {
                whole.reserve(begin.len() + data.len());
                whole.extend_from_slice(&begin);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

fn plain(status: StatusCode, text: &'static str, busy: Busy) -> Response<Reply> {
    let bytes = Some(Bytes::from_static(text.as_bytes())).filter(|text| !text.is_empty());
    let mut response = Response::new(reply(bytes, None, busy));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use http_body_util::Full;
    use serde_json::{Value, json};

    use super::*;
    use crate::serve::webhook::connections::Activity;

    #[derive(Default)]
    struct Counts(Mutex<Vec<String>>);

    impl Observer for Counts {
        fn answered(&self, answered: &Answered) {
            let Answered { resource, status, outcome, .. } = answered;
            let line = format!("{resource} {} {outcome}", status.as_str());
            self.0.lock().expect("no panic").push(line);
        }

        fn turned_away(&self, reason: &'static str) {
            self.0.lock().expect("no panic").push(reason.to_owned());
        }
    }

    /// Adds an annotation, or takes for ever.
    struct Pods;

    #[async_trait]
    impl Reviewer for Pods {
        fn resource(&self) -> &'static str {
            "Pod"
        }

        async fn review(&self, request: &review::Request<'_>) -> Verdict {
            match &*request.name {
                "slow" => std::future::pending().await,
                "plain" => Verdict::allow("no_vpa"),
                _ => Verdict::patch(&[json!({"op": "add"})]).expect("JSON"),
            }
        }
    }

    async fn ask(kind: &str, query: &str, body: Vec<u8>) -> (StatusCode, Value, Vec<String>) {
        let counts = Arc::new(Counts::default());
        let reviews = Reviews::new(Arc::clone(&counts) as _).route("", "pods", Arc::new(Pods));
        let request = Request::post(format!("/any/path{query}")).header(CONTENT_TYPE, kind);
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        let limits = BodyLimits { bytes: 1000, time: Duration::from_secs(5) };
        let busy = Arc::new(Activity::default()).begin();
        let response = answer(request, Arc::new(reviews), limits, busy).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let counted = counts.0.lock().expect("no panic").clone();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null), counted)
    }

    fn pod(name: &str) -> Vec<u8> {
        let resource = json!({"group": "", "version": "v1", "resource": "pods"});
        json!({"request": {"uid": "u", "resource": resource, "name": name}}).to_string().into()
    }

    /// Golden vectors 294 to 296, and what stands beside them.
    #[tokio::test]
    async fn bad_requests_get_upstreams_answers_and_good_ones_their_own() {
        let json = "application/json";
        let other = json!({"request": {"uid": "u", "resource": {"resource": "nodes"}}});
        for (kind, body, status, allowed, uid, counted) in [
            (json, pod("web"), 200, Some(true), Some("u"), "Pod applied patched"),
            (json, pod("plain"), 200, Some(true), Some("u"), "Pod skipped no_vpa"),
            (
                json,
                other.to_string().into(),
                200,
                Some(true),
                Some("u"),
                "unknown error unknown_kind",
            ),
            (json, b"{".to_vec(), 200, Some(true), Some(""), "unknown error unreadable_review"),
            (json, Vec::new(), 200, Some(true), Some(""), "unknown error unreadable_review"),
            (json, b"{}".to_vec(), 200, Some(true), Some(""), "unknown error no_request"),
            (json, vec![b' '; 1001], 413, None, None, "too_large"),
            ("application/json; charset=utf-8", pod("web"), 200, None, None, "content_type"),
            ("text/plain", pod("web"), 200, None, None, "content_type"),
        ] {
            let (code, answer, counts) = ask(kind, "", body).await;
            assert_eq!(code.as_u16(), status, "{counted}");
            let response = &answer["response"];
            assert_eq!((response["allowed"].as_bool(), response["uid"].as_str()), (allowed, uid));
            assert_eq!(counts, [counted]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_too_long_lets_the_pod_through_while_the_api_server_still_waits() {
        let begun = tokio::time::Instant::now();
        let (_, answer, counts) = ask("application/json", "?timeout=1s", pod("slow")).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(800), "a fifth is left for the way back");
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));
        assert_eq!(counts, ["Pod skipped timeout"]);
    }

    #[test]
    fn patience_is_a_share_of_what_the_api_server_says() {
        for (query, expected) in [
            (None, 10_000),
            (Some("timeout=5s"), 4_000),
            (Some("a=b&timeout=1s"), 800),
            (Some("timeout=30s"), 10_000),
            (Some("timeout=-1s"), 10_000),
            (Some("timeout=x"), 10_000),
            (Some("timeout=NaNs"), 10_000),
        ] {
            assert_eq!(patience(query).as_millis(), expected, "{query:?}");
        }
    }
}
