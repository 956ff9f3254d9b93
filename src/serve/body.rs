//! The body of an answer: at hand as a whole, or made as it is read.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::pages::Pages;

/// The body of an answer. `K` is kept until it was handed over, or given up.
pub(super) struct Body<K = ()> {
    content: Content,
    _kept: K,
}

enum Content {
    /// For HEAD: how long the answer to GET would be is not known.
    Unsaid,
    Whole(Option<Bytes>),
    Pages(Pages),
}

impl Body {
    /// Nothing, of which nothing is said.
    pub const fn unsaid() -> Self {
        Self { content: Content::Unsaid, _kept: () }
    }

    /// One page after the other, each rendered when the reader has room for it.
    pub const fn pages(pages: Pages) -> Self {
        Self { content: Content::Pages(pages), _kept: () }
    }
}

impl<K> Body<K> {
    /// These bytes, and something that is kept for as long as they are.
    pub const fn whole(bytes: Option<Bytes>, kept: K) -> Self {
        Self { content: Content::Whole(bytes), _kept: kept }
    }
}

impl<K: Unpin> hyper::body::Body for Body<K> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let page = match &mut self.get_mut().content {
            Content::Unsaid => None,
            Content::Whole(bytes) => bytes.take(),
            Content::Pages(pages) => ready!(pages.poll_next(context)),
        };
        Poll::Ready(page.map(|page| Ok(Frame::data(page))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, Content::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Unsaid | Content::Pages(_) => SizeHint::default(),
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}
