//! Response bodies that report the review once they were sent.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::{
    connections::ActiveRequest,
    review_observer::{CompletedReview, ReviewObserver},
};

/// The response body of a review. The completion is reported once the body was sent or abandoned; the connection counts as
/// busy until then.
pub(super) struct ResponseBody {
    content: Full<Bytes>,
    completion: Option<ReviewCompletion>,
    _active_request: ActiveRequest,
}

impl ResponseBody {
    pub fn new(
        content: impl Into<Full<Bytes>>,
        completion: Option<ReviewCompletion>,
        active_request: ActiveRequest,
    ) -> Self {
        Self { content: content.into(), completion, _active_request: active_request }
    }
}

/// A review and its start times, reported once the response was sent.
pub(super) struct ReviewCompletion {
    pub review: CompletedReview,
    pub started_at: Instant,
    pub built_at: Instant,
    pub observer: Arc<dyn ReviewObserver>,
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let Some(ReviewCompletion { mut review, started_at, built_at, observer }) =
            self.completion.take()
        else {
            return;
        };
        review.write = built_at.elapsed();
        review.total = started_at.elapsed();
        observer.on_review(&review);
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.content).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
