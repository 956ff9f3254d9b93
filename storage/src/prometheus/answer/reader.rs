//! The way through an answer: which piece of JSON comes next, and what it means.

#[cfg(test)]
mod tests;

use std::mem;

use super::{
    AnswerError, Kind, Series, Summary, Wants,
    cursor::{Cursor, Stop, Take, number},
    error::one_line,
    labels::{Kept, unescape},
    skip::Skip,
    state::{After, Current, Note, Place, Said, State, Text},
};
use plimsoll_core::types::Time;

/// How much of a piece is looked at together with what began before it: more than a point has.
const SEAM: usize = 128;
/// The longest label set or text. Error texts repeat queries, and those name hundreds of pods.
const LONGEST: usize = 1 << 20;
/// Warnings that are kept: a server has one for each series.
const MOST_NOTES: usize = 20;

/// Reads one answer from bytes as they arrive, in pieces of any size.
#[derive(Debug, Default)]
pub struct Reader {
    /// The beginning of something whose rest has not arrived.
    pending: Vec<u8>,
    /// So much of it was looked at, and was not all of it.
    tried: usize,
    /// Bytes that are dealt with.
    read: u64,
    state: State,
    labels: Kept,
    series: Current,
    /// Whether what is read is a list of series, and no result.
    lists: bool,
    said: Said,
    /// A result without labels, until its type is known.
    lone: Option<(Time, String)>,
    summary: Summary,
    /// Bytes that were looked at, each as often as it was.
    #[cfg(test)]
    looked_at: usize,
}

impl Reader {
    /// At the beginning of an answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// At the beginning of a list of series, which has their labels and no points: `/api/v1/series`.
    pub fn of_series() -> Self {
        Self { lists: true, ..Self::default() }
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
        self.summary.bytes += bytes.len() as u64;
        let mut rest = bytes;
        while !self.pending.is_empty() && !rest.is_empty() {
            rest = self.join(rest, visitor)?;
        }
        if !rest.is_empty() {
            let done = self.advance(rest, visitor)?;
            self.pending.extend_from_slice(&rest[done..]);
            self.tried = self.pending.len();
        }
        self.check_length()
    }

    /// Takes what has arrived and was put off ([`Reader::push`] looks at something long only when there is twice as much).
    pub fn flush<S: Series + ?Sized>(&mut self, visitor: &mut S) -> Result<(), AnswerError> {
        if self.pending.len() > self.tried {
            let mut pending = mem::take(&mut self.pending);
            let done = self.advance(&pending, visitor)?;
            pending.drain(..done);
            (self.tried, self.pending) = (pending.len(), pending);
        }
        Ok(())
    }

    /// Takes what began in an earlier piece, with so much of this one that it may end there. What is left of this one
    /// need not be copied.
    fn join<'a, S: Series + ?Sized>(
        &mut self,
        piece: &'a [u8],
        visitor: &mut S,
    ) -> Result<&'a [u8], AnswerError> {
        // Taken out, so that what is parsed from it and what is changed meanwhile are two things.
        let mut pending = mem::take(&mut self.pending);
        let began = pending.len();
        // Of something long as much again each time, so that it is looked at a few times only, however small the pieces
        // are that it comes in.
        let more = began.max(SEAM).min(piece.len());
        pending.extend_from_slice(&piece[..more]);
        if self.tried >= SEAM && pending.len() < 2 * self.tried {
            self.pending = pending;
            self.check_length()?;
            return Ok(&piece[more..]);
        }
        let done = self.advance(&pending, visitor)?;
        let rest = if done >= began {
            pending.clear();
            &piece[done - began..]
        } else {
            pending.drain(..done);
            &piece[more..]
        };
        (self.tried, self.pending) = (pending.len(), pending);
        self.check_length()?;
        Ok(rest)
    }

    fn check_length(&self) -> Result<(), AnswerError> {
        if self.pending.len() > LONGEST {
            return Err(AnswerError::TooLong { at: self.read, longest: LONGEST });
        }
        Ok(())
    }

    /// Says that there are no more bytes. Only here, and only if the answer is whole and good, is the visitor told
    /// that what came counts.
    pub fn finish<S: Series + ?Sized>(mut self, visitor: &mut S) -> Result<Summary, AnswerError> {
        self.flush(visitor)?;
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

    /// Takes all that is whole, and says how many bytes that are.
    fn advance<S: Series + ?Sized>(
        &mut self,
        bytes: &[u8],
        visitor: &mut S,
    ) -> Result<usize, AnswerError> {
        let mut cursor = Cursor::new(bytes);
        #[cfg(test)]
        {
            self.looked_at += bytes.len();
        }
        loop {
            match self.step(&mut cursor, visitor) {
                Ok(state) => {
                    cursor.settle();
                    self.state = state;
                }
                Err(Stop::More) => {
                    self.read += cursor.done() as u64;
                    return Ok(cursor.done());
                }
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
                    self.summary.is_partial = true;
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
                } else if self.lists {
                    cursor.take(b'[', "a list of series")?;
                    self.said.result = true;
                    State::Listed(true)
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
            State::Listed(first) => return self.listed(first, cursor, visitor),
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
            State::Histogram(first) => self.histogram(first, cursor)?,
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

    fn listed<S: Series + ?Sized>(
        &mut self,
        first: bool,
        cursor: &mut Cursor<'_>,
        visitor: &mut S,
    ) -> Take<State> {
        if cursor.takes(b']')? {
            return Ok(State::Member(Place::Answer, false));
        }
        if !first {
            cursor.take(b',', "a comma or the end of the list")?;
        }
        self.labels.read(cursor)?;
        self.summary.series += 1;
        visitor.begin(self.labels.labels());
        visitor.end();
        Ok(State::Listed(false))
    }

    fn histogram(&mut self, first: bool, cursor: &mut Cursor<'_>) -> Take<State> {
        if cursor.takes(b']')? {
            return Ok(State::Member(Place::Series, false));
        }
        if !first {
            cursor.take(b',', "a comma or the end of the histograms")?;
        }
        self.summary.histograms += 1;
        Ok(State::Skip(Skip::default(), After::Histogram))
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
            (Place::Answer, b"data") if self.lists && self.said.result => {
                return Err(Stop::Expected("one list"));
            }
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
