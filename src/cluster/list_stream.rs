//! Streams a list of the API one item at a time: memory holds a single item, however long the list is.

use std::{future::Future, pin::pin, time::Duration};

use futures::AsyncBufReadExt as _;
use kube::Client;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use plimsoll_storage::{
    error_text::{error_chain, one_line},
    prometheus::query_error::QueryError,
};
use tokio::time::Instant;

/// An item is the usage of one pod. A larger item is not plausible and would take too much memory.
const MAX_ITEM_BYTES: usize = 4 << 20;

/// Why usage was not read completely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The API is not served, or its server is down.
    #[error(
        "{path} is not served (HTTP {code}: {message}): is the metrics server installed and running?"
    )]
    NotServed { path: String, code: u16, message: String },
    #[error(
        "request for {path} was rejected (HTTP {code}: {message}); 403 means that RBAC does not allow reading it"
    )]
    Rejected { path: String, code: u16, message: String },
    #[error("failed to request {path}: {reason}")]
    Unreachable { path: String, reason: String },
    /// The response was truncated; earlier items were delivered.
    #[error("response from {path} was truncated: {reason}")]
    Truncated { path: String, reason: String },
    /// The response is not a list in JSON; earlier items were delivered.
    #[error("response from {path} is not a valid metrics list: {reason}")]
    Malformed { path: String, reason: String },
    /// The response was not complete in time; earlier items were delivered.
    #[error("response from {path} did not arrive within {limit:?}")]
    Timeout { path: String, limit: Duration },
    #[error("Prometheus query for {what} failed: {failure}")]
    Prometheus { what: String, failure: QueryError },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    /// Runs `work`, with an error if it does not finish in time.
    pub(crate) async fn run<T>(
        self,
        path: &str,
        work: impl Future<Output = Result<T, UsageError>>,
    ) -> Result<T, UsageError> {
        let late = |_| Err(UsageError::Timeout { path: path.to_owned(), limit: self.limit });
        tokio::time::timeout_at(self.at, work).await.unwrap_or_else(late)
    }
}

/// Reads the list at `path` and passes the JSON of each item to `item`.
pub(crate) async fn read_items(
    client: &Client,
    path: &str,
    deadline: Deadline,
    mut item: impl FnMut(&[u8]) -> Result<(), serde_json::Error> + Send,
) -> Result<(), UsageError> {
    deadline.run(path, read(client, path, &mut item)).await
}

async fn read(
    client: &Client,
    path: &str,
    item: &mut (impl FnMut(&[u8]) -> Result<(), serde_json::Error> + Send),
) -> Result<(), UsageError> {
    let name = || path.to_owned();
    let malformed =
        |why: ListError| UsageError::Malformed { path: name(), reason: why.to_string() };
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|why| UsageError::Unreachable { path: name(), reason: why.to_string() })?;
    let response = client.request_stream(request).await.map_err(|why| rejected(path, &why))?;
    let mut response = pin!(response);
    let mut splitter = ItemSplitter::default();
    loop {
        let truncated = |reason: String| UsageError::Truncated { path: name(), reason };
        let bytes = response.fill_buf().await.map_err(|why| truncated(why.to_string()))?;
        if bytes.is_empty() {
            return match splitter.finish() {
                Err(ListError::Unfinished) => {
                    Err(truncated("unexpected end of response".to_owned()))
                }
                finished => finished.map_err(malformed),
            };
        }
        let count = bytes.len();
        splitter.feed(bytes, &mut *item).map_err(malformed)?;
        response.as_mut().consume_unpin(count);
    }
}

fn rejected(path: &str, error: &kube::Error) -> UsageError {
    let path = path.to_owned();
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 503) => {
            UsageError::NotServed { path, code: status.code, message: one_line(&status.message) }
        }
        kube::Error::Api(status) => {
            UsageError::Rejected { path, code: status.code, message: one_line(&status.message) }
        }
        other => UsageError::Unreachable { path, reason: error_message(other) },
    }
}

/// A kube error in one line, down to its root cause: the outer errors only say that a request failed.
pub(crate) fn error_message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("HTTP {}: {}", status.code, one_line(&status.message));
    }
    one_line(&error_chain(error))
}

/// Percent-encodes a text as one segment of a path or of a query.
pub(crate) fn encode_query(text: &str) -> String {
    const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, &RESERVED).to_string()
}

#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error("not a JSON object")]
    NoObject,
    #[error("no items field")]
    NoItems,
    #[error("unexpected end of response")]
    Unfinished,
    #[error("item is larger than {} MiB", MAX_ITEM_BYTES >> 20)]
    TooLarge,
    #[error("{0}")]
    Item(serde_json::Error),
}

/// Splits the text of a list into items. It parses only the JSON that this needs, strings and brackets; the content of an
/// item is left to the caller.
#[derive(Debug, Default)]
struct ItemSplitter {
    /// The number of open brackets.
    depth: usize,
    string_state: StringState,
    /// The last string at the top level: before a value, the name of the field.
    name: Vec<u8>,
    /// Whether the open bracket of depth 2 is that of `items`.
    is_in_items: bool,
    has_items: bool,
    has_ended: bool,
    /// The beginning of an item that has not arrived completely.
    item: Vec<u8>,
}

