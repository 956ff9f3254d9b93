//! The body of an answer.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::{
    connections::Busy,
    observer::{Answered, Observer},
};

/// The body of an answer, which counts when it was handed over.
pub(super) struct Reply {
    bytes: Option<Bytes>,
    end: Option<End>,
    _busy: Busy,
}

impl Reply {
    /// Of these bytes. `end` is told once they were handed over; the connection is busy until then.
    pub fn new(bytes: Option<Bytes>, end: Option<End>, busy: Busy) -> Self {
        Self { bytes, end, _busy: busy }
    }
}

/// What is told of a review once its answer was handed over.
pub(super) struct End {
    pub answered: Answered,
    pub begun: Instant,
    pub built: Instant,
    pub observer: Arc<dyn Observer>,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let Some(End { mut answered, begun, built, observer }) = self.end.take() else { return };
        answered.write = built.elapsed();
        answered.total = begun.elapsed();
        observer.answered(&answered);
    }
}
