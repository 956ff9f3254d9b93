//! Compressed bodies of responses, and how many bytes are transferred.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_compression::tokio::bufread::GzipDecoder;
use bytes::Bytes;
use futures::{Stream, StreamExt as _, future, stream::BoxStream};
use http::{
    HeaderMap,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
};
use tokio_util::io::{ReaderStream, StreamReader};

/// Bytes to decompress at once.
const CHUNK_BYTES: usize = 64 << 10;

/// Counts the bytes of a body as it is transferred, before decompression. It is an extension of the response.
#[derive(Clone, Debug, Default)]
pub struct TransferredBytes(Arc<AtomicU64>);

impl TransferredBytes {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Decompressed bytes, in order. Nothing follows an error.
pub type BodyStream = BoxStream<'static, io::Result<Bytes>>;

/// The decompressed bytes of a body up to its end or an error, and the count of those that are transferred. Removes the
/// headers about the compression.
pub fn decompressed(
    received: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    headers: &mut HeaderMap,
) -> (BodyStream, TransferredBytes) {
    let transferred = TransferredBytes::default();
    let total = transferred.clone();
    // The body may be polled again after its end or an error.
    let received = received.scan(false, |has_failed, piece| {
        let next = (!*has_failed).then_some(piece);
        *has_failed = next.as_ref().is_none_or(Result::is_err);
        future::ready(next)
    });
    let counted = received.fuse().inspect(move |piece| {
        if let Ok(bytes) = piece {
            total.add(bytes.len());
        }
    });
    if !is_gzip(headers) {
        return (counted.boxed(), transferred);
    }
    headers.remove(CONTENT_ENCODING);
    headers.remove(CONTENT_LENGTH);
    let mut decoder = GzipDecoder::new(StreamReader::new(counted.boxed()));
    decoder.multiple_members(true);
    (ReaderStream::with_capacity(decoder, CHUNK_BYTES).boxed(), transferred)
}

fn is_gzip(headers: &HeaderMap) -> bool {
    let encoding = headers.get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    encoding.is_some_and(|encoding| encoding.trim().eq_ignore_ascii_case("gzip"))
}

/// Decompresses the body of a response, if it is compressed.
pub(super) fn with_plain_body(response: reqwest::Response) -> reqwest::Response {
    if !is_gzip(response.headers()) {
        return response;
    }
    let mut response = http::Response::<reqwest::Body>::from(response);
    let body = std::mem::take(response.body_mut());
    let received = http_body_util::BodyDataStream::new(body).map(|piece| piece.map_err(io_error));
    let (body, transferred) = decompressed(received, response.headers_mut());
    response.extensions_mut().insert(transferred);
    *response.body_mut() = reqwest::Body::wrap_stream(body);
    response.into()
}

fn io_error(error: reqwest::Error) -> io::Error {
    if error.is_timeout() { io::ErrorKind::TimedOut.into() } else { io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).expect("a vector");
        encoder.finish().expect("a vector")
    }

    fn response(encoding: Option<&str>, body: Vec<u8>) -> reqwest::Response {
        let mut response = http::Response::builder();
        if let Some(encoding) = encoding {
            response = response.header(CONTENT_ENCODING, encoding);
        }
        with_plain_body(response.body(body).expect("a response").into())
    }

    #[tokio::test]
    async fn a_compressed_body_is_decompressed_and_its_bytes_are_counted() {
        let text = "many equal words ".repeat(20_000);
        let body = compressed(text.as_bytes());
        let size = body.len() as u64;
        let read = response(Some("gzip"), body);
        let transferred = read.extensions().get::<TransferredBytes>().cloned().expect("a count");
        assert_eq!(read.headers().get(CONTENT_ENCODING), None);
        assert_eq!(read.text().await.expect("text"), text);
        assert_eq!(transferred.get(), size);
        let plain = response(None, text.clone().into_bytes());
        assert!(plain.extensions().get::<TransferredBytes>().is_none());
        assert_eq!(plain.text().await.expect("text"), text);
    }

    #[tokio::test]
    async fn a_truncated_body_is_an_error() {
        let mut body = compressed(b"a body that ends too early");
        body.truncate(body.len() - 9);
        assert!(response(Some("gzip"), body).bytes().await.is_err());
    }
}
