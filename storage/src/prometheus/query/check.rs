//! Whether a text can be a query whose answer is numbers: brackets, operands and operators in their places, windows
//! where functions want them, and neither a range nor a text as the result.
//!
//! Not a whole parser: what comes out is told by what goes in, so precedence is of no account, and a function that is
//! not known may want and give anything. The crate promql-parser would know more. It panics on some texts
//! (`x offset 1e400`) and overflows the stack on others, and whoever may write to an object of the cluster must not be
//! able to end the process that checks it.

mod function;
mod selector;
mod token;

use std::borrow::Cow;

use self::{
    function::{fold, function},
    token::{Token, Tokens, is_duration, is_number},
};

/// Brackets within brackets beyond all use; each takes some of the stack.
const DEEPEST: u32 = 100;

/// What a part of a query gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gives {
    /// A number.
    Scalar,
    /// Series with a sample each.
    Instant,
    /// Series with samples over time.
    Range,
    /// A text.
    Text,
    /// Nobody here knows.
    Anything,
}

impl Gives {
    const fn words(self) -> &'static str {
        match self {
            Self::Scalar => "a number",
            Self::Instant => "series",
            Self::Range => "a window such as x[5m]",
            Self::Text => "a text in quotes",
            Self::Anything => "something",
        }
    }

    fn does_for(self, wanted: Self) -> bool {
        self == wanted || self == Self::Anything
    }
}

/// What is wrong, and at which byte.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) why: Cow<'static, str>,
    pub(super) at: usize,
}

impl Flaw {
    fn new(why: impl Into<Cow<'static, str>>, at: usize) -> Self {
        Self { why: why.into(), at }
    }
}

/// A selector as it was written.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// The byte at which matchers can be put in: behind its brace, or behind its name where it has no braces.
    pub(super) at: usize,
    /// Its matchers, and at which byte each begins.
    pub(super) matchers: Vec<(&'a str, usize)>,
}

/// Checks a whole query.
pub(super) fn check(query: &str) -> Result<(), Flaw> {
    Check::of(query).whole()
}

/// Checks a whole query and finds its selectors, in the order of the text. A function that reads series which no
/// selector names is refused.
pub(super) fn selectors(query: &str) -> Result<Vec<Found<'_>>, Flaw> {
    let mut check = Check::of(query);
    check.whole()?;
    match check.reads_more {
        Some(at) => Err(Flaw::new("info() reads series that no selector names", at)),
        None => Ok(check.found),
    }
}

struct Check<'a> {
    query: &'a str,
    tokens: Tokens<'a>,
    depth: u32,
    found: Vec<Found<'a>>,
    /// Where a function is called that reads series by itself.
    reads_more: Option<usize>,
}

impl<'a> Check<'a> {
    fn of(query: &'a str) -> Self {
        Self { query, tokens: Tokens::of(query), depth: 0, found: Vec::new(), reads_more: None }
    }

    fn whole(&mut self) -> Result<(), Flaw> {
        let (gives, _) = self.expression()?;
        let at = self.tokens.place();
        match self.tokens.take()? {
            Token::End => {}
            Token::Sign(")") => {
                return Err(Flaw::new("a bracket is closed that was not opened", at));
            }
            _ => return Err(Flaw::new("an operator is missing before this", at)),
        }
        match gives {
            Gives::Range => Err(Flaw::new(
                "it answers a range and no number; put a function such as rate() around it",
                0,
            )),
            Gives::Text => Err(Flaw::new("it answers a text and no number", 0)),
            _ => Ok(()),
        }
    }

