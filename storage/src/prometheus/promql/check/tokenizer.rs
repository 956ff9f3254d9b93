//! Words and signs of a query, one after the other.

use super::SyntaxError;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Of a metric, a function, an operator that is a word.
    Name(&'a str),
    /// What begins with a digit or a point: a number or a duration.
    Number(&'a str),
    /// A text in quotes.
    Text,
    /// Anything else that a query may have.
    Symbol(&'a str),
    /// There is no more.
    End,
}

/// A place in a query. A copy of it looks ahead.
#[derive(Clone, Copy)]
pub(super) struct Tokenizer<'a> {
    query: &'a str,
    at: usize,
}

/// The longest come first.
const SIGNS: [&str; 23] = [
    "=~", "!~", "==", "!=", "<=", ">=", "(", ")", "{", "}", "[", "]", ",", "@", "=", "<", ">", "+",
    "-", "*", "/", "%", "^",
];

impl<'a> Tokenizer<'a> {
    pub(super) fn new(query: &'a str) -> Self {
        Self { query, at: 0 }
    }

    /// Where the next token begins, in bytes.
    pub(super) fn position(&mut self) -> usize {
        self.blanks();
        self.at
    }

    /// Where the last token that was taken ends, in bytes.
    pub(super) fn end_of_last(&self) -> usize {
        self.at
    }

    /// The next token; it stays.
    pub(super) fn peek(mut self) -> Result<Token<'a>, SyntaxError> {
        self.next_token()
    }

    /// Takes the next token.
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
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => Token::Symbol(&rest[..sign.len()]),
                None => return Err(SyntaxError::new("this belongs to no query", self.at)),
            },
        };
        if let Token::Name(text) | Token::Number(text) | Token::Symbol(text) = token {
            self.at += text.len();
        }
        Ok(token)
    }

    /// Takes this sign if it is the next token.
    pub(super) fn take_symbol(&mut self, sign: &str) -> Result<bool, SyntaxError> {
        let is = self.peek()? == Token::Symbol(sign);
        if is {
            self.next_token()?;
        }
        Ok(is)
    }

    /// Takes what is between brackets whose first one is taken.
    pub(super) fn window(&mut self) -> Result<&'a str, SyntaxError> {
        let rest = &self.query[self.at..];
        let close =
            rest.find(']').ok_or_else(|| SyntaxError::new("a window is not closed", self.at))?;
        self.at += close + 1;
        Ok(&rest[..close])
    }

    fn text(&mut self, quote: char) -> Result<Token<'a>, SyntaxError> {
        let began = self.at;
        let mut signs = self.query[began + 1..].char_indices();
        while let Some((at, sign)) = signs.next() {
            if sign == quote {
                self.at = began + 1 + at + 1;
                return Ok(Token::Text);
            }
            if sign == '\\' && quote != '`' {
                signs.next();
            }
        }
        Err(SyntaxError::new("a text is not closed", began))
    }

    /// Passes over blanks and comments.
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

/// The number or duration that a text begins with. An exponent has a sign, and hexadecimal digits have none.
fn number(text: &str) -> &str {
    let is_hexadecimal = text.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("0x"));
    let mut before = ' ';
    let end = text.find(|sign: char| {
        let belongs = sign.is_ascii_alphanumeric()
            || matches!(sign, '.' | '_')
            || (matches!(sign, '+' | '-') && matches!(before, 'e' | 'E') && !is_hexadecimal);
        before = sign;
        !belongs
    });
    &text[..end.unwrap_or(text.len())]
}

/// Whether a word is a number as PromQL writes them.
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
    fn numbers_and_durations_are_told_from_what_is_neither() {
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
