//! The body of an answer: at hand as a whole, or made as it is read.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::scrape_pages::Pages;

/// The body of an answer. `K` is kept until it was handed over, or given up.
pub(super) struct Body<K = ()> {
    content: BodyContent,
    _guard: K,
}

enum BodyContent {
    /// For HEAD: how long the answer to GET would be is not known.
    UnknownLength,
    Whole(Option<Bytes>),
    Pages(Pages),
}

impl Body {
    /// Nothing, of which nothing is said.
    pub const fn unknown_length() -> Self {
        Self { content: BodyContent::UnknownLength, _guard: () }
    }

    /// One page after the other, each rendered when the reader has room for it.
    pub const fn pages(pages: Pages) -> Self {
        Self { content: BodyContent::Pages(pages), _guard: () }
    }
}

impl<K> Body<K> {
    /// These bytes, and something that is kept for as long as they are.
    pub const fn whole(bytes: Option<Bytes>, kept: K) -> Self {
        Self { content: BodyContent::Whole(bytes), _guard: kept }
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
            BodyContent::UnknownLength => None,
            BodyContent::Whole(bytes) => bytes.take(),
            BodyContent::Pages(pages) => ready!(pages.poll_next(context)),
        };
        Poll::Ready(page.map(|page| Ok(Frame::data(page))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.content, BodyContent::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::UnknownLength | BodyContent::Pages(_) => SizeHint::default(),
            BodyContent::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
        }
    }
}
