//! The body of an answer to a review, which counts when it was handed over.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    connections::Busy,
    observer::{Answered, Observer},
};
use crate::serve::body::Body;

/// Such a body.
pub(super) type Reply = Body<Handing>;

/// An answer of these bytes. `end` is told once they were handed over; the connection is busy until then.
pub(super) fn reply(bytes: Option<Bytes>, end: Option<End>, busy: Busy) -> Reply {
    Body::whole(bytes, Handing { end, _busy: busy })
}

/// An answer on its way.
pub(super) struct Handing {
    end: Option<End>,
    _busy: Busy,
}

/// What is told of a review once its answer was handed over.
pub(super) struct End {
    pub answered: Answered,
    pub begun: Instant,
    pub built: Instant,
    pub observer: Arc<dyn Observer>,
}

impl Drop for Handing {
    fn drop(&mut self) {
        let Some(End { mut answered, begun, built, observer }) = self.end.take() else { return };
        answered.write = built.elapsed();
        answered.total = begun.elapsed();
        observer.answered(&answered);
    }
}
