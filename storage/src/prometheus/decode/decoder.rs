//! The state machine that decodes a response.

#[cfg(test)]
mod tests;

use std::mem;

use super::{
    DecodeError, Interest, ResponseSummary, ResultType, SeriesVisitor,
    cursor::{Cursor, Parse, ParseError, number},
    labels::{LabelBuffer, unescape},
    state::{
        AfterSkip, CurrentSeries, DecoderState, NoteKind, ObjectScope, ResponseStatus, TextField,
    },
    value_skipper::ValueSkipper,
};
use crate::error_text::one_line;
use plimsoll_core::types::Time;

/// Minimum number of bytes to append to an incomplete token: more than a point has.
const MIN_JOINED_BYTES: usize = 128;
/// Maximum length of a label set or string. Error messages repeat queries, which may name hundreds of pods.
const LONGEST: usize = 1 << 20;
/// Maximum number of warnings to keep: a server may send one per series.
const MAX_NOTES: usize = 20;

/// Decodes one response from bytes as they arrive, in pieces of any size.
#[derive(Debug, Default)]
pub struct ResponseDecoder {
    /// The start of an incomplete token.
    pending: Vec<u8>,
    /// The length of `pending` at the last attempt to parse it.
    tried: usize,
    read: u64,
    state: DecoderState,
    labels: LabelBuffer,
    series: CurrentSeries,
    /// Whether the response is a list of series instead of a query result.
    is_series_list: bool,
    response_status: ResponseStatus,
    /// A scalar or string result, until its type is known.
    scalar: Option<(Time, String)>,
    pub summary: ResponseSummary,
    /// Total number of parsed bytes, including repeated attempts.
    #[cfg(test)]
    parsed_bytes: usize,
}

impl ResponseDecoder {
    /// Creates a decoder for a query result.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a decoder for a list of series without points (`/api/v1/series`).
    pub fn for_series_list() -> Self {
        Self { is_series_list: true, ..Self::default() }
    }

