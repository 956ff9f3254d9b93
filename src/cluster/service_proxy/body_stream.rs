//! The body of a response as a stream: decompressed, and cut off at a deadline.

use std::io;

use async_compression::tokio::bufread::GzipDecoder;
use bytes::Bytes;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use http_body_util::BodyExt as _;
use kube::client::Body;
use tokio::time::{Instant, timeout_at};
use tokio_util::io::{ReaderStream, StreamReader};

/// Bytes to decompress at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Decompressed bytes, in order. Nothing follows an error.
pub(super) type BodyStream = BoxStream<'static, io::Result<Bytes>>;

/// The bytes of a body, which fail if they are not complete by the deadline. Removes the headers about the compression.
pub(super) fn body_stream(body: Body, headers: &mut HeaderMap, deadline: Instant) -> BodyStream {
    let received = stream::unfold(Some(body.into_data_stream()), move |rest| async move {
        let mut body = rest?;
        match timeout_at(deadline, body.next()).await {
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(body))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(io::ErrorKind::TimedOut.into()), None)),
        }
    });
    // The body may be polled again after its end.
    let received = received.fuse();
    if !is_gzip(headers) {
        return received.boxed();
    }
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder = GzipDecoder::new(StreamReader::new(received.boxed()));
    decoder.multiple_members(true);
    ReaderStream::with_capacity(decoder, CHUNK_BYTES).boxed()
}

fn is_gzip(headers: &HeaderMap) -> bool {
    let encoding = headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    encoding.is_some_and(|encoding| encoding.trim().eq_ignore_ascii_case("gzip"))
}

/// The beginning of a body, up to about this many bytes, and the whole body again.
pub(super) async fn peek(mut body: BodyStream, limit: usize) -> (Vec<u8>, BodyStream) {
    let mut pieces = Vec::new();
    let mut beginning = Vec::new();
    while beginning.len() < limit {
        let Some(piece) = body.next().await else { break };
        let is_end = piece.is_err();
        if let Ok(bytes) = &piece {
            beginning.extend_from_slice(bytes);
        }
        pieces.push(piece);
        if is_end {
            break;
        }
    }
    (beginning, stream::iter(pieces).chain(body).boxed())
}
