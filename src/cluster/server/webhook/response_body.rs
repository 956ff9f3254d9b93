//! The body of an answer to a review, which counts when it was handed over.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    connections::ActiveRequest,
    review_observer::{CompletedReview, ReviewObserver},
};
use crate::cluster::server::body::Body;

/// Such a body.
pub(super) type ResponseBody = Body<ResponseGuard>;

/// An answer of these bytes. `end` is told once they were handed over; the connection is busy until then.
pub(super) fn response_body(
    bytes: Option<Bytes>,
    end: Option<ReviewCompletion>,
    busy: ActiveRequest,
) -> ResponseBody {
    Body::whole(bytes, ResponseGuard { end, _active_request: busy })
}

/// An answer on its way.
pub(super) struct ResponseGuard {
    end: Option<ReviewCompletion>,
    _active_request: ActiveRequest,
}

/// What is told of a review once its answer was handed over.
pub(super) struct ReviewCompletion {
    pub review: CompletedReview,
    pub started_at: Instant,
    pub built_at: Instant,
    pub observer: Arc<dyn ReviewObserver>,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        let Some(ReviewCompletion {
            review: mut answered,
            started_at: begun,
            built_at: built,
            observer,
        }) = self.end.take()
        else {
            return;
        };
        answered.write = built.elapsed();
        answered.total = begun.elapsed();
        observer.on_review(&answered);
    }
}
