//! Where in an answer its reader is, and what it remembers of what came before.

use super::value_skipper::ValueSkipper;
use plimsoll_core::types::Time;

/// What comes next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum DecoderState {
    #[default]
    Start,
    /// A key, or the end of the object.
    Member(ObjectScope, bool),
    /// A text that is worth knowing.
    Text(TextField),
    /// `true` or `false`: whether the result is partial.
    Partial,
    /// The list of warnings or infos: its beginning.
    Notes(NoteKind),
    /// One of them, or the end.
    Note(NoteKind, bool),
    Data,
    Result,
    /// A series, or the end of the result.
    Element(bool),
    /// The labels of a series, or the end of the list.
    ListedSeries(bool),
    Metric,
    Value,
    Values,
    /// A point, or the end of the series' points.
    Point(bool),
    Histograms,
    Histogram(bool),
    /// The rest of something that does not matter, and what comes after it.
    Skip(ValueSkipper, AfterSkip),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectScope {
    Response,
    Data,
    Series,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TextField {
    Status,
    ErrorType,
    Error,
    ResultType,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NoteKind {
    Warning,
    Info,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum AfterSkip {
    Member(ObjectScope),
    Histogram,
}

/// The series at hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CurrentSeries {
    pub(super) has_labels: bool,
    pub(super) wanted: bool,
    pub(super) last: Option<Time>,
}

/// What the server says of its answer.
#[derive(Debug, Default)]
pub(super) struct ResponseStatus {
    pub(super) status: Option<String>,
    pub(super) error_type: String,
    pub(super) error: String,
    pub(super) result: bool,
}
