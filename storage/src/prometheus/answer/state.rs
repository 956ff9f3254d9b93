//! Where in an answer its reader is, and what it remembers of what came before.

use super::skip::Skip;
use plimsoll_core::types::Time;

/// What comes next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    #[default]
    Start,
    /// A key, or the end of the object.
    Member(Place, bool),
    /// A text that is worth knowing.
    Text(Text),
    /// `true` or `false`: whether the result is partial.
    Partial,
    /// The list of warnings or infos: its beginning.
    Notes(Note),
    /// One of them, or the end.
    Note(Note, bool),
    Data,
    Result,
    /// A series, or the end of the result.
    Element(bool),
    /// The labels of a series, or the end of the list.
    Listed(bool),
    Metric,
    Value,
    Values,
    /// A point, or the end of the series' points.
    Point(bool),
    Histograms,
    Histogram(bool),
    /// The rest of something that does not matter, and what comes after it.
    Skip(Skip, After),
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Answer,
    Data,
    Series,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Text {
    Status,
    ErrorType,
    Error,
    ResultType,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Note {
    Warning,
    Info,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    Member(Place),
    Histogram,
}

/// The series at hand.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Current {
    pub(super) begun: bool,
    pub(super) wanted: bool,
    pub(super) last: Option<Time>,
}

/// What the server says of its answer.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) status: Option<String>,
    pub(super) error_type: String,
    pub(super) error: String,
    pub(super) result: bool,
}