    /// Operands with operators between them: what they give, and where they begin.
    fn expression(&mut self) -> Result<(Gives, usize), Flaw> {
        let begins = self.tokens.place();
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(Flaw::new("brackets are nested too deep", begins));
        }
        let mut gives = self.operand()?;
        let mut at = begins;
        while self.operator()? {
            calculable(gives, at)?;
            at = self.tokens.place();
            let other = self.operand()?;
            calculable(other, at)?;
            gives = match (gives, other) {
                (Gives::Scalar, other) => other,
                (gives, Gives::Scalar) => gives,
                _ => Gives::Instant,
            };
        }
        self.depth -= 1;
        Ok((gives, begins))
    }

    /// Takes an operator with all that modifies it, if there is one.
    fn operator(&mut self) -> Result<bool, Flaw> {
        match self.tokens.peek()? {
            Token::Sign(
                "+" | "-" | "*" | "/" | "%" | "^" | "==" | "!=" | "<=" | ">=" | "<" | ">",
            ) => {}
            Token::Name(name) if is_one_of(name, &["and", "or", "unless", "atan2"]) => {}
            _ => return Ok(false),
        }
        self.tokens.take()?;
        while let Token::Name(name) = self.tokens.peek()? {
            let has_list = self.is_before("(")?;
            let lists = ["on", "ignoring", "fill", "fill_left", "fill_right"];
            let is_bool = is_one_of(name, &["bool"]);
            let is_group = is_one_of(name, &["group_left", "group_right"]);
            if !(is_bool || is_group || (has_list && is_one_of(name, &lists))) {
                break;
            }
            self.tokens.take()?;
            if has_list && !is_bool {
                self.list()?;
            }
        }
        Ok(true)
    }

    fn operand(&mut self) -> Result<Gives, Flaw> {
        let mut is_signed = false;
        while self.tokens.takes("-")? || self.tokens.takes("+")? {
            is_signed = true;
        }
        let at = self.tokens.place();
        let (mut gives, mut is_selector) = self.thing()?;
        loop {
            let at = self.tokens.place();
            match self.tokens.peek()? {
                Token::Sign("[") => {
                    self.tokens.take()?;
                    self.window(gives, is_selector, at)?;
                    (gives, is_selector) = (Gives::Range, true);
                }
                Token::Sign("@") => self.modifier(is_selector, at)?,
                Token::Name(name) if is_one_of(name, &["offset"]) => {
                    self.modifier(is_selector, at)?;
                }
                Token::Name(name) if is_one_of(name, &["smoothed", "anchored"]) => {
                    self.tokens.take()?;
                }
                _ => break,
            }
        }
        if is_signed {
            calculable(gives, at)?;
        }
        Ok(gives)
    }

    /// A number, a text, a selector, a call or anything in brackets; and whether it is a selector.
    fn thing(&mut self) -> Result<(Gives, bool), Flaw> {
        let at = self.tokens.place();
        match self.tokens.take()? {
            Token::Number(word) if is_number(word) || is_duration(word) => {
                Ok((Gives::Scalar, false))
            }
            Token::Number(word) => {
                Err(Flaw::new(format!("{word} is neither a number nor a duration"), at))
            }
            Token::Text => Ok((Gives::Text, false)),
            Token::Sign("(") => {
                let (gives, _) = self.expression()?;
                self.closes()?;
                Ok((gives, false))
            }
            Token::Sign("{") => {
                if self.tokens.peek()? == Token::Sign("}") {
                    return Err(Flaw::new("the selector is empty and means all there is", at));
                }
                self.braces(at + 1)?;
                Ok((Gives::Instant, true))
            }
            Token::Name(name) => self.named(name, at),
            Token::End => Err(Flaw::new("something is missing at the end", at)),
            Token::Sign(_) => {
                Err(Flaw::new("a selector, a function or a number is missing before this", at))
            }
        }
    }

    fn named(&mut self, name: &'a str, at: usize) -> Result<(Gives, bool), Flaw> {
        let next = self.tokens.peek()?;
        let is_called = next == Token::Sign("(");
        if let Some(wanted) = fold(&name.to_ascii_lowercase())
            && (is_called || self.groups()?)
        {
            self.fold(name, wanted, at)?;
            return Ok((Gives::Instant, false));
        }
        if is_called {
            self.tokens.take()?;
            return Ok((self.call(name, at)?, false));
        }
        if is_one_of(name, &["inf", "nan"]) && next != Token::Sign("{") {
            return Ok((Gives::Scalar, false));
        }
        let brace = self.tokens.place();
        if self.tokens.takes("{")? {
            self.braces(brace + 1)?;
        } else {
            self.found.push(Found { at: at + name.len(), matchers: Vec::new() });
        }
        Ok((Gives::Instant, true))
    }

    /// Whether `by (…)` or `without (…)` comes next.
    fn groups(&self) -> Result<bool, Flaw> {
        let Token::Name(word) = self.tokens.peek()? else { return Ok(false) };
        Ok(is_one_of(word, &["by", "without"]) && self.is_before("(")?)
    }

    fn fold(&mut self, name: &str, wanted: &[Gives], at: usize) -> Result<(), Flaw> {
        let mut is_grouped = self.groups()?;
        if is_grouped {
            self.tokens.take()?;
            self.list()?;
        }
        let opens = self.tokens.place();
        if !self.tokens.takes("(")? {
            return Err(Flaw::new(format!("what {name} folds has to be in brackets"), opens));
        }
        let given = self.arguments()?;
        is_grouped = !is_grouped && self.groups()?;
        if is_grouped {
            self.tokens.take()?;
            self.list()?;
        }
        if given.len() != wanted.len() {
            return Err(counted(name, wanted.len(), given.len(), at));
        }
        fits(name, wanted, &given)
    }

    fn call(&mut self, name: &str, at: usize) -> Result<Gives, Flaw> {
        if name.eq_ignore_ascii_case("info") {
            self.reads_more = Some(at);
        }
        let given = self.arguments()?;
        let Some(known) = function(name) else { return Ok(Gives::Anything) };
        let least = known.wants.len() - known.optional;
        let is_enough = given.len() >= least;
        if !is_enough || (given.len() > known.wants.len() && !known.repeats) {
            let wanted = if is_enough { known.wants.len() } else { least };
            return Err(counted(name, wanted, given.len(), at));
        }
        let again = known.wants.last().into_iter().cycle();
        let wanted: Vec<_> = known.wants.iter().chain(again).copied().take(given.len()).collect();
        fits(name, &wanted, &given)?;
        Ok(known.gives)
    }

    /// What is between brackets whose first one is taken: what each part gives, and where it begins.
    fn arguments(&mut self) -> Result<Vec<(Gives, usize)>, Flaw> {
        let mut given = Vec::new();
        if self.tokens.takes(")")? {
            return Ok(given);
        }
        loop {
            given.push(self.expression()?);
            if !self.tokens.takes(",")? {
                self.closes()?;
                return Ok(given);
            }
        }
    }

    fn closes(&mut self) -> Result<(), Flaw> {
        let at = self.tokens.place();
        match self.tokens.take()? {
            Token::Sign(")") => Ok(()),
            Token::End => Err(Flaw::new("a bracket is not closed", at)),
            _ => Err(Flaw::new("an operator, a comma or a bracket is missing before this", at)),
        }
    }

    /// Whether this sign follows the next token.
    fn is_before(&self, sign: &str) -> Result<bool, Flaw> {
        let mut ahead = self.tokens;
        ahead.take()?;
        Ok(ahead.peek()? == Token::Sign(sign))
    }
}

fn is_one_of(word: &str, known: &[&str]) -> bool {
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn calculable(gives: Gives, at: usize) -> Result<(), Flaw> {
    match gives {
        Gives::Range | Gives::Text => {
            Err(Flaw::new(format!("nothing can be calculated with {}", gives.words()), at))
        }
        _ => Ok(()),
    }
}

fn counted(name: &str, wanted: usize, given: usize, at: usize) -> Flaw {
    Flaw::new(format!("{name}() wants {wanted} in its brackets and gets {given}"), at)
}

fn fits(name: &str, wanted: &[Gives], given: &[(Gives, usize)]) -> Result<(), Flaw> {
    for (wanted, (given, at)) in wanted.iter().zip(given) {
        if !given.does_for(*wanted) {
            let why = format!("{name}() wants {} here and gets {}", wanted.words(), given.words());
            return Err(Flaw::new(why, *at));
        }
    }
    Ok(())
}