    /// Decodes the next bytes. The decoder must not be used after an error.
    pub fn push(
        &mut self,
        bytes: &[u8],
        visitor: &mut impl SeriesVisitor,
    ) -> Result<(), DecodeError> {
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

    /// Decodes deferred bytes: [`ResponseDecoder::push`] retries a long incomplete token only when its length has doubled.
    pub fn flush(&mut self, visitor: &mut impl SeriesVisitor) -> Result<(), DecodeError> {
        if self.pending.len() > self.tried {
            let mut pending = mem::take(&mut self.pending);
            let done = self.advance(&pending, visitor)?;
            pending.drain(..done);
            (self.tried, self.pending) = (pending.len(), pending);
        }
        Ok(())
    }

    /// Completes a token that started in an earlier piece with the start of this one. The rest of this piece is not copied.
    fn join<'a>(
        &mut self,
        piece: &'a [u8],
        visitor: &mut impl SeriesVisitor,
    ) -> Result<&'a [u8], DecodeError> {
        // Moved out, so that it can be borrowed while `self` changes.
        let mut pending = mem::take(&mut self.pending);
        let pending_length = pending.len();
        // Double the length each time, so that a long token is parsed only a few times, however small the pieces are.
        let more = pending_length.max(MIN_JOINED_BYTES).min(piece.len());
        pending.extend_from_slice(&piece[..more]);
        if self.tried >= MIN_JOINED_BYTES && pending.len() < 2 * self.tried {
            self.pending = pending;
            self.check_length()?;
            return Ok(&piece[more..]);
        }
        let done = self.advance(&pending, visitor)?;
        let rest = if done >= pending_length {
            pending.clear();
            &piece[done - pending_length..]
        } else {
            pending.drain(..done);
            &piece[more..]
        };
        (self.tried, self.pending) = (pending.len(), pending);
        self.check_length()?;
        Ok(rest)
    }

    fn check_length(&self) -> Result<(), DecodeError> {
        if self.pending.len() > LONGEST {
            return Err(DecodeError::TooLong { at: self.read, longest: LONGEST });
        }
        Ok(())
    }

    /// Ends the response. Calls the visitor's `finish` only if the response is complete and successful.
    pub fn finish(
        mut self,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, DecodeError> {
        self.flush(visitor)?;
        if !matches!(self.state, DecoderState::End) {
            return Err(DecodeError::Truncated { bytes: self.summary.bytes });
        }
        let missing = |expected| DecodeError::Malformed {
            at: self.read,
            expected,
            found: "the end of the response".to_owned(),
        };
        match self.response_status.status.as_deref() {
            Some("success") if self.response_status.result => {}
            Some("success") => return Err(missing("the result of a query")),
            Some(_) => {
                let ResponseStatus { error_type, error, .. } = self.response_status;
                return Err(DecodeError::ReportedByServer { kind: error_type, message: error });
            }
            None => return Err(missing("a status")),
        }
        if let Some((at, text)) = self.scalar.take() {
            if self.summary.kind == Some(ResultType::String) {
                self.summary.text = Some(text);
            } else {
                let value = number(text.as_bytes()).ok_or_else(|| missing("a number"))?;
                self.labels.clear();
                self.summary.series = 1;
                if visitor.begin(self.labels.labels()) == Interest::Points {
                    visitor.point(at, value);
                    self.summary.points = 1;
                }
                visitor.end();
            }
        }
        visitor.finish();
        Ok(self.summary)
    }

    /// Decodes all complete tokens, and returns the number of consumed bytes.
    fn advance(
        &mut self,
        bytes: &[u8],
        visitor: &mut impl SeriesVisitor,
    ) -> Result<usize, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        #[cfg(test)]
        {
            self.parsed_bytes += bytes.len();
        }
        loop {
            match self.step(&mut cursor, visitor) {
                Ok(state) => {
                    cursor.mark_consumed();
                    self.state = state;
                }
                Err(ParseError::NeedMoreBytes) => {
                    self.read += cursor.consumed as u64;
                    return Ok(cursor.consumed);
                }
                Err(ParseError::Expected(expected)) => {
                    let rest = &cursor.remaining()[..cursor.remaining().len().min(40)];
                    return Err(DecodeError::Malformed {
                        at: self.read + cursor.at as u64,
                        expected,
                        found: format!("{:?}", one_line(&String::from_utf8_lossy(rest))),
                    });
                }
            }
        }
    }

    /// Decodes the next token and returns the next state. Changes nothing if the token is incomplete.
    fn step(
        &mut self,
        cursor: &mut Cursor<'_>,
        visitor: &mut impl SeriesVisitor,
    ) -> Parse<DecoderState> {
        Ok(match self.state {
            DecoderState::Start => {
                cursor.expect_byte(b'{', "a response of Prometheus")?;
                DecoderState::Member(ObjectScope::Response, true)
            }
            DecoderState::Member(scope, first) => {
                return self.member(scope, first, cursor, visitor);
            }
            DecoderState::Text(text) => {
                let mut read = String::new();
                unescape(cursor.string("a string")?, &mut read)?;
                self.text(text, read)
            }
            DecoderState::Partial => {
                if cursor.peek()? == b't' {
                    cursor.expect_word("true")?;
                    self.summary.is_partial = true;
                    self.summary.warnings.push("the result is partial".to_owned());
                } else {
                    cursor.expect_word("false")?;
                }
                DecoderState::Member(ObjectScope::Response, false)
            }
            DecoderState::Notes(note) => {
                if cursor.peek()? == b'n' {
                    cursor.expect_word("null")?;
                    DecoderState::Member(ObjectScope::Response, false)
                } else {
                    cursor.expect_byte(b'[', "a list of strings")?;
                    DecoderState::Note(note, true)
                }
            }
            DecoderState::Note(note, first) => self.note(note, first, cursor)?,
            DecoderState::Data => {
                if cursor.peek()? == b'n' {
                    cursor.expect_word("null")?;
                    DecoderState::Member(ObjectScope::Response, false)
                } else if self.is_series_list {
                    cursor.expect_byte(b'[', "a list of series")?;
                    self.response_status.result = true;
                    DecoderState::ListedSeries(true)
                } else {
                    cursor.expect_byte(b'{', "the result of a query")?;
                    DecoderState::Member(ObjectScope::Data, true)
                }
            }
            DecoderState::Result => {
                if cursor.peek()? == b'n' {
                    cursor.expect_word("null")?;
                    self.response_status.result = true;
                    DecoderState::Member(ObjectScope::Data, false)
                } else {
                    cursor.expect_byte(b'[', "the list of results")?;
                    self.response_status.result = true;
                    DecoderState::Element(true)
                }
            }
            DecoderState::Element(first) => self.element(first, cursor)?,
            DecoderState::ListedSeries(first) => return self.listed(first, cursor, visitor),
            DecoderState::Metric => {
                self.labels.read(cursor)?;
                self.summary.series += 1;
                let wanted = visitor.begin(self.labels.labels()) == Interest::Points;
                self.series = CurrentSeries { has_labels: true, wanted, last: None };
                DecoderState::Member(ObjectScope::Series, false)
            }
            DecoderState::Value => {
                let (at, value) = cursor.sample()?;
                visitor.point(at, value);
                self.summary.points += 1;
                DecoderState::Member(ObjectScope::Series, false)
            }
            DecoderState::Values => {
                cursor.expect_byte(b'[', "the points of a series")?;
                DecoderState::Point(true)
            }
            DecoderState::Point(first) => return self.points(first, cursor, visitor),
            DecoderState::Histograms => {
                cursor.expect_byte(b'[', "the histograms of a series")?;
                DecoderState::Histogram(true)
            }
            DecoderState::Histogram(first) => self.histogram(first, cursor)?,
            DecoderState::Skip(mut skip, after) => {
                // The skipper consumes partial values, so store its state even if the value is incomplete.
                let skipped = skip.skip_value(cursor);
                self.state = DecoderState::Skip(skip, after);
                skipped?;
                match after {
                    AfterSkip::Member(scope) => DecoderState::Member(scope, false),
                    AfterSkip::Histogram => DecoderState::Histogram(false),
                }
            }
            DecoderState::End => {
                cursor.peek()?;
                return Err(ParseError::Expected("the end of the response"));
            }
        })
    }

    fn listed(
        &mut self,
        first: bool,
        cursor: &mut Cursor<'_>,
        visitor: &mut impl SeriesVisitor,
    ) -> Parse<DecoderState> {
        if !cursor.next_element(first, "a comma or the end of the list")? {
            return Ok(DecoderState::Member(ObjectScope::Response, false));
        }
        self.labels.read(cursor)?;
        self.summary.series += 1;
        visitor.begin(self.labels.labels());
        visitor.end();
        Ok(DecoderState::ListedSeries(false))
    }

    fn histogram(&mut self, first: bool, cursor: &mut Cursor<'_>) -> Parse<DecoderState> {
        if !cursor.next_element(first, "a comma or the end of the histograms")? {
            return Ok(DecoderState::Member(ObjectScope::Series, false));
        }
        self.summary.histograms += 1;
        Ok(DecoderState::Skip(ValueSkipper::default(), AfterSkip::Histogram))
    }

    fn member(
        &mut self,
        scope: ObjectScope,
        first: bool,
        cursor: &mut Cursor<'_>,
        visitor: &mut impl SeriesVisitor,
    ) -> Parse<DecoderState> {
        if cursor.take_if(b'}')? {
            return match scope {
                ObjectScope::Response => Ok(DecoderState::End),
                ObjectScope::Data => Ok(DecoderState::Member(ObjectScope::Response, false)),
                ObjectScope::Series if self.series.has_labels => {
                    visitor.end();
                    Ok(DecoderState::Element(false))
                }
                ObjectScope::Series => Err(ParseError::Expected("the labels of a series")),
            };
        }
        if !first {
            cursor.expect_byte(b',', "a comma or the end of an object")?;
        }
        let key = cursor.string("a key")?;
        cursor.expect_byte(b':', "a colon")?;
        let skipped = DecoderState::Skip(ValueSkipper::default(), AfterSkip::Member(scope));
        let CurrentSeries { has_labels, wanted, .. } = self.series;
        Ok(match (scope, key) {
            (ObjectScope::Response, b"status") => DecoderState::Text(TextField::Status),
            (ObjectScope::Response, b"errorType") => DecoderState::Text(TextField::ErrorType),
            (ObjectScope::Response, b"error") => DecoderState::Text(TextField::Error),
            (ObjectScope::Response, b"warnings") => DecoderState::Notes(NoteKind::Warning),
            (ObjectScope::Response, b"infos") => DecoderState::Notes(NoteKind::Info),
            (ObjectScope::Response, b"isPartial") => DecoderState::Partial,
            (ObjectScope::Response, b"data")
                if self.is_series_list && self.response_status.result =>
            {
                return Err(ParseError::Expected("only one list"));
            }
            (ObjectScope::Response, b"data") => DecoderState::Data,
            (ObjectScope::Data, b"resultType") => DecoderState::Text(TextField::ResultType),
            (ObjectScope::Data, b"result") if self.response_status.result => {
                return Err(ParseError::Expected("only one result"));
            }
            (ObjectScope::Data, b"result") => DecoderState::Result,
            (ObjectScope::Series, b"metric") if has_labels => {
                return Err(ParseError::Expected("only one set of labels"));
            }
            (ObjectScope::Series, b"metric") => DecoderState::Metric,
            (ObjectScope::Series, b"value" | b"values" | b"histogram" | b"histograms")
                if !has_labels =>
            {
                return Err(ParseError::Expected("the labels before the points"));
            }
            (ObjectScope::Series, b"value") if wanted => DecoderState::Value,
            (ObjectScope::Series, b"values") if wanted => DecoderState::Values,
            (ObjectScope::Series, b"histogram") if wanted => {
                self.summary.histograms += 1;
                skipped
            }
            (ObjectScope::Series, b"histograms") if wanted => DecoderState::Histograms,
            _ => skipped,
        })
    }

    fn text(&mut self, field: TextField, value: String) -> DecoderState {
        match field {
            TextField::Status => self.response_status.status = Some(value),
            TextField::ErrorType => self.response_status.error_type = one_line(&value),
            TextField::Error => self.response_status.error = one_line(&value),
            TextField::ResultType => {
                self.summary.kind = match value.as_str() {
                    "vector" => Some(ResultType::Vector),
                    "matrix" => Some(ResultType::Matrix),
                    "scalar" => Some(ResultType::Scalar),
                    "string" => Some(ResultType::String),
                    _ => None,
                };
                return DecoderState::Member(ObjectScope::Data, false);
            }
        }
        DecoderState::Member(ObjectScope::Response, false)
    }

    fn note(
        &mut self,
        note: NoteKind,
        first: bool,
        cursor: &mut Cursor<'_>,
    ) -> Parse<DecoderState> {
        if !cursor.next_element(first, "a comma or the end of a list")? {
            return Ok(DecoderState::Member(ObjectScope::Response, false));
        }
        let mut text = String::new();
        unescape(cursor.string("a string")?, &mut text)?;
        let notes = match note {
            NoteKind::Warning => &mut self.summary.warnings,
            NoteKind::Info => &mut self.summary.infos,
        };
        if notes.len() < MAX_NOTES {
            notes.push(one_line(&text));
        }
        Ok(DecoderState::Note(note, false))
    }

    fn element(&mut self, first: bool, cursor: &mut Cursor<'_>) -> Parse<DecoderState> {
        if !cursor.next_element(first, "a comma or the end of the result")? {
            return Ok(DecoderState::Member(ObjectScope::Data, false));
        }
        if first && cursor.peek()? != b'{' {
            let at = cursor.time()?;
            cursor.expect_byte(b',', "a comma")?;
            let mut text = String::new();
            unescape(cursor.string("a string")?, &mut text)?;
            cursor.expect_byte(b']', "the end of the result")?;
            self.scalar = Some((at, text));
            return Ok(DecoderState::Member(ObjectScope::Data, false));
        }
        cursor.expect_byte(b'{', "a series")?;
        self.series = CurrentSeries::default();
        Ok(DecoderState::Member(ObjectScope::Series, true))
    }

    /// Decodes all available points.
    fn points(
        &mut self,
        mut first: bool,
        cursor: &mut Cursor<'_>,
        visitor: &mut impl SeriesVisitor,
    ) -> Parse<DecoderState> {
        loop {
            if !cursor.next_element(first, "a comma or the end of the points")? {
                return Ok(DecoderState::Member(ObjectScope::Series, false));
            }
            let (at, value) = cursor.sample()?;
            if self.series.last.is_some_and(|last| at <= last) {
                return Err(ParseError::Expected("a later point than this one"));
            }
            self.series.last = Some(at);
            visitor.point(at, value);
            self.summary.points += 1;
            cursor.mark_consumed();
            if first {
                first = false;
                self.state = DecoderState::Point(false);
            }
        }
    }
}
