//! Splits a query into tokens.

use super::SyntaxError;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name of a metric or a function, or a keyword.
    Name(&'a str),
    /// A number or a duration: it starts with a digit or a point.
    Number(&'a str),
    /// A quoted string.
    Text,
    /// Any other symbol.
    Symbol(&'a str),
    /// The end of the query.
    End,
}

/// A position in a query. A copy can look ahead.
#[derive(Clone, Copy)]
pub(super) struct Tokenizer<'a> {
    query: &'a str,
    at: usize,
}

/// Longer symbols come first.
const SYMBOLS: [&str; 23] = [
    "=~", "!~", "==", "!=", "<=", ">=", "(", ")", "{", "}", "[", "]", ",", "@", "=", "<", ">", "+",
    "-", "*", "/", "%", "^",
];

impl<'a> Tokenizer<'a> {
    pub(super) fn new(query: &'a str) -> Self {
        Self { query, at: 0 }
    }

    /// The position of the next token in bytes.
    pub(super) fn position(&mut self) -> usize {
        self.blanks();
        self.at
    }

    /// The end of the last consumed token in bytes.
    pub(super) fn end_of_last(&self) -> usize {
        self.at
    }

    /// Returns the next token without consuming it.
    pub(super) fn peek(mut self) -> Result<Token<'a>, SyntaxError> {
        self.next_token()
    }

    /// Consumes the next token.
    pub(super) fn next_token(&mut self) -> Result<Token<'a>, SyntaxError> {
        self.blanks();
        let rest = &self.query[self.at..];
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        let is_fraction = first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit());
        let token = match first {
            '"' | '\'' | '`' => return self.text(first),
            _ if first.is_ascii_digit() || is_fraction => Token::Number(number(rest)),
            'a'..='z' | 'A'..='Z' | '_' | ':' => {
                let belongs = |sign: char| sign.is_ascii_alphanumeric() || "_:".contains(sign);
                let end = rest.find(|sign| !belongs(sign)).unwrap_or(rest.len());
                Token::Name(&rest[..end])
            }
            _ => match SYMBOLS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => Token::Symbol(&rest[..sign.len()]),
                None => return Err(SyntaxError::new("unexpected character", self.at)),
            },
        };
        if let Token::Name(text) | Token::Number(text) | Token::Symbol(text) = token {
            self.at += text.len();
        }
        Ok(token)
    }

    /// Consumes this symbol if it is the next token.
    pub(super) fn take_symbol(&mut self, symbol: &str) -> Result<bool, SyntaxError> {
        let matches = self.peek()? == Token::Symbol(symbol);
        if matches {
            self.next_token()?;
        }
        Ok(matches)
    }

    /// Consumes the content of a window up to its closing bracket.
    pub(super) fn window(&mut self) -> Result<&'a str, SyntaxError> {
        let rest = &self.query[self.at..];
        let close = rest.find(']').ok_or_else(|| SyntaxError::new("unclosed window", self.at))?;
        self.at += close + 1;
        Ok(&rest[..close])
    }

    fn text(&mut self, quote: char) -> Result<Token<'a>, SyntaxError> {
        let start = self.at;
        let mut chars = self.query[start + 1..].char_indices();
        while let Some((at, char)) = chars.next() {
            if char == quote {
                self.at = start + 1 + at + 1;
                return Ok(Token::Text);
            }
            if char == '\\' && quote != '`' {
                chars.next();
            }
        }
        Err(SyntaxError::new("unclosed string", start))
    }

    /// Skips whitespace and comments.
    fn blanks(&mut self) {
        loop {
            let rest = &self.query[self.at..];
            let length = if rest.starts_with('#') {
                rest.find('\n').unwrap_or(rest.len())
            } else {
                rest.len() - rest.trim_ascii_start().len()
            };
            if length == 0 {
                return;
            }
            self.at += length;
        }
    }
}

/// The number or duration at the start of a text. Only a decimal exponent may contain a sign.
fn number(text: &str) -> &str {
    let is_hexadecimal = text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    let mut previous = ' ';
    let end = text.find(|sign: char| {
        let is_part = sign.is_ascii_alphanumeric()
            || matches!(sign, '.' | '_')
            || (matches!(sign, '+' | '-') && matches!(previous, 'e' | 'E') && !is_hexadecimal);
        previous = sign;
        !is_part
    });
    &text[..end.unwrap_or(text.len())]
}

/// Whether a word is a PromQL number.
pub(super) fn is_number(word: &str) -> bool {
    let digits = word.replace('_', "");
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
        None => digits.parse::<f64>().is_ok(),
    }
}

/// Whether a word is a duration: `1h30m`, `500ms`.
pub(super) fn is_duration(word: &str) -> bool {
    let mut rest = word;
    while !rest.is_empty() {
        let digits = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
        let unit = rest[digits..].find(|sign: char| sign.is_ascii_digit());
        let (number, after) = rest.split_at(digits);
        let (unit, after) = after.split_at(unit.unwrap_or(after.len()));
        if number.is_empty() || !["ms", "s", "m", "h", "d", "w", "y"].contains(&unit) {
            return false;
        }
        rest = after;
    }
    !word.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_distinguished_from_other_words() {
        for word in ["1", "1.5", ".5", "1e3", "1e-3", "0x1F", "1_000"] {
            assert!(is_number(word) && !is_duration(word), "{word}");
        }
        for word in ["5m", "1h30m", "500ms", "1y2w3d"] {
            assert!(is_duration(word) && !is_number(word), "{word}");
        }
        for word in ["", "5x", "m", "1.5h", "0x", "1e", "5m3", "1.2.3"] {
            assert!(!is_duration(word) && !is_number(word), "{word}");
        }
        for (text, begins) in
            [("1e-3+1", "1e-3"), ("0x1e-3", "0x1e"), ("5m-1", "5m"), ("3", "3"), ("1h] x", "1h")]
        {
            assert_eq!(number(text), begins);
        }
    }
}
