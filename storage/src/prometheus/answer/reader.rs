//! The way through an answer: which piece of JSON comes next, and what it means.

use std::mem;

use super::{
    AnswerError, Kind, Series, Summary, Wants,
    cursor::{Cursor, Stop, Take, number},
    error::one_line,
    labels::{Kept, unescape},
    skip::Skip,
};
use crate::Time;

/// How much is looked at together: what is kept of a large piece while the next one is awaited is less than this.
const PIECE: usize = 64 << 10;
/// The longest label set or text. Error texts repeat queries, and those name hundreds of pods.
const LONGEST: usize = 1 << 20;
/// Warnings that are kept: a server has one for each series.
const MOST_NOTES: usize = 20;

/// Reads one answer from bytes as they arrive, in pieces of any size.
#[derive(Debug, Default)]
pub struct Reader {
    /// The beginning of something whose rest has not arrived.
    pending: Vec<u8>,
    /// Bytes that are dealt with.
    read: u64,
    state: State,
    labels: Kept,
    series: Current,
    said: Said,
    /// A result without labels, until its type is known.
    lone: Option<(Time, String)>,
    summary: Summary,
}

/// What comes next.
#[derive(Clone, Copy, Debug, Default)]
enum State {
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
enum Place {
    Answer,
    Data,
    Series,
}

#[derive(Clone, Copy, Debug)]
enum Text {
    Status,
    ErrorType,
    Error,
    ResultType,
}

#[derive(Clone, Copy, Debug)]
enum Note {
    Warning,
    Info,
}

#[derive(Clone, Copy, Debug)]
enum After {
    Member(Place),
    Histogram,
}

/// The series at hand.
#[derive(Clone, Copy, Debug, Default)]
struct Current {
    begun: bool,
    wanted: bool,
    last: Option<Time>,
}

/// What the server says of its answer.
#[derive(Debug, Default)]
struct Said {
    status: Option<String>,
    error_type: String,
    error: String,
    result: bool,
}

impl Reader {
    /// At the beginning of an answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// What has been read so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Takes the next bytes. After an error there is nothing more to be had.
    pub fn push<S: Series + ?Sized>(
        &mut self,
        bytes: &[u8],
        visitor: &mut S,
    ) -> Result<(), AnswerError> {
        for piece in bytes.chunks(PIECE) {
            self.summary.bytes += piece.len() as u64;
            // Taken out, so that what is parsed from it and what is changed meanwhile are two things.
            let mut pending = mem::take(&mut self.pending);
            pending.extend_from_slice(piece);
            let done = self.advance(&pending, visitor)?;
            pending.drain(..done);
            self.read += done as u64;
            if pending.len() > LONGEST {
                return Err(AnswerError::TooLong { at: self.read, longest: LONGEST });
            }
            self.pending = pending;
        }
        Ok(())
    }

    /// Says that there are no more bytes. Only here, and only if the answer is whole and good, is the visitor told
    /// that what came counts.
    pub fn finish<S: Series + ?Sized>(mut self, visitor: &mut S) -> Result<Summary, AnswerError> {
        if !matches!(self.state, State::End) {
            return Err(AnswerError::Cut { bytes: self.summary.bytes });
        }
        let missing = |expected| AnswerError::Malformed {
            at: self.read,
            expected,
            found: "the end of the answer".to_owned(),
        };
        match self.said.status.as_deref() {
            Some("success") if self.said.result => {}
            Some("success") => return Err(missing("the result of a query")),
            Some(_) => {
                let Said { error_type, error, .. } = self.said;
                return Err(AnswerError::Reported { kind: error_type, message: error });
            }
            None => return Err(missing("a status")),
        }
        if let Some((at, text)) = self.lone.take() {
            if self.summary.kind == Some(Kind::String) {
                self.summary.text = Some(text);
            } else {
                let value = number(text.as_bytes()).ok_or_else(|| missing("a number"))?;
                self.labels.clear();
                self.summary.series = 1;
                if visitor.begin(self.labels.labels()) == Wants::Points {
                    visitor.point(at, value);
                    self.summary.points = 1;
                }
                visitor.end();
            }
        }
        visitor.finish();
        Ok(self.summary)
    }

