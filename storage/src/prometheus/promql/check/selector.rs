//! Checks matchers, windows and modifiers of selectors, and label lists of operators.

use super::{
    FoundSelector, QueryChecker, SyntaxError, ValueType,
    tokenizer::{Token, is_duration, is_number},
};

impl<'a> QueryChecker<'a> {
    /// Consumes label names in parentheses.
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
                Token::End => return Err(SyntaxError::new("unclosed parenthesis", at)),
                Token::Symbol(_) => {
                    return Err(SyntaxError::new("missing label name", at));
                }
            }
        }
    }

    /// Parses the matchers after an opening brace; `at` is the position after the brace.
    pub(super) fn braces(&mut self, at: usize) -> Result<(), SyntaxError> {
        let matchers = self.matchers()?;
        self.found.push(FoundSelector { at, matchers });
        Ok(())
    }

    fn matchers(&mut self) -> Result<Vec<(&'a str, usize)>, SyntaxError> {
        let mut matchers = Vec::new();
        loop {
            let start = self.tokens.position();
            let is_text = match self.tokens.next_token()? {
                Token::Symbol("}") => return Ok(matchers),
                Token::Name(_) => false,
                Token::Text => true,
                Token::End => return Err(SyntaxError::new("unclosed brace", start)),
                _ => {
                    return Err(SyntaxError::new("missing label name", start));
                }
            };
            let at = self.tokens.position();
            let next = self.tokens.peek()?;
            // A string alone is the name of the metric.
            if !is_text || !matches!(next, Token::Symbol("," | "}")) {
                let Token::Symbol("=" | "!=" | "=~" | "!~") = self.tokens.next_token()? else {
                    return Err(SyntaxError::new("missing =, !=, =~ or !~", at));
                };
                let at = self.tokens.position();
                if self.tokens.next_token()? != Token::Text {
                    return Err(SyntaxError::new("the label value must be quoted", at));
                }
                matchers.push((&self.query[start..self.tokens.end_of_last()], start));
            }
            let at = self.tokens.position();
            match self.tokens.next_token()? {
                Token::Symbol("}") => return Ok(matchers),
                Token::Symbol(",") => {}
                Token::End => return Err(SyntaxError::new("unclosed brace", at)),
                _ => return Err(SyntaxError::new("missing comma", at)),
            }
        }
    }

    /// Checks a window or a subquery after an expression of this type.
    pub(super) fn window(
        &mut self,
        value_type: ValueType,
        is_selector: bool,
        at: usize,
    ) -> Result<(), SyntaxError> {
        let inside = self.tokens.window()?;
        let (length, step) = match inside.split_once(':') {
            Some((length, step)) => (length, Some(step)),
            None => (inside, None),
        };
        if length.trim().is_empty() {
            return Err(SyntaxError::new("the window has no length", at));
        }
        for word in [Some(length), step].into_iter().flatten().map(str::trim) {
            // Newer servers allow arithmetic here.
            let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
            if is_plain && !word.is_empty() && !is_duration(word) && !is_number(word) {
                return Err(SyntaxError::new(format!("{word} is not a duration such as 5m"), at));
            }
        }
        if !value_type.satisfies(ValueType::InstantVector) {
            return Err(SyntaxError::new(
                format!("a window cannot follow {}", value_type.description()),
                at,
            ));
        }
        if step.is_none() && !is_selector {
            let why = "a window after anything but a selector needs a step, such as [5m:1m]";
            return Err(SyntaxError::new(why, at));
        }
        Ok(())
    }

    /// `offset 5m`, `@ 1.7e9`, `@ start()`.
    pub(super) fn modifier(&mut self, is_selector: bool, at: usize) -> Result<(), SyntaxError> {
        self.tokens.next_token()?;
        if !is_selector {
            let why = "offset and @ must directly follow a selector or a window";
            return Err(SyntaxError::new(why, at));
        }
        while self.tokens.take_symbol("-")? || self.tokens.take_symbol("+")? {}
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::Number(word) if is_number(word) || is_duration(word) => Ok(()),
            Token::Name(_) if self.tokens.take_symbol("(")? => self.arguments().map(drop),
            Token::Symbol("(") => self.arguments().map(drop),
            _ => Err(SyntaxError::new("offset and @ expect a duration or a time", at)),
        }
    }
}
