//! Finds the selectors of a query. This is not a PromQL parser: it only tracks where an operand is expected, and skips
//! everything that cannot be a selector. A parser would reject the extensions of other servers, and printing its result
//! would not preserve the user's query.

use std::{mem, ops::Range};

use crate::error_text::one_line;

/// Why a user's query is invalid: the cause, its position in characters, and the query on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid query: {0}")]
pub struct InvalidQuery(String);

impl InvalidQuery {
    /// Creates the error for a position in bytes.
    pub(super) fn at_byte(query: &str, why: &str, at: usize) -> Self {
        let at = query.get(..at).map_or(at, |before| before.chars().count()) + 1;
        Self(format!("{why}, at character {at}: {}", one_line(query)))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScannedQuery {
    insert_positions: Vec<InsertPosition>,
    pub(super) is_selector: bool,
    /// Calls and other expressions in parentheses, in bytes, inner ones first.
    pub(super) groups: Vec<Range<usize>>,
    /// The number of tokens: names, numbers, operators, selectors, windows.
    pub(super) token_count: usize,
    /// How deeply its parentheses are nested.
    pub(super) depth: usize,
    /// Whether it has modifiers or durations that [`super::check`] cannot read.
    pub(super) is_extended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InsertPosition {
    at: usize,
    /// The text between the query before this position and the matchers.
    before: &'static str,
    after: &'static str,
}

impl ScannedQuery {
    /// The insert position of each selector in bytes, in the order of the text.
    pub(super) fn positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.insert_positions.iter().map(|position| position.at)
    }

    pub(super) fn with(&self, query: &str, matchers: &str) -> String {
        let mut text =
            String::with_capacity(query.len() + self.insert_positions.len() * matchers.len());
        let mut from = 0;
        for position in &self.insert_positions {
            text.push_str(&query[from..position.at]);
            from = position.at;
            text.extend([position.before, matchers, position.after]);
        }
        text.push_str(&query[from..]);
        text
    }
}

/// Finds the selectors. Rejects text that servers tokenize differently: what is a comment or a string to one server may
/// be a selector to another, which would not get the matchers.
pub(super) fn scan(query: &str) -> Result<ScannedQuery, InvalidQuery> {
    // It ends a comment for Prometheus, but not for VictoriaMetrics.
    let is_lone = |at: &usize| query.as_bytes().get(at + 1) != Some(&b'\n');
    if let Some((at, _)) = query.match_indices('\r').find(|(at, _)| is_lone(at)) {
        let why = "a carriage return is not followed by a line feed";
        return Err(InvalidQuery::at_byte(query, why, at));
    }
    let mut scan = Scanner {
        bytes: query.as_bytes(),
        at: 0,
        expects_operand: true,
        follows_offset: false,
        call_start: None,
        found: ScannedQuery::default(),
    };
    scan.run().map_err(|why| InvalidQuery::at_byte(query, why, scan.at))?;
    Ok(scan.found)
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether an operand is expected here, as opposed to an operator.
    expects_operand: bool,
    /// Whether a duration is expected here.
    follows_offset: bool,
    /// The start of the call whose parenthesis comes next.
    call_start: Option<usize>,
    found: ScannedQuery,
}

impl<'a> Scanner<'a> {
    fn run(&mut self) -> Result<(), &'static str> {
        let mut open = Vec::new();
        self.blanks();
        if self.at == self.bytes.len() {
            return Err("it is empty");
        }
        while let Some(byte) = self.byte() {
            self.found.token_count += 1;
            let follows_offset = mem::take(&mut self.follows_offset);
            self.found.is_extended |=
                follows_offset && !(byte.is_ascii_digit() || b"+-.".contains(&byte));
            match byte {
                b'"' | b'\'' | b'`' => {
                    self.string()?;
                    self.expects_operand = false;
                }
                b'{' if self.expects_operand => self.braces()?,
                b'[' => self.window()?,
                b'(' => {
                    open.push(self.call_start.take().unwrap_or(self.at));
                    self.found.depth = self.found.depth.max(open.len());
                    self.at += 1;
                    self.expects_operand = true;
                }
                b')' => {
                    let start = open.pop().ok_or("unmatched closing parenthesis")?;
                    self.at += 1;
                    self.found.groups.push(start..self.at);
                    self.expects_operand = false;
                }
                b'0'..=b'9' | b'.' => {
                    let word = self.take_while(|byte| {
                        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_')
                    });
                    self.found.is_extended |=
                        word.contains('_') || (follows_offset && !is_readable_duration(word));
                    self.expects_operand = false;
                }
                b'+' | b'-' | b'*' | b'/' | b'%' | b'^' | b'=' | b'!' | b'<' | b'>' | b'~'
                | b',' | b'@' => {
                    self.at += 1;
                    self.expects_operand = true;
                    self.follows_offset = follows_offset;
                }
                b'_' | b':' | b'a'..=b'z' | b'A'..=b'Z' => self.name()?,
                _ => return Err("unexpected character"),
            }
            self.blanks();
        }
        if !open.is_empty() {
            return Err("unclosed parenthesis");
        }
        self.found.is_selector =
            self.found.token_count == 1 && self.found.insert_positions.len() == 1;
        Ok(())
    }

    fn name(&mut self) -> Result<(), &'static str> {
        let start = self.at;
        let name = self.identifier().to_ascii_lowercase();
        let end = self.at;
        self.blanks();
        let next = self.byte();
        if !self.expects_operand {
            match name.as_str() {
                "by" | "without" if next == Some(b'(') => self.list()?,
                "keep_metric_names" => {}
                "smoothed" | "anchored" => self.found.is_extended = true,
                "offset" => (self.expects_operand, self.follows_offset) = (true, true),
                "and" | "or" | "unless" | "atan2" | "if" | "ifnot" | "default" | "limit" => {
                    self.expects_operand = true;
                }
                // What follows may be a selector. Reject it rather than miss the matchers.
                _ => return Err("unknown operator"),
            }
            return Ok(());
        }
        match name.as_str() {
            "inf" | "nan" => self.expects_operand = false,
            "on" | "ignoring" | "group_left" | "group_right" | "fill" | "fill_left"
            | "fill_right"
                if next == Some(b'(') =>
            {
                self.list()?;
            }
            // A keyword that an operand follows.
            "bool" | "group_left" | "group_right" if next.is_some_and(begins_operand) => {}
            _ if next == Some(b'(') => self.call_start = Some(start),
            _ if next == Some(b'{') => self.braces()?,
            // `sum by (pod) (…)`
            _ if self.is_fold() => {
                self.call_start = Some(start);
                self.identifier();
                self.blanks();
                self.list()?;
            }
            _ => {
                let position = InsertPosition { at: end, before: "{", after: "}" };
                self.found.insert_positions.push(position);
                self.expects_operand = false;
            }
        }
        Ok(())
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn identifier(&mut self) -> &'a str {
        self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|&byte| belongs(byte)) {
            self.at += 1;
        }
        std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default()
    }

    /// Whether `by (` or `without (` comes next.
    fn is_fold(&mut self) -> bool {
        let start = self.at;
        let word = self.identifier().to_ascii_lowercase();
        self.blanks();
        let is_fold = matches!(word.as_str(), "by" | "without") && self.byte() == Some(b'(');
        self.at = start;
        is_fold
    }

    /// Skips the labels in parentheses.
    fn list(&mut self) -> Result<(), &'static str> {
        while let Some(byte) = self.byte() {
            match byte {
                b'#' => self.blanks(),
                b'"' | b'\'' | b'`' => self.string()?,
                b')' => {
                    self.at += 1;
                    return Ok(());
                }
                _ => self.at += 1,
            }
        }
        Err("unclosed parenthesis")
    }

    /// Skips the braces of a selector, and records its position.
    fn braces(&mut self) -> Result<(), &'static str> {
        self.at += 1;
        let start = self.at;
        let mut filled = false;
        loop {
            self.blanks();
            match self.byte().ok_or("unclosed brace")? {
                b'}' => break,
                b'"' | b'\'' | b'`' => self.string()?,
                b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                    // Only one of the alternatives would get the matchers. Also reject a leading `or`: it would
                    // separate the inserted matchers from the rest.
                    if self.identifier().eq_ignore_ascii_case("or") {
                        return Err("matchers cannot be added to alternatives within braces");
                    }
                }
                _ => self.at += 1,
            }
            filled = true;
        }
        self.at += 1;
        let after = if filled { "," } else { "" };
        self.found.insert_positions.push(InsertPosition { at: start, before: "", after });
        self.expects_operand = false;
        Ok(())
    }

    /// Skips a window or a subquery range.
    fn window(&mut self) -> Result<(), &'static str> {
        let close = self.bytes[self.at..].iter().position(|&byte| byte == b']');
        let length = close.ok_or("unclosed window")?;
        let inside = &self.bytes[self.at + 1..self.at + length];
        // A server that parses a string or a comment here would find a different end.
        if inside.iter().any(|byte| b"\"'`#{}[\\".contains(byte)) {
            return Err("a window contains more than a duration");
        }
        let inside = std::str::from_utf8(inside).unwrap_or_default();
        let mut words = inside.split(':').map(str::trim).filter(|word| !word.is_empty());
        self.found.is_extended |= !words.all(is_readable_duration);
        self.at += length + 1;
        self.expects_operand = false;
        Ok(())
    }

    fn string(&mut self) -> Result<(), &'static str> {
        let quote = self.bytes[self.at];
        let mut at = self.at + 1;
        loop {
            match self.bytes.get(at) {
                None => return Err("unclosed string"),
                // VictoriaMetrics treats this as an escaped quote and continues.
                Some(b'`') if quote == b'`' && self.bytes[at - 1] == b'\\' => {
                    return Err("a string in backquotes ends with a backslash");
                }
                Some(&byte) if byte == quote => break,
                Some(b'\\') if quote != b'`' => at += 2,
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(())
    }

    /// Skips whitespace and comments.
    fn blanks(&mut self) {
        while let Some(byte) = self.byte() {
            if byte == b'#' {
                self.take_while(|byte| byte != b'\n');
            } else if byte.is_ascii_whitespace() {
                self.at += 1;
            } else {
                break;
            }
        }
    }
}

