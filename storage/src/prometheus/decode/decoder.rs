//! Decodes a response from its first to its last byte.
#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path to a method fixes the lifetime of its cursor"
)]

#[cfg(test)]
mod tests;

use std::mem;

use bytes::Bytes;
use futures::Stream;

use super::{
    DecodeError, Interest, ResponseSummary, ResultType, SeriesVisitor,
    cursor::{Cursor, Parse, ParseError, number},
    input::Input,
    labels::{LabelBuffer, unescape},
};
use crate::error_text::one_line;
use plimsoll_core::types::Time;

/// Maximum number of warnings to keep: a server may send one per series.
const MAX_WARNINGS: usize = 20;

/// The documents that a response may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseKind {
    QueryResult,
    /// A list of series without points (`/api/v1/series`).
    SeriesList,
}

/// Decodes a response from its bytes as they arrive, in pieces of any size. `check` is called now and then, and may end it.
/// Calls the visitor's `finish` only if the response is complete and successful.
pub async fn decode_response<E: From<DecodeError>, V: SeriesVisitor>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Unpin,
    kind: ResponseKind,
    visitor: &mut V,
    check: impl Fn(&ResponseSummary, &V) -> Result<(), E>,
) -> Result<ResponseSummary, E> {
    let mut decoder = Decoder {
        input: Input::new(pieces),
        kind,
        visitor,
        check,
        labels: LabelBuffer::default(),
        envelope: Envelope::default(),
        summary: ResponseSummary::default(),
    };
    decoder.response().await?;
    decoder.finish()
}

struct Decoder<'a, P, V, C> {
    input: Input<P>,
    kind: ResponseKind,
    visitor: &'a mut V,
    check: C,
    labels: LabelBuffer,
    envelope: Envelope,
    summary: ResponseSummary,
}

/// What a response has besides its series.
#[derive(Default)]
struct Envelope {
    status: Option<String>,
    error_type: String,
    error: String,
    has_result: bool,
    /// A scalar, or a string: its type may come last.
    scalar: Option<(Time, String)>,
}

