//! Decodes the response to a query while it arrives, series by series and point by point, without keeping it in memory.
//!
//! ```text
//!   bytes, in pieces of any size ──▶ decode_response ──▶ SeriesVisitor: begin(labels) point point … end
//!                                          │                            begin(labels) point … end
//!                                          └─ only at the end of a complete response: finish
//! ```
//!
//! Only the current piece and the labels of one series are in memory. The parser is our own because it awaits the next piece:
//! a serde deserializer reads from a blocking reader, which would need a thread per response, and it allocates a string for
//! each number.

mod cursor;
mod decoder;
mod input;
mod labels;

pub use self::{
    decoder::{ResponseKind, decode_response},
    labels::Labels,
};
use plimsoll_core::types::Time;

/// Receives series as they are decoded.
///
/// Points since the last `finish` or `discard` count only after the next `finish`: until then the response may turn out
/// to be incomplete. Parts of a longer range arrive in order of time, and each ends with a `finish`.
pub trait SeriesVisitor: Send {
    /// A series starts. The labels are valid only during the call.
    fn begin(&mut self, labels: Labels<'_>) -> Interest;
    /// A point of the current series, later than the previous one.
    fn point(&mut self, _: Time, _: f64) {}
    fn end(&mut self) {}
    /// The response is complete: its points count.
    fn finish(&mut self) {}
    /// Whether the visitor is full. Checked periodically; the response is aborted then.
    fn is_full(&self) -> bool {
        false
    }
    /// The response failed: points since the last `finish` do not count, and may be sent again.
    fn discard(&mut self) {}
}

/// The part of a series that a visitor wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    Points,
    /// Only the labels: the points are skipped without parsing.
    LabelsOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum ResultType {
    /// One point per series.
    Vector,
    /// Points over time.
    Matrix,
    /// One point without labels.
    Scalar,
    String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// The type of the result, if the server reports it.
    pub kind: Option<ResultType>,
    /// Number of series, including those without interest in points.
    pub series: u64,
    pub points: u64,
    /// Number of skipped native histograms in series with interest in points.
    pub histograms: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Bytes transferred, before decompression. The decoder does not know them.
    pub transferred_bytes: u64,
    /// Whether the server reports a partial result.
    pub is_partial: bool,
    /// The first warnings of the server.
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the response was truncated after {bytes} bytes")]
    Truncated { bytes: u64 },
    /// The response is not a query result.
    #[error("byte {at} of the response: expected {expected}, found {found}")]
    Malformed { at: u64, expected: &'static str, found: String },
    /// A label set, string or number exceeds the maximum length.
    #[error("byte {at} of the response: token exceeds {longest} bytes")]
    TooLong { at: u64, longest: usize },
    #[error("{kind}: {message}")]
    ReportedByServer {
        /// The error type (`bad_data`, `execution`, `timeout`, ...).
        kind: String,
        message: String,
    },
}

/// Ignores all series; only the summary is of interest.
#[derive(Clone, Copy, Debug, Default)]
pub struct IgnoreSeries;

impl SeriesVisitor for IgnoreSeries {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        Interest::LabelsOnly
    }
}
