//! Handles HTTP requests with AdmissionReviews. Invalid requests get the same responses as from upstream. A pod is
//! never rejected because of an internal error.

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
    body_budget::{BodyError, BodyReservation},
    connections::ActiveRequest,
    large_reviews::{LARGE_BODY_BYTES, LargeReviews},
    observed_body::{ResponseBody, ReviewCompletion},
    read_body::read_body,
    review::{self, AdmissionDecision, Reviewer},
    review_observer::{CompletedReview, ReviewObserver, ReviewStatus},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Share of the API server's timeout that a decision may take. The rest is left for the response.
const TIMEOUT_SHARE: f64 = 0.8;
/// Upper limit for decisions, whatever the API server's timeout: creating a pod should not take longer.
const MAX_DECISION_TIMEOUT: Duration = Duration::from_secs(10);
/// The `resource` label when no reviewer is registered for a kind.
const UNKNOWN: &str = "unknown";

/// The reviewers by resource, and the observer that counts reviews.
pub struct ReviewRoutes {
    routes: BTreeMap<(&'static str, &'static str), Arc<dyn Reviewer>>,
    observer: Arc<dyn ReviewObserver>,
    large_reviews: LargeReviews,
}

impl ReviewRoutes {
    pub fn new(observer: Arc<dyn ReviewObserver>) -> Self {
        Self { routes: BTreeMap::new(), observer, large_reviews: LargeReviews::default() }
    }

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

    pub(super) fn observer(&self) -> &dyn ReviewObserver {
        &*self.observer
    }

    fn find(&self, request: &review::AdmissionRequest<'_>) -> Option<&Arc<dyn Reviewer>> {
        let (group, resource) = (&*request.resource.group, &*request.resource.resource);
        self.routes.iter().find(|(key, _)| **key == (group, resource)).map(|(_, reviewer)| reviewer)
    }

    /// Decides a review, and returns the decision with its uid. The memory of the body is released afterwards.
    async fn decide(
        &self,
        body: Bytes,
        reservation: BodyReservation,
        limit: Duration,
    ) -> ReviewDecision {
        let request = match review::parse_review(&body) {
            Ok(request) => request,
            // Upstream allows a review that it cannot parse, with an empty uid.
            Err(outcome) => return ReviewDecision::error(String::new(), outcome),
        };
        let uid = request.uid.to_string();
        let Some(reviewer) = self.find(&request) else {
            return ReviewDecision::error(uid, "unknown_kind");
        };
        let resource = reviewer.resource();
        let decided = if body.len() > LARGE_BODY_BYTES {
            let review = self.large_reviews.review(Arc::clone(reviewer), body.clone(), reservation);
            timeout(limit, review).await
        } else {
            timeout(limit, reviewer.review(&request)).await
        };
        let decision = decided.unwrap_or_else(|_| {
            let (namespace, name) = (&*request.namespace, &*request.name);
            tracing::warn!(
                resource,
                namespace,
                name,
                ?limit,
                "review timed out; allowing the request"
            );
            AdmissionDecision::allow("timeout")
        });
        let status = match decision.patch {
            Some(_) => ReviewStatus::Applied,
            None => ReviewStatus::Skipped,
        };
        ReviewDecision { uid, resource, status, response: decision }
    }
}

struct ReviewDecision {
    uid: String,
    resource: &'static str,
    status: ReviewStatus,
    response: AdmissionDecision,
}

impl ReviewDecision {
    /// Allows a request for which there is no reviewer.
    fn error(uid: String, outcome: &'static str) -> Self {
        let response = AdmissionDecision::allow(outcome);
        Self { uid, resource: UNKNOWN, status: ReviewStatus::Error, response }
    }
}

