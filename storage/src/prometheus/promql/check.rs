//! Checks that a query is valid and returns numbers: parentheses, operands and operators, argument types, and a result
//! that is neither a range vector nor a string.
//!
//! This is not a complete parser: operator precedence does not affect the types, and an unknown function may accept and
//! return anything. The crate promql-parser checks more, but it panics on some inputs (`x offset 1e400`) and overflows
//! the stack on others. A user with write access to an object must not be able to crash the process that validates it.

mod functions;
mod selector;
mod tokenizer;

use std::borrow::Cow;

use self::{
    functions::{fold, function},
    tokenizer::{Token, Tokenizer, is_duration, is_number},
};

/// Maximum nesting depth, to limit the use of the stack.
const DEEPEST: u32 = 100;

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    /// A number.
    Scalar,
    /// An instant vector.
    InstantVector,
    /// A range vector.
    RangeVector,
    /// A string.
    StringLiteral,
    /// Unknown.
    Unknown,
}

impl ValueType {
    const fn description(self) -> &'static str {
        match self {
            Self::Scalar => "a number",
            Self::InstantVector => "series",
            Self::RangeVector => "a window such as x[5m]",
            Self::StringLiteral => "a string",
            Self::Unknown => "something",
        }
    }

    fn satisfies(self, expected: Self) -> bool {
        self == expected || self == Self::Unknown
    }
}

/// A syntax error and its position in bytes.
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

/// A selector in the query text.
#[derive(Debug)]
pub(super) struct FoundSelector<'a> {
    /// The byte at which matchers can be inserted: after the brace, or after the name if there are no braces.
    pub(super) at: usize,
    /// The matchers and their positions in bytes.
    pub(super) matchers: Vec<(&'a str, usize)>,
}

/// Checks a query.
pub(super) fn check(query: &str) -> Result<(), SyntaxError> {
    QueryChecker::new(query).check_query()
}

/// Checks a query and returns its selectors in the order of the text. Rejects functions that read series without a
/// selector.
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
    /// The position of a call of `info()`, which reads series without a selector.
    info_call: Option<usize>,
}

impl<'a> QueryChecker<'a> {
    fn new(query: &'a str) -> Self {
        Self { query, tokens: Tokenizer::new(query), depth: 0, found: Vec::new(), info_call: None }
    }

