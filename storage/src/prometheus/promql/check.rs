//! Whether a text can be a query whose answer is numbers: brackets, operands and operators in their places, windows
//! where functions want them, and neither a range nor a text as the result.
//!
//! Not a whole parser: what comes out is told by what goes in, so precedence is of no account, and a function that is
//! not known may want and give anything. The crate promql-parser would know more. It panics on some texts
//! (`x offset 1e400`) and overflows the stack on others, and whoever may write to an object of the cluster must not be
//! able to end the process that checks it.

mod functions;
mod selector;
mod tokenizer;

use std::borrow::Cow;

use self::{
    functions::{fold, function},
    tokenizer::{Token, Tokenizer, is_duration, is_number},
};

/// Brackets within brackets beyond all use; each takes some of the stack.
const DEEPEST: u32 = 100;

/// What a part of a query gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    /// A number.
    Scalar,
    /// Series with a sample each.
    InstantVector,
    /// Series with samples over time.
    RangeVector,
    /// A text.
    StringLiteral,
    /// Nobody here knows.
    Unknown,
}

impl ValueType {
    const fn description(self) -> &'static str {
        match self {
            Self::Scalar => "a number",
            Self::InstantVector => "series",
            Self::RangeVector => "a window such as x[5m]",
            Self::StringLiteral => "a text in quotes",
            Self::Unknown => "something",
        }
    }

    fn satisfies(self, wanted: Self) -> bool {
        self == wanted || self == Self::Unknown
    }
}

/// What is wrong, and at which byte.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) why: Cow<'static, str>,
    pub(super) at: usize,
}

impl SyntaxError {
    fn new(why: impl Into<Cow<'static, str>>, at: usize) -> Self {
        Self { why: why.into(), at }
    }
}

/// A selector as it was written.
#[derive(Debug)]
pub(super) struct FoundSelector<'a> {
    /// The byte at which matchers can be put in: behind its brace, or behind its name where it has no braces.
    pub(super) at: usize,
    /// Its matchers, and at which byte each begins.
    pub(super) matchers: Vec<(&'a str, usize)>,
}

/// Checks a whole query.
pub(super) fn check(query: &str) -> Result<(), SyntaxError> {
    QueryChecker::new(query).check_query()
}

/// Checks a whole query and finds its selectors, in the order of the text. A function that reads series which no
/// selector names is refused.
pub(super) fn selectors(query: &str) -> Result<Vec<FoundSelector<'_>>, SyntaxError> {
    let mut check = QueryChecker::new(query);
    check.check_query()?;
    match check.info_call {
        Some(at) => Err(SyntaxError::new("info() reads series that no selector names", at)),
        None => Ok(check.found),
    }
}

struct QueryChecker<'a> {
    query: &'a str,
    tokens: Tokenizer<'a>,
    depth: u32,
    found: Vec<FoundSelector<'a>>,
    /// Where a function is called that reads series by itself.
    info_call: Option<usize>,
}

impl<'a> QueryChecker<'a> {
    fn new(query: &'a str) -> Self {
        Self { query, tokens: Tokenizer::new(query), depth: 0, found: Vec::new(), info_call: None }
    }