/// Whether promql-parser can read a duration: it panics on numbers that are too large, and rejects `0s` and arithmetic,
/// which servers accept.
fn is_readable_duration(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
        && word.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
        && !word.contains(['e', 'E'])
        && word.parse::<f64>().map_or(true, |seconds| seconds.is_finite() && seconds < 1e12)
}

fn begins_operand(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'(' | b'{' | b'.' | b'-' | b'+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_added_to_each_selector_and_nowhere_else() {
        for (query, with) in [
            (" up # all\n", " up{M} # all\n"),
            ("up { job = \"x\" , }", "up {M, job = \"x\" , }"),
            (
                "sum(rate(a[5m])) by (pod) / on (pod) group_left b",
                "sum(rate(a{M}[5m])) by (pod) / on (pod) group_left b{M}",
            ),
            ("a > bool b", "a{M} > bool b{M}"),
            ("a @ start() + b @ 1.5e9", "a{M} @ start() + b{M} @ 1.5e9"),
            ("1 + Inf - NaN * 0x1F + 1e-3 + 5m", "1 + Inf - NaN * 0x1F + 1e-3 + 5m"),
            ("topk(3, job:rate:5m)", "topk(3, job:rate:5m{M})"),
            ("quantile_over_time(0.9, a[1h]) ^ 2", "quantile_over_time(0.9, a{M}[1h]) ^ 2"),
            ("vector(1)", "vector(1)"),
            ("-a", "-a{M}"),
            ("a + on (x) fill(0) b", "a{M} + on (x) fill(0) b{M}"),
            ("by", "by{M}"),
            ("sum by (a # )\n, b) (c)", "sum by (a # )\n, b) (c{M})"),
            ("a # note\r\n + b", "a{M} # note\r\n + b{M}"),
            ("{\"my.metric\", a=\"b\"}", "{M,\"my.metric\", a=\"b\"}"),
        ] {
            let scanned = scan(query).expect(query);
            assert_eq!(scanned.with(query, "M"), with);
        }
    }

    #[test]
    fn a_query_of_a_single_selector_is_recognized() {
        for bare in ["up", "up{job=\"x\"}", "{job=\"x\"}", " up # c\n"] {
            assert!(scan(bare).expect(bare).is_selector, "{bare}");
        }
        for other in ["up[5m]", "-up", "up + up", "(up)", "rate(up[5m])", "1", "up offset 5m"] {
            assert!(!scan(other).expect(other).is_selector, "{other}");
        }
    }

    #[test]
    fn an_invalid_query_is_rejected_in_one_line() {
        for broken in [
            "",
            " # nothing",
            "up{",
            "up{a=\"b}",
            "sum(up",
            "up)",
            "up[5m",
            "\"a",
            "up;",
            "a{b=\"c\" or d=\"e\"}",
            "sum by (a",
            "a near b",
            "vector(0) # note\r + a",
            "a{or b=\"c\"}",
            "a{b=\"c\", or d=\"e\"}",
            "a{OR b=\"c\"}",
            "label_join(a, `\\`, b, `\\`)",
            "a[5m # ]",
            "a[\"] + b[\"]",
        ] {
            let error = scan(broken).expect_err(broken).to_string();
            assert!(error.starts_with("invalid query: ") && !error.contains('\n'));
        }
    }
}
