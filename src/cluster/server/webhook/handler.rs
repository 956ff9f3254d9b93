//! From an HTTP request to a review and back. What is no review is answered as upstream answers it; a pod is never
//! refused because something here went wrong.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use hyper::body::Body;
use tokio::time::timeout;

use super::{
    body_budget::{BodyReservation, BodyTimeout},
    connections::ActiveRequest,
    large_reviews::{LARGE_BODY_BYTES, LargeReviews},
    read_body::{BodyError, read_body},
    response_body::{ResponseBody, ReviewCompletion, response_body},
    review::{self, AdmissionDecision, Reviewer},
    review_observer::{CompletedReview, ReviewObserver, ReviewStatus},
    split_review::split_review,
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Of the time that the API server waits, so much is for deciding; the rest is for the way back.
const TIMEOUT_SHARE: f64 = 0.8;
/// A decision that takes longer comes too late for whoever created the pod, whatever the API server would wait.
const MAX_DECISION_TIMEOUT: Duration = Duration::from_secs(10);
/// What is counted when nobody decides about a kind.
const UNKNOWN: &str = "unknown";

/// Who decides about what, and who counts.
pub struct ReviewRoutes {
    routes: BTreeMap<(&'static str, &'static str), Arc<dyn Reviewer>>,
    observer: Arc<dyn ReviewObserver>,
    large_reviews: LargeReviews,
}

impl std::fmt::Debug for ReviewRoutes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.routes.keys()).finish()
    }
}

