//! Series selectors, built from their parts so that no value can be interpreted as syntax.

mod matcher;
mod pattern;
mod strings;

use std::fmt;

pub(super) use self::strings::quoted;
pub use self::{
    matcher::{InvalidMatcher, LabelMatcher, LabelMatchers, MatchOperator},
    pattern::{Pattern, literal_groups, literal_length},
};

/// A selector: a metric and label matchers. Prints as PromQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    metric: Option<String>,
    matchers: Vec<LabelMatcher>,
}

impl Selector {
    pub fn metric(name: impl Into<String>) -> Self {
        Self { metric: Some(name.into()), matchers: Vec::new() }
    }

    /// Selects series of any metric. Servers reject it without a matcher for a non-empty value.
    pub fn any_metric() -> Self {
        Self { metric: None, matchers: Vec::new() }
    }

    /// Restricts to series whose label has this value. An empty value also matches a missing label.
    #[must_use]
    pub fn equals(self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(LabelMatcher::new(label, MatchOperator::Equals, value))
    }

    #[must_use]
    pub(super) fn equals_if_set(self, label: &str, value: Option<&String>) -> Self {
        match value {
            Some(value) => self.equals(label, value),
            None => self,
        }
    }

    /// Restricts to series whose label has one of these values.
    #[must_use]
    pub fn equals_any(self, label: impl Into<String>, values: &[&str]) -> Self {
        match values {
            [one] => self.equals(label, *one),
            several => self.matches(label, Pattern::any_literal(several.iter().copied())),
        }
    }

    /// Restricts to series whose label does not have this value.
    #[must_use]
    pub fn not_equals(self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(LabelMatcher::new(label, MatchOperator::NotEquals, value))
    }

    /// Restricts to series whose label matches the whole pattern.
    #[must_use]
    pub fn matches(self, label: impl Into<String>, pattern: Pattern) -> Self {
        self.with(LabelMatcher::new(label, MatchOperator::Matches, pattern.0))
    }

    #[must_use]
    pub fn with(mut self, matcher: LabelMatcher) -> Self {
        self.matchers.push(matcher);
        self
    }

    #[must_use]
    pub fn with_all(mut self, matchers: &LabelMatchers) -> Self {
        self.matchers.extend(matchers.iter().cloned());
        self
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (plain, other) = match &self.metric {
            Some(name) if is_metric(name) => (name.as_str(), None),
            // Release 2 supports names with other characters only in this form.
            Some(name) => ("", Some(LabelMatcher::new("__name__", MatchOperator::Equals, name))),
            None => ("", None),
        };
        f.write_str(plain)?;
        let matchers: LabelMatchers = other.into_iter().chain(self.matchers.clone()).collect();
        if !plain.is_empty() && matchers.is_empty() {
            return Ok(());
        }
        write!(f, "{{{matchers}}}")
    }
}

pub fn is_label(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_metric(name: &str) -> bool {
    // PromQL accepts its keywords as metrics only in some places.
    const KEYWORDS: [&str; 14] = [
        "inf",
        "nan",
        "by",
        "without",
        "on",
        "ignoring",
        "bool",
        "offset",
        "and",
        "or",
        "unless",
        "atan2",
        "group_left",
        "group_right",
    ];
    is_label(&name.replace(':', "_")) && !KEYWORDS.contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_printed_as_promql() {
        let matchers: LabelMatchers =
            [r#"cluster="qa""#.parse().expect("one")].into_iter().collect();
        let pods = Pattern::any_of([
            Pattern::literal("web.1-").then(&Pattern::regex("[a-z0-9]+")),
            Pattern::literal("db-0"),
        ]);
        let selector = Selector::metric("container_memory_working_set_bytes")
            .equals("namespace", "a\"b\\c\nd")
            .matches("pod", pods)
            .not_equals("container", "")
            .with_all(&matchers);
        assert_eq!(
            selector.to_string(),
            "container_memory_working_set_bytes{namespace=\"a\\\"b\\\\c\\nd\",\
             pod=~\"(?:web\\\\.1-[a-z0-9]+|db-0)\",container!=\"\",cluster=\"qa\"}"
        );
        assert_eq!(Selector::metric("up").to_string(), "up");
        assert_eq!(Selector::any_metric().equals("job", "x").to_string(), r#"{job="x"}"#);
        assert_eq!(Selector::metric("a.b").to_string(), r#"{__name__="a.b"}"#);
    }
}
