//! Reads the body of a request into memory that was asked for.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::body_budget::{BodyReservation, BodyTimeout};

/// As much arrives at once: the longest frame of HTTP/2. It is asked for before it is read.
const FRAME_BYTES: usize = 16 << 10;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    TooLarge,
    Broken,
    Timeout(BodyTimeout),
}

impl From<BodyTimeout> for BodyError {
    fn from(late: BodyTimeout) -> Self {
        Self::Timeout(late)
    }
}

/// Reads a body of so many bytes at most.
pub(super) async fn read_body<B>(
    mut body: B,
    most: usize,
    lease: &mut BodyReservation,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let promised = body.size_hint();
    let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    if length(promised.lower()) > most {
        return Err(BodyError::TooLarge);
    }
    let most_to_come = promised.exact().map_or(most, length);
    let mut whole = BytesMut::new();
    while !body.is_end_stream() {
        let so_far = whole.len();
        lease.grow((so_far + FRAME_BYTES).min(most_to_come.max(so_far))).await?;
        let Some(frame) = lease.within_deadline(body.frame()).await? else { break };
        let Ok(data) = frame.map_err(|_| BodyError::Broken)?.into_data() else { continue };
        let so_far = so_far + data.len();
        if so_far > most {
            return Err(BodyError::TooLarge);
        }
        lease.grow(so_far).await?;
        // Most bodies are one piece, which then need not be copied.
        if whole.is_empty() && body.is_end_stream() {
            lease.shrink(so_far);
            return Ok(data);
        }
        if whole.is_empty() {
            whole.reserve(promised.exact().map_or(so_far, length));
        }
        whole.extend_from_slice(&data);
    }
    lease.shrink(whole.len());
    Ok(whole.freeze())
}