pub(super) async fn handle<B>(
    request: Request<B>,
    reviews: Arc<ReviewRoutes>,
    max_bytes: usize,
    mut reservation: BodyReservation,
    active_request: ActiveRequest,
) -> Response<ResponseBody>
where
    B: Body<Data = Bytes> + Unpin,
{
    let started_at = Instant::now();
    let limit = decision_timeout(request.uri().query());
    // An exact match, as upstream: it answers any other content type with an empty 200.
    if request.headers().get(CONTENT_TYPE) != Some(&JSON) {
        if request.method() == http::Method::POST {
            reviews.observer.on_rejected("content_type");
        }
        return plain_response(StatusCode::OK, "", active_request);
    }
    let body = match read_body(request.into_body(), max_bytes, &mut reservation).await {
        Ok(body) => body,
        Err(error) => {
            let (reason, status, text) = match error {
                BodyError::TooLarge => {
                    ("too_large", StatusCode::PAYLOAD_TOO_LARGE, "Request entity too large\n")
                }
                BodyError::Slow => (
                    "slow_body",
                    StatusCode::REQUEST_TIMEOUT,
                    "timed out reading the request body\n",
                ),
                BodyError::NoMemory => (
                    "no_memory",
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many concurrent requests: the memory limit for request bodies is reached\n",
                ),
            };
            reviews.observer.on_rejected(reason);
            return plain_response(status, text, active_request);
        }
    };
    let read_at = Instant::now();
    let decision_guard = active_request.begin_decision();
    let ReviewDecision { uid, resource, status, response: decision } =
        reviews.decide(body, reservation, limit).await;
    drop(decision_guard);
    let decided_at = Instant::now();
    let outcome = decision.outcome;
    let bytes = review::encode_response(&uid, decision);
    let built_at = Instant::now();
    let review = CompletedReview {
        resource,
        status,
        outcome,
        read: read_at - started_at,
        admit: decided_at - read_at,
        build: built_at - decided_at,
        write: Duration::ZERO,
        total: Duration::ZERO,
    };
    let completion =
        ReviewCompletion { review, started_at, built_at, observer: Arc::clone(&reviews.observer) };
    let body = ResponseBody::new(bytes, Some(completion), active_request);
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// The time for a decision: a share of the timeout that the API server passes in the query.
fn decision_timeout(query: Option<&str>) -> Duration {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    let value = pairs.find_map(|pair| pair.strip_prefix("timeout="));
    let seconds = value.and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok());
    let api_timeout = seconds.filter(|seconds| (0.0..=3600.0).contains(seconds));
    api_timeout
        .map_or(MAX_DECISION_TIMEOUT, |seconds| Duration::from_secs_f64(seconds * TIMEOUT_SHARE))
        .min(MAX_DECISION_TIMEOUT)
}

fn plain_response(
    status: StatusCode,
    text: &'static str,
    active_request: ActiveRequest,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::new(text, None, active_request));
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
        WebhookLimits, body_budget::BodyBudget, connections::Activity,
    };

    #[derive(Default)]
    struct Counts(Mutex<Vec<String>>);

    impl ReviewObserver for Counts {
        fn on_review(&self, answered: &CompletedReview) {
            let CompletedReview { resource, status, outcome, .. } = answered;
            let status: &str = status.into();
            let line = format!("{resource} {status} {outcome}");
            self.0.lock().expect("no panic").push(line);
        }

        fn on_rejected(&self, reason: &'static str) {
            self.0.lock().expect("no panic").push(reason.to_owned());
        }
    }

    /// Adds an annotation, or never returns.
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
        let lease = BodyBudget::new(WebhookLimits::default()).peer_budget().reserve();
        let response = handle(request, reviews, bytes, lease, busy).await;
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    fn pod(name: &str) -> Vec<u8> {
        let resource = json!({"group": "", "version": "v1", "resource": "pods"});
        json!({"request": {"uid": "u", "resource": resource, "name": name}}).to_string().into()
    }

    /// Golden vectors 294 to 296, and related cases.
    #[tokio::test]
    async fn invalid_reviews_get_upstreams_responses() {
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
    async fn a_review_that_times_out_admits_the_pod_unchanged_before_the_api_server_gives_up() {
        let begun = tokio::time::Instant::now();
        let (_, answer, counts) = ask("application/json", "?timeout=1s", pod("slow")).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(800), "a fifth is left for the response");
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));
        assert_eq!(counts, ["Pod skipped timeout"]);
    }

    /// Blocks its thread until it is released.
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
    async fn a_large_review_that_hangs_times_out_and_delays_no_other() {
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
        // Both blocking threads are busy; everything else runs on one runtime.
        let first = ask(large("stuck"));
        let (second, third) = (ask(large("stuck")), ask(large("web")));
        let small = async {
            let permits = stuck.entered.acquire().await;
            permits.expect("it is open").forget();
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
    fn the_review_timeout_is_a_share_of_the_one_in_the_request() {
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
