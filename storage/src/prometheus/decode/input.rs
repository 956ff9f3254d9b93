//! The bytes of a response as they arrive, from which tokens are parsed as soon as they are complete.

use bytes::Bytes;
use futures::{Stream, StreamExt as _};

use super::{
    DecodeError,
    cursor::{Cursor, Parse, ParseError},
};
use crate::error_text::one_line;

/// Maximum length of a label set or string. Error messages repeat queries, which may name hundreds of pods.
pub(super) const LONGEST: usize = 1 << 20;
/// Bytes to buffer at once, so that what is parsed is checked now and then.
const CHUNK_BYTES: usize = 16 << 10;

pub(super) struct Input<P> {
    pieces: P,
    /// The rest of the piece that arrived last.
    piece: Bytes,
    buffer: Vec<u8>,
    /// How much of the buffer is parsed.
    parsed: usize,
    /// The number of bytes that arrived.
    pub(super) bytes: u64,
    /// Whether bytes were buffered since this was reset.
    pub(super) has_grown: bool,
    /// Total number of parsed bytes, including repeated attempts.
    #[cfg(test)]
    pub(super) attempted_bytes: usize,
}

impl<E: From<DecodeError>, P: Stream<Item = Result<Bytes, E>> + Unpin> Input<P> {
    pub(super) fn new(pieces: P) -> Self {
        Self {
            pieces,
            piece: Bytes::new(),
            buffer: Vec::new(),
            parsed: 0,
            bytes: 0,
            has_grown: false,
            #[cfg(test)]
            attempted_bytes: 0,
        }
    }

    /// Parses a token, and waits until it is complete.
    pub(super) async fn token<T>(
        &mut self,
        mut parse: impl FnMut(&mut Cursor<'_>) -> Parse<T>,
    ) -> Result<T, E> {
        loop {
            if let Some(token) = self.parse(&mut parse)? {
                return Ok(token);
            }
            self.more().await?;
        }
    }

    /// Parses a token; `None` if it is incomplete. Then only what the parser has marked as consumed is.
    pub(super) fn parse<T>(
        &mut self,
        parse: impl FnOnce(&mut Cursor<'_>) -> Parse<T>,
    ) -> Result<Option<T>, DecodeError> {
        let rest = &self.buffer[self.parsed..];
        #[cfg(test)]
        {
            self.attempted_bytes += rest.len();
        }
        let mut cursor = Cursor::new(rest);
        match parse(&mut cursor) {
            Ok(token) => {
                self.parsed += cursor.at;
                Ok(Some(token))
            }
            Err(ParseError::NeedMoreBytes) => {
                self.parsed += cursor.consumed;
                Ok(None)
            }
            Err(ParseError::Expected(expected)) => {
                self.parsed += cursor.at;
                Err(self.unexpected(expected))
            }
        }
    }

    /// The error for something else than expected at this place.
    pub(super) fn unexpected(&self, expected: &'static str) -> DecodeError {
        let rest = &self.buffer[self.parsed..];
        let start = String::from_utf8_lossy(&rest[..rest.len().min(40)]);
        let found = format!("{:?}", one_line(&start));
        DecodeError::Malformed { at: self.position(), expected, found }
    }

    /// The number of parsed bytes.
    pub(super) fn position(&self) -> u64 {
        self.bytes - (self.piece.len() + self.buffer.len() - self.parsed) as u64
    }

    /// Waits for more bytes.
    pub(super) async fn more(&mut self) -> Result<(), E> {
        if self.has_more().await? {
            return Ok(());
        }
        Err(DecodeError::Truncated { bytes: self.bytes }.into())
    }

    /// Waits for as many bytes as are incomplete already, so that a long token is parsed only a few times, however small the
    /// pieces are. Returns whether there were any.
    pub(super) async fn has_more(&mut self) -> Result<bool, E> {
        self.buffer.drain(..self.parsed);
        self.parsed = 0;
        let incomplete = self.buffer.len();
        if incomplete > LONGEST {
            return Err(DecodeError::TooLong { at: self.position(), longest: LONGEST }.into());
        }
        while self.buffer.len() < 2 * incomplete.max(1) {
            if self.piece.is_empty() {
                let Some(piece) = self.pieces.next().await.transpose()? else { break };
                self.bytes += piece.len() as u64;
                self.piece = piece;
            }
            let part = self.piece.split_to(self.piece.len().min(CHUNK_BYTES));
            self.buffer.extend_from_slice(&part);
        }
        self.has_grown = true;
        Ok(self.buffer.len() > incomplete)
    }
}
