//! Reads request bodies within the memory budget.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;

use super::body_budget::{BodyError, BodyReservation};

/// The longest HTTP/2 frame, which may arrive at once. Its memory is reserved before it is read.
const FRAME_BYTES: usize = 16 << 10;

pub(super) async fn read_body<B>(
    mut body: B,
    max_bytes: usize,
    reservation: &mut BodyReservation,
) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let size_hint = body.size_hint();
    let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    if length(size_hint.lower()) > max_bytes {
        return Err(BodyError::TooLarge);
    }
    let expected = size_hint.exact().map_or(max_bytes, length);
    let mut buffer = BytesMut::new();
    while !body.is_end_stream() {
        let received = buffer.len();
        reservation.grow((received + FRAME_BYTES).min(expected.max(received))).await?;
        let Some(frame) = reservation.within_deadline(body.frame()).await? else { break };
        // Upstream continues with an empty body.
        let Ok(frame) = frame else { return Ok(Bytes::new()) };
        let Ok(data) = frame.into_data() else { continue };
        let received = received + data.len();
        if received > max_bytes {
            return Err(BodyError::TooLarge);
        }
        reservation.grow(received).await?;
        // Most bodies arrive in one piece, which is returned without copying.
        if buffer.is_empty() && body.is_end_stream() {
            reservation.shrink(received);
            return Ok(data);
        }
        if buffer.is_empty() {
            buffer.reserve(size_hint.exact().map_or(received, length));
        }
        buffer.extend_from_slice(&data);
    }
    reservation.shrink(buffer.len());
    Ok(buffer.freeze())
}