    fn advance<S: Series + ?Sized>(
        &mut self,
        bytes: &[u8],
        visitor: &mut S,
    ) -> Result<usize, AnswerError> {
        let mut cursor = Cursor::new(bytes);
        loop {
            match self.step(&mut cursor, visitor) {
                Ok(state) => {
                    cursor.settle();
                    self.state = state;
                }
                Err(Stop::More) => return Ok(cursor.done()),
                Err(Stop::Expected(expected)) => {
                    let rest = &cursor.rest()[..cursor.rest().len().min(40)];
                    return Err(AnswerError::Malformed {
                        at: self.read + cursor.at() as u64,
                        expected,
                        found: format!("{:?}", one_line(&String::from_utf8_lossy(rest))),
                    });
                }
            }
        }
    }

    /// Takes what comes next, whole, and says what comes then. Nothing changes if it is not all there.
    fn step<S: Series + ?Sized>(
        &mut self,
        cursor: &mut Cursor<'_>,
        visitor: &mut S,
    ) -> Take<State> {
        Ok(match self.state {
            State::Start => {
                cursor.take(b'{', "the answer of a Prometheus")?;
                State::Member(Place::Answer, true)
            }
            State::Member(place, first) => return self.member(place, first, cursor, visitor),
            State::Text(text) => {
                let mut read = String::new();
                unescape(cursor.string("a text")?, &mut read)?;
                self.text(text, read)
            }
            State::Partial => {
                if cursor.peek()? == b't' {
                    cursor.word("true")?;
                    self.summary.warnings.push("the result is partial".to_owned());
                } else {
                    cursor.word("false")?;
                }
                State::Member(Place::Answer, false)
            }
            State::Notes(note) => {
                if cursor.peek()? == b'n' {
                    cursor.word("null")?;
                    State::Member(Place::Answer, false)
                } else {
                    cursor.take(b'[', "a list of texts")?;
                    State::Note(note, true)
                }
            }
            State::Note(note, first) => self.note(note, first, cursor)?,
            State::Data => {
                if cursor.peek()? == b'n' {
                    cursor.word("null")?;
                    State::Member(Place::Answer, false)
                } else {
                    cursor.take(b'{', "the result of a query")?;
                    State::Member(Place::Data, true)
                }
            }
            State::Result => {
                if cursor.peek()? == b'n' {
                    cursor.word("null")?;
                    self.said.result = true;
                    State::Member(Place::Data, false)
                } else {
                    cursor.take(b'[', "the list of a result")?;
                    self.said.result = true;
                    State::Element(true)
                }
            }
            State::Element(first) => self.element(first, cursor)?,
            State::Metric => {
                self.labels.read(cursor)?;
                self.summary.series += 1;
                let wanted = visitor.begin(self.labels.labels()) == Wants::Points;
                self.series = Current { begun: true, wanted, last: None };
                State::Member(Place::Series, false)
            }
            State::Value => {
                let (at, value) = cursor.sample()?;
                visitor.point(at, value);
                self.summary.points += 1;
                State::Member(Place::Series, false)
            }
            State::Values => {
                cursor.take(b'[', "the points of a series")?;
                State::Point(true)
            }
            State::Point(first) => return self.points(first, cursor, visitor),
            State::Histograms => {
                cursor.take(b'[', "the histograms of a series")?;
                State::Histogram(true)
            }
            State::Histogram(first) => {
                if cursor.takes(b']')? {
                    State::Member(Place::Series, false)
                } else {
                    if !first {
                        cursor.take(b',', "a comma or the end of the histograms")?;
                    }
                    self.summary.histograms += 1;
                    State::Skip(Skip::default(), After::Histogram)
                }
            }
            State::Skip(mut skip, after) => {
                // It is done with what it has seen, so it is remembered in the midst of it too.
                let passed = skip.pass(cursor);
                self.state = State::Skip(skip, after);
                passed?;
                match after {
                    After::Member(place) => State::Member(place, false),
                    After::Histogram => State::Histogram(false),
                }
            }
            State::End => {
                cursor.peek()?;
                return Err(Stop::Expected("nothing more"));
            }
        })
    }

