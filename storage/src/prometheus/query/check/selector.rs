//! What a selector has in its braces and behind it, and what operators have in their lists.

use super::{
    Check, Flaw, Found, Gives,
    token::{Token, is_duration, is_number},
};

impl<'a> Check<'a> {
    /// Names in brackets.
    pub(super) fn list(&mut self) -> Result<(), Flaw> {
        self.tokens.take()?;
        loop {
            let at = self.tokens.place();
            match self.tokens.take()? {
                Token::Sign(")") => return Ok(()),
                Token::Name(_) | Token::Number(_) | Token::Text | Token::Sign("," | "-" | "+") => {}
                Token::End => return Err(Flaw::new("a bracket is not closed", at)),
                Token::Sign(_) => return Err(Flaw::new("a name is missing before this", at)),
            }
        }
    }

    /// Matchers in braces whose first one is taken; what is inside begins at this byte.
    pub(super) fn braces(&mut self, at: usize) -> Result<(), Flaw> {
        let matchers = self.matchers()?;
        self.found.push(Found { at, matchers });
        Ok(())
    }

    fn matchers(&mut self) -> Result<Vec<(&'a str, usize)>, Flaw> {
        let mut matchers = Vec::new();
        loop {
            let begins = self.tokens.place();
            let is_text = match self.tokens.take()? {
                Token::Sign("}") => return Ok(matchers),
                Token::Name(_) => false,
                Token::Text => true,
                Token::End => return Err(Flaw::new("a brace is not closed", begins)),
                _ => return Err(Flaw::new("the name of a label is missing before this", begins)),
            };
            let at = self.tokens.place();
            let next = self.tokens.peek()?;
            // A text alone is the name of the metric.
            if !is_text || !matches!(next, Token::Sign("," | "}")) {
                let Token::Sign("=" | "!=" | "=~" | "!~") = self.tokens.take()? else {
                    return Err(Flaw::new("= or != or =~ or !~ is missing before this", at));
                };
                let at = self.tokens.place();
                if self.tokens.take()? != Token::Text {
                    return Err(Flaw::new("the value of a label has to be in quotes", at));
                }
                matchers.push((&self.query[begins..self.tokens.passed()], begins));
            }
            let at = self.tokens.place();
            match self.tokens.take()? {
                Token::Sign("}") => return Ok(matchers),
                Token::Sign(",") => {}
                Token::End => return Err(Flaw::new("a brace is not closed", at)),
                _ => return Err(Flaw::new("a comma is missing before this", at)),
            }
        }
    }

    /// The window or the steps behind something.
    pub(super) fn window(&mut self, of: Gives, is_selector: bool, at: usize) -> Result<(), Flaw> {
        let inside = self.tokens.window()?;
        let (length, step) = match inside.split_once(':') {
            Some((length, step)) => (length, Some(step)),
            None => (inside, None),
        };
        if length.trim().is_empty() {
            return Err(Flaw::new("a window has no length", at));
        }
        for word in [Some(length), step].into_iter().flatten().map(str::trim) {
            // Newer servers calculate here.
            let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
            if is_plain && !word.is_empty() && !is_duration(word) && !is_number(word) {
                return Err(Flaw::new(format!("{word} is no duration such as 5m"), at));
            }
        }
        if !of.does_for(Gives::Instant) {
            return Err(Flaw::new(format!("there is no window of {}", of.words()), at));
        }
        if step.is_none() && !is_selector {
            let why =
                "a window is only of a selector; of anything else it needs steps, such as [5m:1m]";
            return Err(Flaw::new(why, at));
        }
        Ok(())
    }

    /// `offset 5m`, `@ 1.7e9`, `@ start()`.
    pub(super) fn modifier(&mut self, is_selector: bool, at: usize) -> Result<(), Flaw> {
        self.tokens.take()?;
        if !is_selector {
            let why = "offset and @ belong behind a selector or a window, within any function";
            return Err(Flaw::new(why, at));
        }
        while self.tokens.takes("-")? || self.tokens.takes("+")? {}
        let at = self.tokens.place();
        match self.tokens.take()? {
            Token::Number(word) if is_number(word) || is_duration(word) => Ok(()),
            Token::Name(_) if self.tokens.takes("(")? => self.arguments().map(drop),
            Token::Sign("(") => self.arguments().map(drop),
            _ => Err(Flaw::new("offset and @ want a duration or a time", at)),
        }
    }
}