impl ReviewRoutes {
    /// Nobody decides about anything yet.
    pub fn new(observer: Arc<dyn ReviewObserver>) -> Self {
        Self { routes: BTreeMap::new(), observer, large_reviews: LargeReviews::default() }
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
    pub(super) fn observer(&self) -> &dyn ReviewObserver {
        &*self.observer
    }

    fn find(&self, asked: &review::AdmissionRequest<'_>) -> Option<&Arc<dyn Reviewer>> {
        let (group, resource) = (&*asked.resource.group, &*asked.resource.resource);
        self.routes.iter().find(|(known, _)| **known == (group, resource)).map(|(_, found)| found)
    }

    /// The decision about a body, with the uid that it is for. The memory of the body is free afterwards.
    async fn decide(&self, body: Bytes, lease: BodyReservation, limit: Duration) -> ReviewDecision {
        let parts = split_review(&body);
        let asked = match review::parse_review(&body, parts.as_ref()) {
            Ok(asked) => asked,
            // Upstream lets what it cannot read through, under no name.
            Err(nothing) => {
                let verdict = AdmissionDecision::allow(nothing.as_str());
                let (uid, resource) = (String::new(), UNKNOWN);
                return ReviewDecision {
                    uid,
                    resource,
                    status: ReviewStatus::Error,
                    response: verdict,
                };
            }
        };
        let uid = asked.uid.to_string();
        let Some(reviewer) = self.find(&asked) else {
            let verdict = AdmissionDecision::allow("unknown_kind");
            return ReviewDecision {
                uid,
                resource: UNKNOWN,
                status: ReviewStatus::Error,
                response: verdict,
            };
        };
        let resource = reviewer.resource();
        let decided = if body.len() > LARGE_BODY_BYTES {
            let review = self.large_reviews.review(Arc::clone(reviewer), body.clone(), lease);
            timeout(limit, review).await
        } else {
            timeout(limit, reviewer.review(&asked)).await
        };
        let verdict = decided.unwrap_or_else(|_| {
            let (namespace, name) = (&*asked.namespace, &*asked.name);
            tracing::warn!(resource, namespace, name, ?limit, "not decided in time; let through");
            AdmissionDecision::allow("timeout")
        });
        let status = match verdict.patch {
            Some(_) => ReviewStatus::Applied,
            None => ReviewStatus::Skipped,
        };
        ReviewDecision { uid, resource, status, response: verdict }
    }
}

struct ReviewDecision {
    uid: String,
    resource: &'static str,
    status: ReviewStatus,
    response: AdmissionDecision,
}

/// Answers a request.
pub(super) async fn handle<B>(
    request: Request<B>,
    reviews: Arc<ReviewRoutes>,
    most_bytes: usize,
    mut lease: BodyReservation,
    busy: ActiveRequest,
) -> Response<ResponseBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let begun = Instant::now();
    let limit = decision_timeout(request.uri().query());
    // To the letter, as upstream has it, which answers whatever else comes with nothing.
    if request.headers().get(CONTENT_TYPE) != Some(&JSON) {
        if request.method() == http::Method::POST {
            reviews.observer.on_rejected("content_type");
        }
        return plain_response(StatusCode::OK, "", busy);
    }
    let read = match read_body(request.into_body(), most_bytes, &mut lease).await {
        Ok(body) => body,
        // Upstream goes on with an empty body.
        Err(BodyError::Broken) => Bytes::new(),
        Err(BodyError::TooLarge) => {
            reviews.observer.on_rejected("too_large");
            return plain_response(
                StatusCode::PAYLOAD_TOO_LARGE,
                "Request entity too large\n",
                busy,
            );
        }
        Err(BodyError::Timeout(BodyTimeout::Slow)) => {
            reviews.observer.on_rejected("slow_body");
            return plain_response(
                StatusCode::REQUEST_TIMEOUT,
                "the request did not come in time\n",
                busy,
            );
        }
        Err(BodyError::Timeout(BodyTimeout::NoMemory)) => {
            reviews.observer.on_rejected("no_memory");
            let why = "too many requests at once: no memory for this one\n";
            return plain_response(StatusCode::SERVICE_UNAVAILABLE, why, busy);
        }
    };
    let was_read = Instant::now();
    let deciding = busy.begin_decision();
    let ReviewDecision { uid, resource, status, response: verdict } =
        reviews.decide(read, lease, limit).await;
    drop(deciding);
    let decided = Instant::now();
    let outcome = verdict.outcome;
    let bytes = review::encode_response(&uid, verdict);
    let built = Instant::now();
    let answered = CompletedReview {
        resource,
        status,
        outcome,
        read: was_read - begun,
        admit: decided - was_read,
        build: built - decided,
        write: Duration::ZERO,
        total: Duration::ZERO,
    };
    let end = ReviewCompletion {
        review: answered,
        started_at: begun,
        built_at: built,
        observer: Arc::clone(&reviews.observer),
    };
    let reply = response_body(Some(bytes.into()), Some(end), busy);
    let mut response = Response::new(reply);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// How long may be decided: a share of what the API server says that it waits.
fn decision_timeout(query: Option<&str>) -> Duration {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    let said = pairs.find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = said.and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok());
    let waits = seconds.filter(|seconds| (0.0..=3600.0).contains(seconds));
    waits
        .map_or(MAX_DECISION_TIMEOUT, |seconds| Duration::from_secs_f64(seconds * TIMEOUT_SHARE))
        .min(MAX_DECISION_TIMEOUT)
}

