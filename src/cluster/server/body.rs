//! Response bodies: either complete bytes, or pages rendered as they are read.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::scrape_pages::Pages;

/// A response body. `K` is dropped once the body was sent or abandoned.
pub(super) struct Body<K = ()> {
    content: BodyContent,
    _guard: K,
}

enum BodyContent {
    /// For HEAD: the length of the GET response is not known.
    UnknownLength,
    Whole(Option<Bytes>),
    Pages(Pages),
}

impl Body {
    /// An empty body of unknown length.
    pub const fn unknown_length() -> Self {
        Self { content: BodyContent::UnknownLength, _guard: () }
    }

    /// Pages, each rendered when the client is ready to read it.
    pub const fn pages(pages: Pages) -> Self {
        Self { content: BodyContent::Pages(pages), _guard: () }
    }
}

impl<K> Body<K> {
    /// Complete bytes, with a guard that lives as long as the body.
    pub const fn whole(bytes: Option<Bytes>, guard: K) -> Self {
        Self { content: BodyContent::Whole(bytes), _guard: guard }
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