/// The position relative to a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringState {
    #[default]
    Outside,
    Inside,
    /// After a backslash: the next quote does not end the string.
    Escaped,
}

impl ItemSplitter {
    fn feed(
        &mut self,
        bytes: &[u8],
        item: &mut impl FnMut(&[u8]) -> Result<(), serde_json::Error>,
    ) -> Result<(), ListError> {
        // The start of the current item in these bytes.
        let mut start = (!self.item.is_empty()).then_some(0);
        for (index, &byte) in bytes.iter().enumerate() {
            if self.string_state != StringState::Outside {
                self.continue_string(byte);
                continue;
            }
            match byte {
                b'"' if self.depth > 0 => {
                    self.string_state = StringState::Inside;
                    if self.depth == 1 {
                        self.name.clear();
                    }
                }
                b'{' | b'[' => {
                    if self.depth == 0 && (byte == b'[' || self.has_ended) {
                        return Err(ListError::NoObject);
                    }
                    if self.depth == 1 && byte == b'[' && self.name == b"items" {
                        (self.is_in_items, self.has_items) = (true, true);
                    } else if self.depth == 2 && self.is_in_items {
                        start = Some(index);
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(ListError::NoObject)?;
                    match self.depth {
                        0 => self.has_ended = true,
                        1 => self.is_in_items = false,
                        2 if self.is_in_items => {
                            let begin = start.take().unwrap_or(index);
                            let rest = &bytes[begin..=index];
                            if self.item.is_empty() {
                                item(rest).map_err(ListError::Item)?;
                            } else {
                                self.item.extend_from_slice(rest);
                                item(&self.item).map_err(ListError::Item)?;
                                self.item.clear();
                            }
                        }
                        _ => {}
                    }
                }
                // An empty list may be written as null.
                b'n' if self.depth == 1 && self.name == b"items" => self.has_items = true,
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ if self.depth == 0 => return Err(ListError::NoObject),
                _ => {}
            }
        }
        if let Some(start) = start {
            self.item.extend_from_slice(&bytes[start..]);
            if self.item.len() > MAX_ITEM_BYTES {
                return Err(ListError::TooLarge);
            }
        }
        Ok(())
    }

    fn continue_string(&mut self, byte: u8) {
        match byte {
            _ if self.string_state == StringState::Escaped => {
                self.string_state = StringState::Inside;
            }
            b'\\' => self.string_state = StringState::Escaped,
            b'"' => self.string_state = StringState::Outside,
            // A name that is longer than `items` does not match anyway.
            _ if self.depth == 1 && self.name.len() < 8 => self.name.push(byte),
            _ => {}
        }
    }

    fn finish(&self) -> Result<(), ListError> {
        match (self.has_ended, self.has_items) {
            (false, _) => Err(ListError::Unfinished),
            (true, false) => Err(ListError::NoItems),
            (true, true) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text that arrives in chunks of this size. Returns the items and the result.
    fn split(text: &str, size: usize) -> (Vec<String>, Result<(), String>) {
        let mut items = Vec::new();
        let mut splitter = ItemSplitter::default();
        let mut keep = |item: &[u8]| {
            items.push(serde_json::from_slice::<serde_json::Value>(item)?.to_string());
            Ok(())
        };
        let fed =
            text.as_bytes().chunks(size).try_for_each(|piece| splitter.feed(piece, &mut keep));
        let end = fed.and_then(|()| splitter.finish()).map_err(|why| why.to_string());
        (items, end)
    }

    #[test]
    fn items_are_found_in_chunks_of_any_size() {
        let text = r#" {"kind":"items","metadata":{"items":[{"no":1}]},"x":["items"],
            "items" : [ {"a":"}]\"{","b":[{}]} , {"c":{"items":[{"d":1}]}}, {} ], "more":[{"e":1}]}
        "#;
        for size in 1..text.len() {
            let (items, end) = split(text, size);
            assert_eq!(
                items,
                [r#"{"a":"}]\"{","b":[{}]}"#, r#"{"c":{"items":[{"d":1}]}}"#, "{}"],
                "in chunks of {size}"
            );
            assert_eq!(end, Ok(()), "in chunks of {size}");
        }
    }

    #[test]
    fn a_response_without_a_list_is_distinguished_from_a_truncated_one() {
        for (text, count, flaw) in [
            (r#"{"items":[]}"#, 0, None),
            (r#"{"items":null}"#, 0, None),
            (r#"{"items":[{"a":1},{"b":"#, 1, Some("unexpected end of response")),
            (r#"{"kind": "PodMetr"#, 0, Some("unexpected end of response")),
            ("", 0, Some("unexpected end of response")),
            (r#"{"kind":"Status"}"#, 0, Some("no items field")),
            ("<html>", 0, Some("not a JSON object")),
            ("[{}]", 0, Some("not a JSON object")),
            (r#"{"items":[{"a":1}]}]"#, 1, Some("not a JSON object")),
            (r#"{"items":[{"a":1},{a}]}"#, 1, Some("key must be a string at line 1 column 2")),
        ] {
            let (items, end) = split(text, 3);
            assert_eq!((items.len(), end.err().as_deref()), (count, flaw), "{text}");
        }
    }
}