    fn check_query(&mut self) -> Result<(), SyntaxError> {
        let (value_type, _) = self.expression()?;
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::End => {}
            Token::Symbol(")") => {
                return Err(SyntaxError::new("unmatched closing parenthesis", at));
            }
            _ => return Err(SyntaxError::new("missing operator", at)),
        }
        match value_type {
            ValueType::RangeVector => Err(SyntaxError::new(
                "the result is a range vector; wrap it in a function such as rate()",
                0,
            )),
            ValueType::StringLiteral => {
                Err(SyntaxError::new("the result is a string and not a number", 0))
            }
            _ => Ok(()),
        }
    }

    /// Parses operands with operators between them, and returns the type and the position.
    fn expression(&mut self) -> Result<(ValueType, usize), SyntaxError> {
        let start = self.tokens.position();
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(SyntaxError::new("parentheses are nested too deeply", start));
        }
        let mut value_type = self.operand()?;
        let mut at = start;
        while self.operator()? {
            require_arithmetic(value_type, at)?;
            at = self.tokens.position();
            let other = self.operand()?;
            require_arithmetic(other, at)?;
            value_type = match (value_type, other) {
                (ValueType::Scalar, other) => other,
                (value_type, ValueType::Scalar) => value_type,
                _ => ValueType::InstantVector,
            };
        }
        self.depth -= 1;
        Ok((value_type, start))
    }

    /// Consumes an operator with its modifiers, if there is one.
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
        let (mut value_type, mut is_selector) = self.primary()?;
        loop {
            let at = self.tokens.position();
            match self.tokens.peek()? {
                Token::Symbol("[") => {
                    self.tokens.next_token()?;
                    self.window(value_type, is_selector, at)?;
                    (value_type, is_selector) = (ValueType::RangeVector, true);
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
            require_arithmetic(value_type, at)?;
        }
        Ok(value_type)
    }

    /// Parses a number, a string, a selector, a call or an expression in parentheses; also returns whether it is a selector.
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
                let (value_type, _) = self.expression()?;
                self.expect_closing_bracket()?;
                Ok((value_type, false))
            }
            Token::Symbol("{") => {
                if self.tokens.peek()? == Token::Symbol("}") {
                    return Err(SyntaxError::new(
                        "the selector is empty and matches all series",
                        at,
                    ));
                }
                self.braces(at + 1)?;
                Ok((ValueType::InstantVector, true))
            }
            Token::Name(name) => self.named(name, at),
            Token::End => Err(SyntaxError::new("unexpected end of query", at)),
            Token::Symbol(_) => Err(SyntaxError::new("missing selector, function or number", at)),
        }
    }

    fn named(&mut self, name: &'a str, at: usize) -> Result<(ValueType, bool), SyntaxError> {
        let next = self.tokens.peek()?;
        let is_called = next == Token::Symbol("(");
        if let Some(expected) = fold(&name.to_ascii_lowercase())
            && (is_called || self.groups()?)
        {
            self.fold(name, expected, at)?;
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

    fn fold(&mut self, name: &str, expected: &[ValueType], at: usize) -> Result<(), SyntaxError> {
        let mut is_grouped = self.groups()?;
        if is_grouped {
            self.tokens.next_token()?;
            self.list()?;
        }
        let start = self.tokens.position();
        if !self.tokens.take_symbol("(")? {
            return Err(SyntaxError::new(
                format!("{name} needs its arguments in parentheses"),
                start,
            ));
        }
        let arguments = self.arguments()?;
        is_grouped = !is_grouped && self.groups()?;
        if is_grouped {
            self.tokens.next_token()?;
            self.list()?;
        }
        if arguments.len() != expected.len() {
            return Err(wrong_argument_count(name, expected.len(), arguments.len(), at));
        }
        check_argument_types(name, expected, &arguments)
    }

    fn call(&mut self, name: &str, at: usize) -> Result<ValueType, SyntaxError> {
        if name.eq_ignore_ascii_case("info") {
            self.info_call = Some(at);
        }
        let arguments = self.arguments()?;
        let Some(signature) = function(name) else { return Ok(ValueType::Unknown) };
        let min = signature.parameters.len() - signature.optional;
        let is_enough = arguments.len() >= min;
        if !is_enough || (arguments.len() > signature.parameters.len() && !signature.repeats) {
            let expected = if is_enough { signature.parameters.len() } else { min };
            return Err(wrong_argument_count(name, expected, arguments.len(), at));
        }
        let again = signature.parameters.last().into_iter().cycle();
        let expected: Vec<_> =
            signature.parameters.iter().chain(again).copied().take(arguments.len()).collect();
        check_argument_types(name, &expected, &arguments)?;
        Ok(signature.returns)
    }

    /// Parses the arguments after an opening parenthesis, and returns the type and position of each.
    fn arguments(&mut self) -> Result<Vec<(ValueType, usize)>, SyntaxError> {
        let mut arguments = Vec::new();
        if self.tokens.take_symbol(")")? {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression()?);
            if !self.tokens.take_symbol(",")? {
                self.expect_closing_bracket()?;
                return Ok(arguments);
            }
        }
    }

    fn expect_closing_bracket(&mut self) -> Result<(), SyntaxError> {
        let at = self.tokens.position();
        match self.tokens.next_token()? {
            Token::Symbol(")") => Ok(()),
            Token::End => Err(SyntaxError::new("unclosed parenthesis", at)),
            _ => Err(SyntaxError::new("missing operator, comma or closing parenthesis", at)),
        }
    }

    /// Whether this symbol follows the next token.
    fn is_before(&self, symbol: &str) -> Result<bool, SyntaxError> {
        let mut ahead = self.tokens;
        ahead.next_token()?;
        Ok(ahead.peek()? == Token::Symbol(symbol))
    }
}

fn is_one_of(word: &str, known: &[&str]) -> bool {
    known.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn require_arithmetic(value_type: ValueType, at: usize) -> Result<(), SyntaxError> {
    match value_type {
        ValueType::RangeVector | ValueType::StringLiteral => Err(SyntaxError::new(
            format!("operators do not accept {}", value_type.description()),
            at,
        )),
        _ => Ok(()),
    }
}

fn wrong_argument_count(name: &str, expected: usize, actual: usize, at: usize) -> SyntaxError {
    SyntaxError::new(format!("{name}() expects {expected} argument(s) and got {actual}"), at)
}

fn check_argument_types(
    name: &str,
    expected: &[ValueType],
    actual: &[(ValueType, usize)],
) -> Result<(), SyntaxError> {
    for (expected, (actual, at)) in expected.iter().zip(actual) {
        if !actual.satisfies(*expected) {
            let why = format!(
                "{name}() expects {} and got {}",
                expected.description(),
                actual.description()
            );
            return Err(SyntaxError::new(why, *at));
        }
    }
    Ok(())
}
