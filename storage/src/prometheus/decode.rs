//! Reads the answer to a query while it arrives: series by series, point by point, and none of it is kept.
//!
//! ```text
//!   bytes, in pieces of any size ──▶ Reader ──▶ Series: begin(labels) point point … end
//!                                       │            begin(labels) point … end
//!                                       └─ at the true end only: finish
//! ```
//!
//! What is held is the piece at hand and the labels of one series. The parser is our own because it is fed: a
//! deserializer of serde pulls, so it would need a thread that blocks for each answer, and hands out a
//! text for each number.

mod cursor;
mod decimal;
mod decoder;
mod error;
mod labels;
mod state;
mod value_skipper;

pub(crate) use self::error::one_line;
pub use self::{decoder::ResponseDecoder, error::DecodeError, labels::Labels};
use plimsoll_core::types::Time;

/// Takes series as they are read.
///
/// What came since the last `finish` or `discard` counts only with the next `finish`: until then it may turn
/// out to be half an answer. Parts of a longer range come in order of time, and each ends with a `finish`.
pub trait SeriesVisitor: Send {
    /// A series begins. Its labels are gone after the call.
    fn begin(&mut self, labels: Labels<'_>) -> Interest;
    /// A point of the series that began last, later than the one before.
    fn point(&mut self, at: Time, value: f64);
    /// The series is over.
    fn end(&mut self) {}
    /// The answer is whole: what came counts.
    fn finish(&mut self) {}
    /// Whether it can hold no more. Asked now and then while an answer comes, which is broken off then.
    fn is_full(&self) -> bool {
        false
    }
    /// The answer broke off or was too large: what came since the last `finish` does not count, and may come again.
    fn discard(&mut self) {}
}

/// What a visitor wants of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Its points.
    Points,
    /// No more than that it is there: its points are passed over without being parsed.
    LabelsOnly,
}

/// The type of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultType {
    /// One point a series.
    Vector,
    /// Points over time.
    Matrix,
    /// One point without labels.
    Scalar,
    /// A text.
    String,
}

/// What an answer had besides its points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseSummary {
    /// The type of the result, where the server says it.
    pub kind: Option<ResultType>,
    /// Series, unwanted ones included.
    pub series: u64,
    /// Points that were handed out.
    pub points: u64,
    /// Native histograms among wanted series, which are passed over.
    pub histograms: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Whether the server says that part of the result is missing.
    pub is_partial: bool,
    /// What the server warns of: the first few.
    pub warnings: Vec<String>,
    /// What the server remarks: the first few.
    pub infos: Vec<String>,
    /// The result of type string.
    pub text: Option<String>,
}

/// Counts what an answer has and takes nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub struct IgnoreSeries;

impl SeriesVisitor for IgnoreSeries {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        Interest::LabelsOnly
    }

    fn point(&mut self, _: Time, _: f64) {}
}
