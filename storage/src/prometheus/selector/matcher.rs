//! Label matchers: built by us, or parsed from a user's input.

use std::{fmt, str::FromStr};

use super::{
    is_label,
    strings::{quoted, string},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMatcher {
    pub label: String,
    operator: MatchOperator,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchOperator {
    Equals,
    NotEquals,
    Matches,
    NotMatches,
}

impl MatchOperator {
    /// Longer operators come first, because shorter ones are their prefixes.
    const OPERATORS: [(&str, Self); 4] = [
        ("=~", Self::Matches),
        ("!~", Self::NotMatches),
        ("!=", Self::NotEquals),
        ("=", Self::Equals),
    ];

    fn sign(self) -> &'static str {
        let mut operators = Self::OPERATORS.into_iter();
        operators.find(|(_, operator)| *operator == self).map_or("=", |(text, _)| text)
    }
}

impl LabelMatcher {
    pub fn new(
        label: impl Into<String>,
        operator: MatchOperator,
        value: impl Into<String>,
    ) -> Self {
        Self { label: label.into(), operator, value: value.into() }
    }
}

impl fmt::Display for LabelMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, operator, value } = self;
        if is_label(label) {
            f.write_str(label)?;
        } else {
            f.write_str(&quoted(label))?;
        }
        write!(f, "{}{}", operator.sign(), quoted(value))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid matcher {0}: write LABEL=\"VALUE\", with =, !=, =~ or !~ and the quotes")]
pub struct InvalidMatcher(String);

impl FromStr for LabelMatcher {
    type Err = InvalidMatcher;

    /// Parses a matcher as in the braces of a selector: `cluster="qa"`, `cluster=~"qa|test"`.
    fn from_str(given: &str) -> Result<Self, InvalidMatcher> {
        let invalid = |why: &str| InvalidMatcher(format!("{given:?}: {why}"));
        let text = given.trim();
        let (label, rest) = if text.starts_with(['"', '\'', '`']) {
            string(text).ok_or_else(|| invalid("the quotes of its label are not closed"))?
        } else {
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (label, rest) = text.split_at(end.unwrap_or(text.len()));
            if !is_label(label) {
                return Err(invalid("it does not start with a label name"));
            }
            (label.to_owned(), rest)
        };
        let rest = rest.trim_start();
        let found = MatchOperator::OPERATORS.into_iter().find_map(|(text, operator)| {
            rest.strip_prefix(text).map(|rest| (operator, rest.trim_start()))
        });
        let (operator, rest) =
            found.ok_or_else(|| invalid("its label is not followed by an operator"))?;
        if !rest.starts_with(['"', '\'', '`']) {
            return Err(invalid(
                "its value has no quotes (the shell removes them: add outer quotes)",
            ));
        }
        let (value, rest) =
            string(rest).ok_or_else(|| invalid("its value is not a valid quoted string"))?;
        if !rest.trim().is_empty() {
            return Err(invalid("there is text after its value: pass one matcher at a time"));
        }
        if label == "__name__" {
            return Err(invalid("it applies to queries of every metric, so it cannot select one"));
        }
        Ok(Self { label, operator, value })
    }
}

/// Matchers for every selector of a client, for example of a cluster, tenant or replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelMatchers(Vec<LabelMatcher>);

impl LabelMatchers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &LabelMatcher> {
        self.0.iter()
    }

    #[must_use]
    pub fn with(&self, other: LabelMatcher) -> Self {
        self.iter().cloned().chain([other]).collect()
    }
}

impl FromIterator<LabelMatcher> for LabelMatchers {
    fn from_iter<I: IntoIterator<Item = LabelMatcher>>(matchers: I) -> Self {
        Self(matchers.into_iter().collect())
    }
}

impl fmt::Display for LabelMatchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, matcher) in self.iter().enumerate() {
            write!(f, "{}{matcher}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_of_users_are_parsed_or_rejected_in_one_line() {
        for (given, printed) in [
            (r#"cluster="qa""#, r#"cluster="qa""#),
            (r#" cluster != 'q"a' "#, r#"cluster!="q\"a""#),
            (r"cluster=~`a\.b|c`", r#"cluster=~"a\\.b|c""#),
            (r#"cluster!~"a\\.b""#, r#"cluster!~"a\\.b""#),
            (r#"cluster="\u00fc\x41""#, r#"cluster="üA""#),
            (r#"cluster="a,b}""#, r#"cluster="a,b}""#),
            (r#""my.label"="x""#, r#""my.label"="x""#),
            (r#"cluster="""#, r#"cluster="""#),
        ] {
            let read = given.parse::<LabelMatcher>().map(|matcher| matcher.to_string());
            assert_eq!(read.as_deref(), Ok(printed), "{given}");
        }
        for given in [
            "",
            "cluster",
            "cluster=qa",
            "cluster=\"qa",
            "cluster==\"qa\"",
            "1cluster=\"qa\"",
            "cluster=\"qa\",zone=\"b\"",
            "cluster=\"qa\"}",
            "{cluster=\"qa\"}",
            "cluster=\"\\q\"",
            "cluster=\"\\xff\"",
            "__name__=\"up\"",
        ] {
            let error = given.parse::<LabelMatcher>().expect_err(given).to_string();
            assert!(error.contains("invalid matcher") && !error.contains('\n'), "{error}");
        }
    }
}
