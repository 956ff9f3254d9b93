//! Response bodies that report the review once they were sent.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    connections::ActiveRequest,
    review_observer::{CompletedReview, ReviewObserver},
};
use crate::cluster::server::body::Body;

/// The response body of a review.
pub(super) type ResponseBody = Body<ResponseGuard>;

/// Creates a response body. `completion` is reported once it was sent; the connection counts as busy until then.
pub(super) fn response_body(
    bytes: Option<Bytes>,
    completion: Option<ReviewCompletion>,
    active_request: ActiveRequest,
) -> ResponseBody {
    Body::whole(bytes, ResponseGuard { end: completion, _active_request: active_request })
}

/// A response in transit.
pub(super) struct ResponseGuard {
    end: Option<ReviewCompletion>,
    _active_request: ActiveRequest,
}

/// A review and its start times, reported once the response was sent.
pub(super) struct ReviewCompletion {
    pub review: CompletedReview,
    pub started_at: Instant,
    pub built_at: Instant,
    pub observer: Arc<dyn ReviewObserver>,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        let Some(ReviewCompletion { mut review, started_at, built_at, observer }) = self.end.take()
        else {
            return;
        };
        review.write = built_at.elapsed();
        review.total = started_at.elapsed();
        observer.on_review(&review);
    }
}
