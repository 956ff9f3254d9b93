//! The body of a response as a stream: decompressed, and cut off at a deadline.

use std::io;

use futures::{StreamExt as _, stream};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use kube::client::Body;
use plimsoll_storage::prometheus::transport::compressed_body::{
    BodyStream, TransferredBytes, decompressed,
};
use tokio::time::{Instant, timeout_at};

/// The bytes of a body, which fail if they are not complete by the deadline, and the count of those that are transferred.
/// Removes the headers about the compression.
pub(super) fn body_stream(
    body: Body,
    headers: &mut HeaderMap,
    deadline: Instant,
) -> (BodyStream, TransferredBytes) {
    let received = stream::unfold(body.into_data_stream(), move |mut body| async move {
        let piece = match timeout_at(deadline, body.next()).await {
            Ok(piece) => piece?.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        Some((piece, body))
    });
    decompressed(received, headers)
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
