//! Splits the text of a label selector into tokens.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
}

impl<'a> Token<'a> {
    /// The text of the token; empty for [`Token::End`].
    pub(super) fn text(self) -> &'a str {
        match self {
            Self::Word(word) => word,
            Self::Not => "!",
            Self::Equals => "=",
            Self::DoubleEquals => "==",
            Self::NotEquals => "!=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Open => "(",
            Self::Close => ")",
            Self::Comma => ",",
            Self::End => "",
        }
    }

    /// Whether the token is a word.
    pub(super) const fn is_word(self) -> bool {
        matches!(self, Self::Word(_))
    }
}

const SYMBOLS: [char; 7] = ['=', '!', '(', ')', ',', '>', '<'];

/// All tokens of a text; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '>' => (Token::Greater, 1),
            '<' => (Token::Less, 1),
            '=' if rest.starts_with("==") => (Token::DoubleEquals, 2),
            '=' => (Token::Equals, 1),
            '!' if rest.starts_with("!=") => (Token::NotEquals, 2),
            '!' => (Token::Not, 1),
            _ => {
                let end = rest.find(|c| is_space(c) || SYMBOLS.contains(&c)).unwrap_or(rest.len());
                (Token::Word(&rest[..end]), end)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start_matches(is_space);
    }
    tokens.push(Token::End);
    tokens
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}
