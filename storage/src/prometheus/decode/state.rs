//! The state of the decoder.

use super::value_skipper::ValueSkipper;
use plimsoll_core::types::Time;

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum DecoderState {
    #[default]
    Start,
    /// A key, or the end of the object.
    Member(ObjectScope, bool),
    /// A string field that is needed.
    Text(TextField),
    /// `true` or `false`: whether the result is partial.
    Partial,
    /// The start of the list of warnings or infos.
    Notes(NoteKind),
    /// A warning or info, or the end of the list.
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
    /// The rest of a value to skip, and what comes after it.
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

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CurrentSeries {
    pub(super) has_labels: bool,
    pub(super) wanted: bool,
    pub(super) last: Option<Time>,
}

#[derive(Debug, Default)]
pub(super) struct ResponseStatus {
    pub(super) status: Option<String>,
    pub(super) error_type: String,
    pub(super) error: String,
    pub(super) result: bool,
}