    fn member<S: Series + ?Sized>(
        &mut self,
        place: Place,
        first: bool,
        cursor: &mut Cursor<'_>,
        visitor: &mut S,
    ) -> Take<State> {
        if cursor.takes(b'}')? {
            return match place {
                Place::Answer => Ok(State::End),
                Place::Data => Ok(State::Member(Place::Answer, false)),
                Place::Series if self.series.begun => {
                    visitor.end();
                    Ok(State::Element(false))
                }
                Place::Series => Err(Stop::Expected("the labels of a series")),
            };
        }
        if !first {
            cursor.take(b',', "a comma or the end of an object")?;
        }
        let key = cursor.string("a key")?;
        cursor.take(b':', "a colon")?;
        let skipped = State::Skip(Skip::default(), After::Member(place));
        let Current { begun, wanted, .. } = self.series;
        Ok(match (place, key) {
            (Place::Answer, b"status") => State::Text(Text::Status),
            (Place::Answer, b"errorType") => State::Text(Text::ErrorType),
            (Place::Answer, b"error") => State::Text(Text::Error),
            (Place::Answer, b"warnings") => State::Notes(Note::Warning),
            (Place::Answer, b"infos") => State::Notes(Note::Info),
            (Place::Answer, b"isPartial") => State::Partial,
            (Place::Answer, b"data") => State::Data,
            (Place::Data, b"resultType") => State::Text(Text::ResultType),
            (Place::Data, b"result") if self.said.result => {
                return Err(Stop::Expected("one result"));
            }
            (Place::Data, b"result") => State::Result,
            (Place::Series, b"metric") if begun => return Err(Stop::Expected("one set of labels")),
            (Place::Series, b"metric") => State::Metric,
            (Place::Series, b"value" | b"values" | b"histogram" | b"histograms") if !begun => {
                return Err(Stop::Expected("the labels before the points"));
            }
            (Place::Series, b"value") if wanted => State::Value,
            (Place::Series, b"values") if wanted => State::Values,
            (Place::Series, b"histogram") if wanted => {
                self.summary.histograms += 1;
                skipped
            }
            (Place::Series, b"histograms") if wanted => State::Histograms,
            _ => skipped,
        })
    }

    fn text(&mut self, text: Text, read: String) -> State {
        match text {
            Text::Status => self.said.status = Some(read),
            Text::ErrorType => self.said.error_type = one_line(&read),
            Text::Error => self.said.error = one_line(&read),
            Text::ResultType => {
                self.summary.kind = match read.as_str() {
                    "vector" => Some(Kind::Vector),
                    "matrix" => Some(Kind::Matrix),
                    "scalar" => Some(Kind::Scalar),
                    "string" => Some(Kind::String),
                    _ => None,
                };
                return State::Member(Place::Data, false);
            }
        }
        State::Member(Place::Answer, false)
    }

    fn note(&mut self, note: Note, first: bool, cursor: &mut Cursor<'_>) -> Take<State> {
        if cursor.takes(b']')? {
            return Ok(State::Member(Place::Answer, false));
        }
        if !first {
            cursor.take(b',', "a comma or the end of a list")?;
        }
        let mut read = String::new();
        unescape(cursor.string("a text")?, &mut read)?;
        let notes = match note {
            Note::Warning => &mut self.summary.warnings,
            Note::Info => &mut self.summary.infos,
        };
        if notes.len() < MOST_NOTES {
            notes.push(one_line(&read));
        }
        Ok(State::Note(note, false))
    }

    fn element(&mut self, first: bool, cursor: &mut Cursor<'_>) -> Take<State> {
        if cursor.takes(b']')? {
            return Ok(State::Member(Place::Data, false));
        }
        if !first {
            cursor.take(b',', "a comma or the end of the result")?;
        } else if cursor.peek()? != b'{' {
            let at = cursor.time()?;
            cursor.take(b',', "a comma")?;
            let mut text = String::new();
            unescape(cursor.string("a text")?, &mut text)?;
            cursor.take(b']', "the end of the result")?;
            self.lone = Some((at, text));
            return Ok(State::Member(Place::Data, false));
        }
        cursor.take(b'{', "a series")?;
        self.series = Current::default();
        Ok(State::Member(Place::Series, true))
    }

    /// Takes as many points as there are.
    fn points<S: Series + ?Sized>(
        &mut self,
        mut first: bool,
        cursor: &mut Cursor<'_>,
        visitor: &mut S,
    ) -> Take<State> {
        loop {
            if cursor.takes(b']')? {
                return Ok(State::Member(Place::Series, false));
            }
            if !first {
                cursor.take(b',', "a comma or the end of the points")?;
            }
            let (at, value) = cursor.sample()?;
            if self.series.last.is_some_and(|last| at <= last) {
                return Err(Stop::Expected("a later point than this one"));
            }
            self.series.last = Some(at);
            visitor.point(at, value);
            self.summary.points += 1;
            cursor.settle();
            if first {
                first = false;
                self.state = State::Point(false);
            }
        }
    }
}
