//! A list of the API, read one item at a time while it arrives: memory holds one item, however long the list is.

use std::{future::Future, pin::pin, time::Duration};

use futures::AsyncBufReadExt as _;
use kube::Client;
use plimsoll_storage::prometheus::query_error::QueryError;
use tokio::time::Instant;

/// An item is a pod's usage; one of this size is no longer one, and would be all that we hold.
const MAX_ITEM_BYTES: usize = 4 << 20;

/// Why a list of a metrics API was not read to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// Nobody serves the API, or the one who should is away.
    #[error(
        "nobody serves {path} (HTTP {code}: {message}): is the metrics server installed and running?"
    )]
    NotServed {
        /// What was asked for.
        path: String,
        /// 404 or 503.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The server does not want to answer.
    #[error(
        "{path} was refused (HTTP {code}: {message}); 403 means that a right to read it is missing"
    )]
    Rejected {
        /// What was asked for.
        path: String,
        /// The status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The server cannot be reached.
    #[error("{path} cannot be asked for: {reason}")]
    Unreachable {
        /// What was asked for.
        path: String,
        /// What happened.
        reason: String,
    },
    /// The answer broke off; what came before has been handed out.
    #[error("the answer of {path} broke off: {reason}")]
    Truncated {
        /// What was asked for.
        path: String,
        /// What happened.
        reason: String,
    },
    /// The answer is no list in JSON; what came before has been handed out.
    #[error("the answer of {path} is not a list of usage: {reason}")]
    Malformed {
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The answer did not arrive in time; what came before has been handed out.
    #[error("the answer of {path} did not arrive within {limit:?}")]
    Timeout {
        /// What was asked for.
        path: String,
        /// How long was waited.
        limit: Duration,
    },
    /// A Prometheus does not tell.
    #[error("{what} cannot be had from the Prometheus: {failure}")]
    Prometheus {
        /// What was asked for.
        what: String,
        /// What happened.
        failure: QueryError,
    },
}

/// How long a whole fetch may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        Self { at: Instant::now() + limit, limit }
    }

    /// What this comes to, if it does in time.
    pub(crate) async fn run<T>(
        self,
        path: &str,
        work: impl Future<Output = Result<T, UsageError>>,
    ) -> Result<T, UsageError> {
        let late = |_| Err(UsageError::Timeout { path: path.to_owned(), limit: self.limit });
        tokio::time::timeout_at(self.at, work).await.unwrap_or_else(late)
    }
}

/// Reads the list at `path` and hands the text of each item to `item`.
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
    let broken = |why: ListError| UsageError::Malformed { path: name(), reason: why.to_string() };
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|why| UsageError::Unreachable { path: name(), reason: why.to_string() })?;
    let answer = client.request_stream(request).await.map_err(|why| rejected(path, &why))?;
    let mut answer = pin!(answer);
    let mut splitter = ItemSplitter::default();
    loop {
        let cut = |reason: String| UsageError::Truncated { path: name(), reason };
        let bytes = answer.fill_buf().await.map_err(|why| cut(why.to_string()))?;
        if bytes.is_empty() {
            return match splitter.finish() {
                Err(ListError::Unfinished) => Err(cut("it ends in the middle".to_owned())),
                finished => finished.map_err(broken),
            };
        }
        let count = bytes.len();
        splitter.feed(bytes, &mut *item).map_err(broken)?;
        answer.as_mut().consume_unpin(count);
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

/// An error of kube in one line, down to its cause: the outer ones only say that a request failed.
pub(crate) fn error_message(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return format!("HTTP {}: {}", status.code, one_line(&status.message));
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    one_line(&text)
}

/// What an error may put into a log: one line, and not the whole of somebody's HTML page.
fn one_line(text: &str) -> String {
    let mut line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(300) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// A text as one piece of a path or of a query.
pub(crate) fn encode_query(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]),
        }
    }
    encoded
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('0').to_ascii_uppercase()
}

/// What is wrong with the text of a list.
#[derive(Debug, thiserror::Error)]
enum ListError {
    #[error("it is not an object in JSON")]
    NoObject,
    #[error("it has no items")]
    NoItems,
    #[error("it ends in the middle")]
    Unfinished,
    #[error("an item is larger than {} MiB", MAX_ITEM_BYTES >> 20)]
    TooLarge,
    #[error("{0}")]
    Item(serde_json::Error),
}

/// Finds the items in the text of a list. It knows just enough of JSON for that, strings and brackets; what is between
/// the brackets of an item is the reader's to judge.
#[derive(Debug, Default)]
struct ItemSplitter {
    /// Brackets that are open.
    depth: usize,
    string_state: StringState,
    /// The last string that began among the fields of the list itself: before a value, its name.
    name: Vec<u8>,
    /// Whether the open bracket of depth 2 is that of the items.
    is_in_items: bool,
    has_items: bool,
    has_ended: bool,
    /// The beginning of an item whose end has not arrived.
    item: Vec<u8>,
}

/// Where in a string one is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringState {
    #[default]
    Outside,
    Inside,
    /// After a backslash: the next quote is none.
    Escaped,
}

impl ItemSplitter {
    fn feed(
        &mut self,
        bytes: &[u8],
        item: &mut impl FnMut(&[u8]) -> Result<(), serde_json::Error>,
    ) -> Result<(), ListError> {
        // Where the item that is being read begins in these bytes.
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
            // Longer than the one name that is looked for is as good as any other.
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

    /// The items of a text that arrives in pieces of this size, and how it ends.
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
    fn items_are_found_however_the_text_is_cut_into_pieces() {
        let text = r#" {"kind":"items","metadata":{"items":[{"no":1}]},"x":["items"],
            "items" : [ {"a":"}]\"{","b":[{}]} , {"c":{"items":[{"d":1}]}}, {} ], "more":[{"e":1}]}
        "#;
        for size in 1..text.len() {
            let (items, end) = split(text, size);
            assert_eq!(
                items,
                [r#"{"a":"}]\"{","b":[{}]}"#, r#"{"c":{"items":[{"d":1}]}}"#, "{}"],
                "in pieces of {size}"
            );
            assert_eq!(end, Ok(()), "in pieces of {size}");
        }
    }

    #[test]
    fn a_selector_survives_a_query() {
        assert_eq!(encode_query("app in (a,b),pod=x-1"), "app%20in%20%28a%2Cb%29%2Cpod%3Dx-1");
    }

    #[test]
    fn a_text_that_is_no_list_is_told_from_one_that_broke_off() {
        for (text, count, flaw) in [
            (r#"{"items":[]}"#, 0, None),
            (r#"{"items":null}"#, 0, None),
            (r#"{"items":[{"a":1},{"b":"#, 1, Some("it ends in the middle")),
            (r#"{"kind": "PodMetr"#, 0, Some("it ends in the middle")),
            ("", 0, Some("it ends in the middle")),
            (r#"{"kind":"Status"}"#, 0, Some("it has no items")),
            ("<html>", 0, Some("it is not an object in JSON")),
            ("[{}]", 0, Some("it is not an object in JSON")),
            (r#"{"items":[{"a":1}]}]"#, 1, Some("it is not an object in JSON")),
            (r#"{"items":[{"a":1},{a}]}"#, 1, Some("key must be a string at line 1 column 2")),
        ] {
            let (items, end) = split(text, 3);
            assert_eq!((items.len(), end.err().as_deref()), (count, flaw), "{text}");
        }
    }
}