impl<E, P, V, C> Decoder<'_, P, V, C>
where
    E: From<DecodeError>,
    P: Stream<Item = Result<Bytes, E>> + Unpin,
    V: SeriesVisitor,
    C: Fn(&ResponseSummary, &V) -> Result<(), E>,
{
    async fn response(&mut self) -> Result<(), E> {
        self.expect_byte(b'{', "a response of Prometheus").await?;
        let mut first = true;
        while let Some(key) = self.next_key(&mut first).await? {
            match &*key {
                "status" => self.envelope.status = Some(self.text().await?),
                "errorType" => self.envelope.error_type = one_line(&self.text().await?),
                "error" => self.envelope.error = one_line(&self.text().await?),
                "warnings" => self.warnings().await?,
                "isPartial" => {
                    let is_partial = |cursor: &mut Cursor<'_>| {
                        let is_partial = cursor.peek()? == b't';
                        cursor.expect_word(if is_partial { "true" } else { "false" })?;
                        Ok(is_partial)
                    };
                    if self.input.token(is_partial).await? {
                        self.summary.is_partial = true;
                        self.summary.warnings.push("the result is partial".to_owned());
                    }
                }
                "data" if self.kind == ResponseKind::SeriesList => self.series_list().await?,
                "data" => self.data().await?,
                _ => self.skip_value().await?,
            }
        }
        // Nothing but whitespace follows.
        while self.input.parse(|cursor| cursor.peek())?.is_none() {
            if !self.input.has_more().await? {
                return Ok(());
            }
        }
        Err(self.input.unexpected("the end of the response").into())
    }

    async fn data(&mut self) -> Result<(), E> {
        if !self.begins(b'{', "the result of a query").await? {
            return Ok(());
        }
        let mut first = true;
        while let Some(key) = self.next_key(&mut first).await? {
            match &*key {
                "resultType" => self.summary.kind = self.text().await?.parse().ok(),
                "result" => self.result().await?,
                _ => self.skip_value().await?,
            }
        }
        Ok(())
    }

    async fn result(&mut self) -> Result<(), E> {
        if mem::replace(&mut self.envelope.has_result, true) {
            return Err(self.input.unexpected("only one result").into());
        }
        if !self.begins(b'[', "the list of results").await? {
            return Ok(());
        }
        let mut first = true;
        while self.next_element(&mut first, "a comma or the end of the result").await? {
            if self.summary.series == 0 && self.input.token(|cursor| cursor.peek()).await? != b'{' {
                let scalar = |cursor: &mut Cursor<'_>| {
                    let at = cursor.time()?;
                    cursor.expect_byte(b',', "a comma")?;
                    let text = text(cursor)?;
                    cursor.expect_byte(b']', "the end of the result")?;
                    Ok((at, text))
                };
                self.envelope.scalar = Some(self.input.token(scalar).await?);
                return Ok(());
            }
            self.series().await?;
        }
        Ok(())
    }

    async fn series_list(&mut self) -> Result<(), E> {
        if self.envelope.has_result {
            return Err(self.input.unexpected("only one list").into());
        }
        self.envelope.has_result = self.begins(b'[', "a list of series").await?;
        if !self.envelope.has_result {
            return Ok(());
        }
        let mut first = true;
        while self.next_element(&mut first, "a comma or the end of the list").await? {
            self.begin_series().await?;
            self.visitor.end();
        }
        Ok(())
    }

    async fn series(&mut self) -> Result<(), E> {
        self.expect_byte(b'{', "a series").await?;
        let mut interest = None;
        let mut first = true;
        while let Some(key) = self.next_key(&mut first).await? {
            let is_point = matches!(&*key, "value" | "values" | "histogram" | "histograms");
            match (&*key, interest) {
                ("metric", None) => interest = Some(self.begin_series().await?),
                ("metric", Some(_)) => {
                    return Err(self.input.unexpected("only one set of labels").into());
                }
                (_, None) if is_point => {
                    return Err(self.input.unexpected("the labels before the points").into());
                }
                ("value", Some(Interest::Points)) => {
                    let (at, value) = self.input.token(|cursor| cursor.sample()).await?;
                    self.visitor.point(at, value);
                    self.summary.points += 1;
                }
                ("values", Some(Interest::Points)) => self.points().await?,
                ("histogram", Some(Interest::Points)) => {
                    self.summary.histograms += 1;
                    self.skip_value().await?;
                }
                ("histograms", Some(Interest::Points)) => {
                    self.expect_byte(b'[', "the histograms of a series").await?;
                    let mut first = true;
                    let expected = "a comma or the end of the histograms";
                    while self.next_element(&mut first, expected).await? {
                        self.summary.histograms += 1;
                        self.skip_value().await?;
                    }
                }
                _ => self.skip_value().await?,
            }
        }
        if interest.is_none() {
            return Err(self.input.unexpected("the labels of a series").into());
        }
        self.visitor.end();
        Ok(())
    }

    async fn begin_series(&mut self) -> Result<Interest, E> {
        self.input.token(|cursor| self.labels.read(cursor)).await?;
        self.summary.series += 1;
        Ok(self.visitor.begin(self.labels.labels()))
    }

    async fn points(&mut self) -> Result<(), E> {
        self.expect_byte(b'[', "the points of a series").await?;
        let (mut first, mut last) = (true, None);
        loop {
            let available_points = |cursor: &mut Cursor<'_>| {
                while cursor.next_element(first, "a comma or the end of the points")? {
                    let (at, value) = cursor.sample()?;
                    if last.is_some_and(|last| at <= last) {
                        return Err(ParseError::Expected("a later point than this one"));
                    }
                    (first, last) = (false, Some(at));
                    self.visitor.point(at, value);
                    self.summary.points += 1;
                    cursor.mark_consumed();
                }
                Ok(())
            };
            if self.input.parse(available_points)?.is_some() {
                return Ok(());
            }
            self.input.more().await?;
            self.check()?;
        }
    }

    async fn warnings(&mut self) -> Result<(), E> {
        if !self.begins(b'[', "a list of strings").await? {
            return Ok(());
        }
        let mut first = true;
        while self.next_element(&mut first, "a comma or the end of a list").await? {
            let warning = self.text().await?;
            if self.summary.warnings.len() < MAX_WARNINGS {
                self.summary.warnings.push(one_line(&warning));
            }
        }
        Ok(())
    }

    async fn text(&mut self) -> Result<String, E> {
        self.input.token(text).await
    }

    async fn expect_byte(&mut self, byte: u8, expected: &'static str) -> Result<(), E> {
        self.input.token(|cursor| cursor.expect_byte(byte, expected)).await
    }

    /// Consumes the opening bracket of a value. `false` if the value is `null`.
    async fn begins(&mut self, bracket: u8, expected: &'static str) -> Result<bool, E> {
        let begins = |cursor: &mut Cursor<'_>| {
            if cursor.peek()? == b'n' {
                cursor.expect_word("null")?;
                return Ok(false);
            }
            cursor.expect_byte(bracket, expected)?;
            Ok(true)
        };
        self.input.token(begins).await
    }

    /// Moves to the value of the next key of an object, and returns the key. `None` at the end of the object.
    async fn next_key(&mut self, first: &mut bool) -> Result<Option<String>, E> {
        let is_first = mem::replace(first, false);
        let key = |cursor: &mut Cursor<'_>| {
            if cursor.take_if(b'}')? {
                return Ok(None);
            }
            if !is_first {
                cursor.expect_byte(b',', "a comma or the end of an object")?;
            }
            let key = cursor.string("a key")?;
            cursor.expect_byte(b':', "a colon")?;
            Ok(Some(String::from_utf8_lossy(key).into_owned()))
        };
        self.input.token(key).await
    }

    /// Moves to the next element of a list. `false` at its end.
    async fn next_element(&mut self, first: &mut bool, expected: &'static str) -> Result<bool, E> {
        self.check()?;
        let is_first = mem::replace(first, false);
        self.input.token(|cursor| cursor.next_element(is_first, expected)).await
    }

    async fn skip_value(&mut self) -> Result<(), E> {
        let mut open_brackets = Vec::new();
        self.input.token(|cursor| cursor.skip_value(&mut open_brackets)).await
    }

    /// Calls `check`, if bytes arrived since it was called.
    fn check(&mut self) -> Result<(), E> {
        if !mem::take(&mut self.input.has_grown) {
            return Ok(());
        }
        self.summary.bytes = self.input.bytes;
        (self.check)(&self.summary, self.visitor)
    }

    /// Completes a response whose bytes are decoded.
    fn finish(mut self) -> Result<ResponseSummary, E> {
        self.check()?;
        let missing = |expected| DecodeError::Malformed {
            at: self.input.position(),
            expected,
            found: "the end of the response".to_owned(),
        };
        let Envelope { status, error_type, error, has_result, scalar } = self.envelope;
        match status.as_deref() {
            Some("success") if has_result => {}
            Some("success") => return Err(missing("the result of a query").into()),
            Some(_) => {
                let error = DecodeError::ReportedByServer { kind: error_type, message: error };
                return Err(error.into());
            }
            None => return Err(missing("a status").into()),
        }
        if let Some((at, text)) = scalar.filter(|_| self.summary.kind != Some(ResultType::String)) {
            let value = number(text.as_bytes()).ok_or_else(|| missing("a number"))?;
            self.labels.clear();
            self.summary.series = 1;
            if self.visitor.begin(self.labels.labels()) == Interest::Points {
                self.visitor.point(at, value);
                self.summary.points = 1;
            }
            self.visitor.end();
        }
        self.visitor.finish();
        Ok(self.summary)
    }
}

fn text(cursor: &mut Cursor<'_>) -> Parse<String> {
    let mut text = String::new();
    unescape(cursor.string("a string")?, &mut text)?;
    Ok(text)
}
