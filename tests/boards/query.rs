//! Parses queries of boards, after replacing Grafana's built-in variables with values.

use std::{cell::RefCell, collections::HashMap};

use promql_parser::{
    label::{MatchOp, Matcher},
    parser::{self, Expr, VectorSelector},
    util::{ExprVisitor, walk_expr},
};

/// Values for Grafana's built-in intervals, chosen so that no query contains them literally.
const GRAFANA_INTERVALS: [(&str, &str); 7] = [
    ("$__rate_interval", "677s"),
    ("$__range_ms", "21601000"),
    ("$__range_s", "21601"),
    ("$__range", "21601s"),
    ("$__interval_ms", "61000"),
    ("$__interval", "61s"),
    ("${datasource}", "datasource"),
];

/// Seconds of `$__rate_interval`.
const RATE: u64 = 677;

/// A selector with the functions and ranges around it, from the innermost outwards.
pub struct SelectorUse {
    pub selector: VectorSelector,
    /// The range in seconds, if it is a range selector.
    pub range: Option<u64>,
    /// The function that it is a direct argument of.
    pub function: Option<&'static str>,
}

/// Parses a query, with a cache: a test parses each of them many times, and the parser is slow in unoptimized builds.
pub fn parse(text: &str) -> Result<Expr, String> {
    thread_local! {
        static PARSED: RefCell<HashMap<String, Result<Expr, String>>> = RefCell::default();
    }
    if let Some(known) = PARSED.with_borrow(|parsed| parsed.get(text).cloned()) {
        return known;
    }
    let read = read(text);
    PARSED.with_borrow_mut(|parsed| parsed.insert(text.to_owned(), read.clone()));
    read
}

fn read(text: &str) -> Result<Expr, String> {
    let filled = GRAFANA_INTERVALS
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    parser::parse(&filled)
}

/// All selectors of a query.
pub fn selectors(expr: &Expr) -> Vec<SelectorUse> {
    let mut found = SelectorCollector(Vec::new());
    let Ok(_) = walk_expr(&mut found, expr);
    found.0
}

struct SelectorCollector(Vec<SelectorUse>);

impl ExprVisitor for SelectorCollector {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        match expr {
            // The walk visits the arguments next and must not report them twice.
            Expr::Call(call) => {
                for argument in &call.args.args {
                    if let Expr::MatrixSelector(matrix) = &**argument {
                        self.0.push(SelectorUse {
                            selector: matrix.vs.clone(),
                            range: Some(matrix.range.as_secs()),
                            function: Some(call.func.name),
                        });
                    }
                }
            }
            Expr::VectorSelector(selector) => {
                self.0.push(SelectorUse {
                    selector: selector.clone(),
                    range: None,
                    function: None,
                });
            }
            _ => {}
        }
        Ok(true)
    }
}

impl SelectorUse {
    /// The name of the series.
    pub fn name(&self) -> &str {
        self.selector.name.as_deref().unwrap_or_default()
    }

    /// The matchers for this label.
    pub fn matchers<'a>(&'a self, label: &'a str) -> impl Iterator<Item = &'a Matcher> {
        self.selector.matchers.matchers.iter().filter(move |matcher| matcher.name == label)
    }

    /// Whether it is filtered by the variable of this name.
    pub fn is_narrowed_by(&self, variable: &str) -> bool {
        let wanted = format!("${variable}");
        self.matchers(variable)
            .any(|matcher| matches!(matcher.op, MatchOp::Re(_)) && matcher.value == wanted)
    }

    /// Whether its range is `$__rate_interval`.
    pub fn has_rate_interval(&self) -> bool {
        self.range == Some(RATE)
    }
}

/// All labels that a query groups or matches by.
pub fn grouped_by(expr: &Expr) -> Vec<String> {
    let mut labels = GroupingCollector(Vec::new());
    let Ok(_) = walk_expr(&mut labels, expr);
    labels.0
}

struct GroupingCollector(Vec<String>);

impl ExprVisitor for GroupingCollector {
    type Error = std::convert::Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Self::Error> {
        let modifier = match expr {
            Expr::Aggregate(aggregate) => aggregate.modifier.as_ref(),
            Expr::Binary(binary) => {
                binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref())
            }
            _ => None,
        };
        if let Some(modifier) = modifier {
            self.0.extend(modifier.labels().labels.iter().cloned());
        }
        Ok(true)
    }
}
