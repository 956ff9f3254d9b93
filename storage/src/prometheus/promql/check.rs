//! Checks queries with the parser of the crate promql-parser, which has the grammar of Prometheus: that they are valid, that
//! they return numbers, and which selectors they have.
//!
//! A user with write access to an object must not be able to crash the process that validates it. The parser panics on
//! durations that are too large and recurses over what it has parsed, so [`ScannedQuery`] decides what it may read.

use std::sync::Once;

use promql_parser::{
    label::{MatchOp, Matcher},
    parser::{self, Expr, Function, VectorSelector, register_extra_functions, value::ValueType},
    util::{ExprVisitor, walk_expr},
};

use super::selector_scan::{InvalidQuery, ScannedQuery};
use crate::{
    error_text::one_line,
    prometheus::selector::{LabelMatcher, MatchOperator},
};

/// Maximum nesting depth, to limit the use of the stack.
const MAX_DEPTH: usize = 100;
/// Longer queries are not parsed, to limit the use of the stack and the time, which is quadratic.
const MAX_TOKENS: usize = 1000;
/// Maximum number of expressions to parse for the position of an error.
const MAX_SEARCHED_GROUPS: usize = 20;
/// Prefixes of parser errors that a server may not report: servers have more functions, and Go's regular expressions.
const UNKNOWN: [&str; 2] = ["unknown function", "illegal regex"];

/// Parses a query that returns numbers. `None` if only a server can tell whether it is valid.
pub(super) fn parse(
    query: &str,
    scanned: &ScannedQuery,
) -> Result<Option<Selectors>, InvalidQuery> {
    let invalid = |why: &str, at| Err(InvalidQuery::at_byte(query, why, at));
    if scanned.depth > MAX_DEPTH {
        return invalid("parentheses are nested too deeply", 0);
    }
    if scanned.is_extended || scanned.token_count > MAX_TOKENS {
        return Ok(None);
    }
    match read(query) {
        Ok(expr) => match expr.value_type() {
            ValueType::Vector | ValueType::Scalar => {
                let mut selectors = Selectors::default();
                let Ok(_) = walk_expr(&mut selectors, &expr);
                Ok(Some(selectors))
            }
            ValueType::Matrix => {
                let why = "the result is a range vector; wrap it in a function such as rate()";
                invalid(why, 0)
            }
            ValueType::String => invalid("the result is a string and not a number", 0),
        },
        Err(why) if UNKNOWN.iter().any(|unknown| why.starts_with(unknown)) => Ok(None),
        Err(why) => {
            // The parser does not report positions: the innermost expression that it rejects has the error.
            let mut groups = scanned.groups.iter().take(MAX_SEARCHED_GROUPS);
            let group = groups
                .find(|group| query.get((*group).clone()).is_some_and(|text| read(text).is_err()));
            let at = group.map_or(query.len() - query.trim_start().len(), |group| group.start);
            let why = why
                .replace("invalid promql query", "syntax error in the expression")
                .replace("expected type matrix", "expected a range vector such as x[5m]");
            invalid(&one_line(&why), at)
        }
    }
}

/// A matcher as the parser has read it.
pub(super) fn label_matcher(matcher: &Matcher) -> LabelMatcher {
    let operator = match matcher.op {
        MatchOp::Equal => MatchOperator::Equals,
        MatchOp::NotEqual => MatchOperator::NotEquals,
        MatchOp::Re(_) => MatchOperator::Matches,
        MatchOp::NotRe(_) => MatchOperator::NotMatches,
    };
    LabelMatcher::new(&*matcher.name, operator, &*matcher.value)
}

/// The selectors of a query, in the order of the text.
#[derive(Debug, Default)]
pub(super) struct Selectors {
    pub(super) found: Vec<VectorSelector>,
    /// Whether it calls `info()`, which reads series that no selector names.
    pub(super) calls_info: bool,
}

impl ExprVisitor for Selectors {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        match expr {
            Expr::VectorSelector(selector) => self.found.push(selector.clone()),
            Expr::MatrixSelector(matrix) => self.found.push(matrix.vs.clone()),
            Expr::Call(call) => self.calls_info |= call.func.name == "info",
            // The walk leaves out the parameter, as in `topk(scalar(x), y)`.
            Expr::Aggregate(aggregate) => {
                if let Some(parameter) = &aggregate.param {
                    walk_expr(self, parameter)?;
                }
            }
            _ => {}
        }
        Ok(true)
    }
}

fn read(query: &str) -> Result<Expr, String> {
    static RELEASE_2: Once = Once::new();
    RELEASE_2.call_once(|| {
        // Release 3 has it by another name. This fails only for the name of a function that the parser has.
        let parameters = vec![ValueType::Matrix, ValueType::Scalar, ValueType::Scalar];
        let function = Function::new("holt_winters", parameters, 0, ValueType::Vector, false);
        let _ = register_extra_functions(vec![function]);
    });
    parser::parse(query)
}
