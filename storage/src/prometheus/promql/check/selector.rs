//! What a selector has in its braces and behind it, and what operators have in their lists.

use super::{
    FoundSelector, QueryChecker, SyntaxError, ValueType,
    tokenizer::{Token, is_duration, is_number},
};

impl<'a> QueryChecker<'a> {
    /// Names in brackets.
    pub(super) fn list(&mut self) -> Result<(), SyntaxError> {
        self.tokens.next_token()?;
        loop {
            let at = self.tokens.position();
            match self.tokens.next_token()? {
                Token::Symbol(")") => return Ok(()),
                Token::Name(_)
                | Token::Number(_)
                | Token::Text
                | Token::Symbol("," | "-" | "+") => {}
                Token::End => return Err(SyntaxError::new("a bracket is not closed", at)),
                Token::Symbol(_) => {
                    return Err(SyntaxError::new("a name is missing before this", at));
                }
            }
        }
    }

    /// Matchers in braces whose first one is taken; what is inside begins at this byte.
    pub(super) fn braces(&mut self, at: usize) -> Result<(), SyntaxError> {
        let matchers = self.matchers()?;
        self.found.push(FoundSelector { at, matchers });
        Ok(())
    }

    fn matchers(&mut self) -> Result<Vec<(&'a str, usize)>, SyntaxError> {
        let mut matchers = Vec::new();
        loop {
            let begins = self.tokens.position();
            let is_text = match self.tokens.next_token()? {
                Token::Symbol("}") => return Ok(matchers),
                Token::Name(_) => false,
                Token::Text => true,
                Token::End => return Err(SyntaxError::new("a brace is not closed", begins)),
                _ => {
                    return Err(SyntaxError::new(
                        "the name of a label is missing before this",
                        begins,
                    ));
                }
            };
            let at = self.tokens.position();
            let next = self.tokens.peek()?;
            // A text alone is the name of the metric.
            if !is_text || !matches!(next, Token::Symbol("," | "}")) {
                let Token::Symbol("=" | "!=" | "=~" | "!~") = self.tokens.next_token()? else {
                    return Err(SyntaxError::new("= or != or =~ or !~ is missing before this", at));
                };
                let at = self.tokens.position();
                if self.tokens.next_token()? != Token::Text {
                    return Err(SyntaxError::new("the value of a label has to be in quotes", at));
                }
                matchers.push((&self.query[begins..self.tokens.end_of_last()], begins));
            }
            let at = self.tokens.position();
            match self.tokens.next_token()? {
                Token::Symbol("}") => return Ok(matchers),
                Token::Symbol(",") => {}
                Token::End => return Err(SyntaxError::new("a brace is not closed", at)),
                _ => return Err(SyntaxError::new("a comma is missing before this", at)),
            }
        }
    }

    /// The window or the steps behind something.
    pub(super) fn window(
        &mut self,
        of: ValueType,
        is_selector: bool,
        at: usize,
    ) -> Result<(), SyntaxError> {
        let inside = self.tokens.window()?;
        let (length, step) = match inside.split_once(':') {
            Some((length, step)) => (length, Some(step)),
            None => (inside, None),
        };
        if length.trim().is_empty() {
            return Err(SyntaxError::new("a window has no length", at));
        }
        for word in [Some(length), step].into_iter().flatten().map(str::trim) {
            // Newer servers calculate here.
            let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
            if is_plain && !word.is_empty() && !is_duration(word) && !is_number(word) {
                return Err(SyntaxError::new(format!("{word} is no duration such as 5m"), at));
            }
        }
        if !of.satisfies(ValueType::InstantVector) {
            return Err(SyntaxError::new(
                format!("there is no window of {}", of.description()),
                at,
            ));
        }
        if step.is_none() && !is_selector {
            let why =
                "a window is only of a selector; of anything else it needs steps, such as [5m:1m]";
            return Err(SyntaxError::new(why, at));
        }
        Ok(())
    }

    /// `offset 5m`, `@ 1.7e9`, `@ start()`.
    pub(super) fn modifier(&mut self, is_selector: bool, at: usize) -> Result<(), SyntaxError> {
        self.tokens.next_token()?;
        if !is_selector {
            let why = "offset and @ belong behind a selector or a window, within any function";
            return Err(SyntaxError::new(why, at));
        }
        while self.tokens.take_symbol("-")? || self.tokens.take_symbol("+")? {}
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::Number(word) if is_number(word) || is_duration(word) => Ok(()),
            Token::Name(_) if self.tokens.take_symbol("(")? => self.arguments().map(drop),
            Token::Symbol("(") => self.arguments().map(drop),
            _ => Err(SyntaxError::new("offset and @ want a duration or a time", at)),
        }
    }
}
