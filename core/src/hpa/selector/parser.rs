//! Parses the tokens of a label selector into requirements, and rejects invalid keys and values.

use super::lexer::{Token, tokens};
use super::{Operator, Requirement, SelectorError};

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";
const NAME_RULE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                         '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
                          must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                          regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_RULE: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                           or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used \
                           for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    next: usize,
}

/// Parses all requirements, in the order of the text.
pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: tokens(text), next: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Not => {}
            Token::End => return Ok(requirements),
            other => return Err(unexpected(other, "!, identifier, or 'end of string'")),
        }
        let requirement = parser
            .requirement()
            .map_err(|error| SelectorError(format!("unable to parse requirement: {error}")))?;
        requirements.push(requirement);
        match parser.take() {
            Token::End => return Ok(requirements),
            Token::Comma => {
                let after = parser.peek();
                if !after.is_word() && after != Token::Not {
                    return Err(unexpected(after, "identifier after ','"));
                }
            }
            other => return Err(unexpected(other, "',' or 'end of string'")),
        }
    }
}

fn unexpected(found: Token<'_>, expected: &str) -> SelectorError {
    SelectorError(format!("found '{}', expected: {expected}", found.text()))
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.next).copied().unwrap_or(Token::End)
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.next += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let is_absent = self.peek() == Token::Not;
        if is_absent {
            self.next += 1;
        }
        let key = match self.take() {
            Token::Word(key) => key,
            other => return Err(unexpected(other, "identifier")),
        };
        check_key(key, "<nil>")?;
        if is_absent {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = match self.take() {
            Token::Equals => Operator::Equals,
            Token::DoubleEquals => Operator::DoubleEquals,
            Token::NotEquals => Operator::NotEquals,
            Token::Greater => Operator::GreaterThan,
            Token::Less => Operator::LessThan,
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            other => return Err(unexpected(other, OPERATORS)),
        };
        let values = match operator {
            Operator::In | Operator::NotIn => self.list()?,
            _ => vec![self.exact_value()?],
        };
        Requirement::new(key, operator, values)
    }

    /// Parses the value after `=`, which may be missing.
    fn exact_value(&mut self) -> Result<String, SelectorError> {
        match self.peek() {
            Token::End | Token::Comma => Ok(String::new()),
            Token::Word(value) => {
                self.next += 1;
                Ok(value.to_owned())
            }
            other => Err(unexpected(other, "identifier")),
        }
    }

    /// Parses `(a, b)`. A missing value, as in `(a,,b)` or `()`, is empty.
    fn list(&mut self) -> Result<Vec<String>, SelectorError> {
        match self.take() {
            Token::Open => {}
            // Upstream's message has no comma here.
            other => return Err(SelectorError(format!("found '{}' expected: '('", other.text()))),
        }
        let mut values = Vec::new();
        loop {
            match self.take() {
                Token::Word(value) => values.push(value.to_owned()),
                Token::Comma => values.push(String::new()),
                Token::Close => {
                    values.push(String::new());
                    return Ok(values);
                }
                other => return Err(unexpected(other, "',', ')' or identifier")),
            }
            match self.peek() {
                Token::Comma => self.next += 1,
                Token::Close => {
                    self.next += 1;
                    return Ok(values);
                }
                other if values.last().is_some_and(|last| !last.is_empty()) => {
                    return Err(unexpected(other, "',' or ')'"));
                }
                _ => {}
            }
        }
    }
}

/// Checks that the key is valid for a label, and the values for the operator.
pub(super) fn check(key: &str, operator: Operator, values: &[String]) -> Result<(), SelectorError> {
    check_key(key, "key")?;
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            return Err(SelectorError(
                "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".to_owned(),
            ));
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            let list: Vec<_> = values.iter().map(|value| format!("{value:?}")).collect();
            return Err(SelectorError(format!(
                "values: Invalid value: [{}]: values set must be empty for exists and does not exist",
                list.join(",")
            )));
        }
        Operator::GreaterThan | Operator::LessThan => {
            if let Some(value) = values.iter().find(|value| value.parse::<i64>().is_err()) {
                return Err(SelectorError(format!(
                    "values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
                )));
            }
        }
        _ => {}
    }
    for (index, value) in values.iter().enumerate() {
        if let Some(problem) = value_problem(value) {
            let at = format!("values[{index}][{key}]");
            return Err(SelectorError(format!("{at}: Invalid value: {value:?}: {problem}")));
        }
    }
    Ok(())
}

fn value_problem(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!value.is_empty() && !is_name(value)).then(|| VALUE_RULE.to_owned())
}

fn check_key(key: &str, field: &str) -> Result<(), SelectorError> {
    let mut problems = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => {
            let problem = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start \
                           and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex \
                           used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS \
                           subdomain prefix and '/' (e.g. 'example.com/MyName')";
            problems.push(problem.to_owned());
            "name"
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if !is_subdomain(prefix) {
                problems.push(PREFIX_RULE.to_owned());
            }
            name
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        problems.push(NAME_RULE.to_owned());
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(SelectorError(format!("{field}: Invalid value: {key:?}: {}", problems.join("; "))))
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.chars().all(is_inner) && is_end(text.chars().next()) && is_end(text.chars().next_back())
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !part.is_empty()
                && part.chars().all(is_inner)
                && !part.starts_with('-')
                && !part.ends_with('-')
        })
}