fn plain_response(
    status: StatusCode,
    text: &'static str,
    busy: ActiveRequest,
) -> Response<ResponseBody> {
    let bytes = Some(Bytes::from_static(text.as_bytes())).filter(|text| !text.is_empty());
    let mut response = Response::new(response_body(bytes, None, busy));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use http_body_util::{BodyExt as _, Full};
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::server::webhook::{
        body_budget::{BodyBudget, BodyTimeouts},
        connections::Activity,
    };

    #[derive(Default)]
    struct Counts(Mutex<Vec<String>>);

    impl ReviewObserver for Counts {
        fn on_review(&self, answered: &CompletedReview) {
            let CompletedReview { resource, status, outcome, .. } = answered;
            let line = format!("{resource} {} {outcome}", status.as_str());
            self.0.lock().expect("no panic").push(line);
        }

        fn on_rejected(&self, reason: &'static str) {
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

        async fn review(&self, request: &review::AdmissionRequest<'_>) -> AdmissionDecision {
            match &*request.name {
                "slow" => std::future::pending().await,
                "plain" => AdmissionDecision::allow("no_vpa"),
                _ => AdmissionDecision::patch(&[json!({"op": "add"})]).expect("JSON"),
            }
        }
    }

    async fn ask(kind: &str, query: &str, body: Vec<u8>) -> (StatusCode, Value, Vec<String>) {
        let counts = Arc::new(Counts::default());
        let reviews = ReviewRoutes::new(Arc::clone(&counts) as _).route("", "pods", Arc::new(Pods));
        let (status, answer) = ask_of(Arc::new(reviews), 1000, kind, query, body).await;
        let counted = counts.0.lock().expect("no panic").clone();
        (status, answer, counted)
    }

    async fn ask_of(
        reviews: Arc<ReviewRoutes>,
        bytes: usize,
        kind: &str,
        query: &str,
        body: Vec<u8>,
    ) -> (StatusCode, Value) {
        let request = Request::post(format!("/any/path{query}")).header(CONTENT_TYPE, kind);
        let request = request.body(Full::new(Bytes::from(body))).expect("a request");
        let busy = Arc::new(Activity::default()).begin();
        let budget = BodyBudget::new(1 << 20, 1 << 20);
        let (patience, limit) = (Duration::from_secs(1), Duration::from_secs(5));
        let lease =
            budget.peer_budget().reserve(BodyTimeouts { slow_after: patience, timeout: limit });
        let response = handle(request, reviews, bytes, lease, busy).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
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

    /// Keeps the thread that it is on, until it may go.
    struct Stuck {
        entered: tokio::sync::Semaphore,
        may_go: Mutex<std::sync::mpsc::Receiver<()>>,
    }

    #[async_trait]
    impl Reviewer for Stuck {
        fn resource(&self) -> &'static str {
            "Pod"
        }

        async fn review(&self, request: &review::AdmissionRequest<'_>) -> AdmissionDecision {
            if request.name == "stuck" {
                self.entered.add_permits(1);
                let _ = self.may_go.lock().map(|may_go| may_go.recv());
            }
            AdmissionDecision::allow("decided")
        }
    }

    #[tokio::test]
    async fn a_large_review_that_never_ends_is_given_up_in_time_and_keeps_no_other_waiting() {
        let (go, may_go) = std::sync::mpsc::channel();
        let entered = tokio::sync::Semaphore::new(0);
        let stuck = Arc::new(Stuck { entered, may_go: Mutex::new(may_go) });
        let counts = Arc::new(Counts::default());
        let reviews = Arc::new(ReviewRoutes::new(Arc::clone(&counts) as _).route(
            "",
            "pods",
            Arc::clone(&stuck) as _,
        ));
        let large = |name: &str| {
            let mut body = pod(name);
            body.resize(LARGE_BODY_BYTES + 1, b' ');
            body
        };
        let ask = |body: Vec<u8>| {
            ask_of(Arc::clone(&reviews), 1 << 20, "application/json", "?timeout=1s", body)
        };
        // Both threads are taken; all of this runs on one loop.
        let first = ask(large("stuck"));
        let (second, third) = (ask(large("stuck")), ask(large("web")));
        let small = async {
            let both = stuck.entered.acquire().await;
            both.expect("it is open").forget();
            ask(pod("web")).await
        };
        let (first, second, third, (_, small)) = tokio::join!(first, second, third, small);
        let let_through = json!({"uid": "u", "allowed": true});
        assert_eq!(small["response"], let_through);
        for (status, answer) in [first, second, third] {
            assert_eq!((status, &answer["response"]), (StatusCode::OK, &let_through));
        }
        let mut counted = counts.0.lock().expect("no panic").clone();
        counted.sort();
        let late = "Pod skipped timeout";
        assert_eq!(counted, ["Pod skipped decided", late, late, late], "the third finds no thread");
        drop(go);
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
            assert_eq!(decision_timeout(query).as_millis(), expected, "{query:?}");
        }
    }
}