    fn check_query(&mut self) -> Result<(), SyntaxError> {
        let (gives, _) = self.expression()?;
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::End => {}
            Token::Symbol(")") => {
                return Err(SyntaxError::new("a bracket is closed that was not opened", at));
            }
            _ => return Err(SyntaxError::new("an operator is missing before this", at)),
        }
        match gives {
            ValueType::RangeVector => Err(SyntaxError::new(
                "it answers a range and no number; put a function such as rate() around it",
                0,
            )),
            ValueType::StringLiteral => Err(SyntaxError::new("it answers a text and no number", 0)),
            _ => Ok(()),
        }
    }

    /// Operands with operators between them: what they give, and where they begin.
    fn expression(&mut self) -> Result<(ValueType, usize), SyntaxError> {
        let begins = self.tokens.position();
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(SyntaxError::new("brackets are nested too deep", begins));
        }
        let mut gives = self.operand()?;
        let mut at = begins;
        while self.operator()? {
            require_arithmetic(gives, at)?;
            at = self.tokens.position();
            let other = self.operand()?;
            require_arithmetic(other, at)?;
            gives = match (gives, other) {
                (ValueType::Scalar, other) => other,
                (gives, ValueType::Scalar) => gives,
                _ => ValueType::InstantVector,
            };
        }
        self.depth -= 1;
        Ok((gives, begins))
    }

    /// Takes an operator with all that modifies it, if there is one.
    fn operator(&mut self) -> Result<bool, SyntaxError> {
        match self.tokens.peek()? {
            Token::Symbol(
                "+" | "-" | "*" | "/" | "%" | "^" | "==" | "!=" | "<=" | ">=" | "<" | ">",
            ) => {}
            Token::Name(name) if is_one_of(name, &["and", "or", "unless", "atan2"]) => {}
            _ => return Ok(false),
        }
        self.tokens.next_token()?;
        while let Token::Name(name) = self.tokens.peek()? {
            let has_list = self.is_before("(")?;
            let lists = ["on", "ignoring", "fill", "fill_left", "fill_right"];
            let is_bool = is_one_of(name, &["bool"]);
            let is_group = is_one_of(name, &["group_left", "group_right"]);
            if !(is_bool || is_group || (has_list && is_one_of(name, &lists))) {
                break;
            }
            self.tokens.next_token()?;
            if has_list && !is_bool {
                self.list()?;
            }
        }
        Ok(true)
    }

    fn operand(&mut self) -> Result<ValueType, SyntaxError> {
        let mut is_signed = false;
        while self.tokens.take_symbol("-")? || self.tokens.take_symbol("+")? {
            is_signed = true;
        }
        let at = self.tokens.position();
        let (mut gives, mut is_selector) = self.primary()?;
        loop {
            let at = self.tokens.position();
            match self.tokens.peek()? {
                Token::Symbol("[") => {
                    self.tokens.next_token()?;
                    self.window(gives, is_selector, at)?;
                    (gives, is_selector) = (ValueType::RangeVector, true);
                }
                Token::Symbol("@") => self.modifier(is_selector, at)?,
                Token::Name(name) if is_one_of(name, &["offset"]) => {
                    self.modifier(is_selector, at)?;
                }
                Token::Name(name) if is_one_of(name, &["smoothed", "anchored"]) => {
                    self.tokens.next_token()?;
                }
                _ => break,
            }
        }
        if is_signed {
            require_arithmetic(gives, at)?;
        }
        Ok(gives)
    }

    /// A number, a text, a selector, a call or anything in brackets; and whether it is a selector.
    fn primary(&mut self) -> Result<(ValueType, bool), SyntaxError> {
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::Number(word) if is_number(word) || is_duration(word) => {
                Ok((ValueType::Scalar, false))
            }
            Token::Number(word) => {
                Err(SyntaxError::new(format!("{word} is neither a number nor a duration"), at))
            }
            Token::Text => Ok((ValueType::StringLiteral, false)),
            Token::Symbol("(") => {
                let (gives, _) = self.expression()?;
                self.expect_closing_bracket()?;
                Ok((gives, false))
            }
            Token::Symbol("{") => {
                if self.tokens.peek()? == Token::Symbol("}") {
                    return Err(SyntaxError::new(
                        "the selector is empty and means all there is",
                        at,
                    ));
                }
                self.braces(at + 1)?;
                Ok((ValueType::InstantVector, true))
            }
            Token::Name(name) => self.named(name, at),
            Token::End => Err(SyntaxError::new("something is missing at the end", at)),
            Token::Symbol(_) => Err(SyntaxError::new(
                "a selector, a function or a number is missing before this",
                at,
            )),
        }
    }

    fn named(&mut self, name: &'a str, at: usize) -> Result<(ValueType, bool), SyntaxError> {
        let next = self.tokens.peek()?;
        let is_called = next == Token::Symbol("(");
        if let Some(wanted) = fold(&name.to_ascii_lowercase())
            && (is_called || self.groups()?)
        {
            self.fold(name, wanted, at)?;
            return Ok((ValueType::InstantVector, false));
        }
        if is_called {
            self.tokens.next_token()?;
            return Ok((self.call(name, at)?, false));
        }
        if is_one_of(name, &["inf", "nan"]) && next != Token::Symbol("{") {
            return Ok((ValueType::Scalar, false));
        }
        let brace = self.tokens.position();
        if self.tokens.take_symbol("{")? {
            self.braces(brace + 1)?;
        } else {
            self.found.push(FoundSelector { at: at + name.len(), matchers: Vec::new() });
        }
        Ok((ValueType::InstantVector, true))
    }

    /// Whether `by (…)` or `without (…)` comes next.
    fn groups(&self) -> Result<bool, SyntaxError> {
        let Token::Name(word) = self.tokens.peek()? else { return Ok(false) };
        Ok(is_one_of(word, &["by", "without"]) && self.is_before("(")?)
    }

    fn fold(&mut self, name: &str, wanted: &[ValueType], at: usize) -> Result<(), SyntaxError> {
        let mut is_grouped = self.groups()?;
        if is_grouped {
            self.tokens.next_token()?;
            self.list()?;
        }
        let opens = self.tokens.position();
        if !self.tokens.take_symbol("(")? {
            return Err(SyntaxError::new(
                format!("what {name} folds has to be in brackets"),
                opens,
            ));
        }
        let given = self.arguments()?;
        is_grouped = !is_grouped && self.groups()?;
        if is_grouped {
            self.tokens.next_token()?;
            self.list()?;
        }
        if given.len() != wanted.len() {
            return Err(wrong_argument_count(name, wanted.len(), given.len(), at));
        }
        check_argument_types(name, wanted, &given)
    }

    fn call(&mut self, name: &str, at: usize) -> Result<ValueType, SyntaxError> {
        if name.eq_ignore_ascii_case("info") {
            self.info_call = Some(at);
        }
        let given = self.arguments()?;
        let Some(known) = function(name) else { return Ok(ValueType::Unknown) };
        let least = known.parameters.len() - known.optional;
        let is_enough = given.len() >= least;
        if !is_enough || (given.len() > known.parameters.len() && !known.repeats) {
            let wanted = if is_enough { known.parameters.len() } else { least };
            return Err(wrong_argument_count(name, wanted, given.len(), at));
        }
        let again = known.parameters.last().into_iter().cycle();
        let wanted: Vec<_> =
            known.parameters.iter().chain(again).copied().take(given.len()).collect();
        check_argument_types(name, &wanted, &given)?;
        Ok(known.returns)
    }

    /// What is between brackets whose first one is taken: what each part gives, and where it begins.
    fn arguments(&mut self) -> Result<Vec<(ValueType, usize)>, SyntaxError> {
        let mut given = Vec::new();
        if self.tokens.take_symbol(")")? {
            return Ok(given);
        }
        loop {
            given.push(self.expression()?);
            if !self.tokens.take_symbol(",")? {
                self.expect_closing_bracket()?;
                return Ok(given);
            }
        }
    }

    fn expect_closing_bracket(&mut self) -> Result<(), SyntaxError> {
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::Symbol(")") => Ok(()),
            Token::End => Err(SyntaxError::new("a bracket is not closed", at)),
            _ => Err(SyntaxError::new(
                "an operator, a comma or a bracket is missing before this",
                at,
            )),
        }
    }

    /// Whether this sign follows the next token.
    fn is_before(&self, sign: &str) -> Result<bool, SyntaxError> {
        let mut ahead = self.tokens;
        ahead.next_token()?;
        Ok(ahead.peek()? == Token::Symbol(sign))
    }
}

fn is_one_of(word: &str, known: &[&str]) -> bool {
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn require_arithmetic(gives: ValueType, at: usize) -> Result<(), SyntaxError> {
    match gives {
        ValueType::RangeVector | ValueType::StringLiteral => Err(SyntaxError::new(
            format!("nothing can be calculated with {}", gives.description()),
            at,
        )),
        _ => Ok(()),
    }
}

fn wrong_argument_count(name: &str, wanted: usize, given: usize, at: usize) -> SyntaxError {
    SyntaxError::new(format!("{name}() wants {wanted} in its brackets and gets {given}"), at)
}

fn check_argument_types(
    name: &str,
    wanted: &[ValueType],
    given: &[(ValueType, usize)],
) -> Result<(), SyntaxError> {
    for (wanted, (given, at)) in wanted.iter().zip(given) {
        if !given.satisfies(*wanted) {
            let why = format!(
                "{name}() wants {} here and gets {}",
                wanted.description(),
                given.description()
            );
            return Err(SyntaxError::new(why, *at));
        }
    }
    Ok(())
}
