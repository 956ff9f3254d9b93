//! What one label of a series must be like: built by us, or as users write it between braces.

use std::{fmt, str::FromStr};

use super::{
    is_label,
    strings::{quoted, string},
};

/// What one label must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMatcher {
    label: String,
    how: MatchOperator,
    value: String,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchOperator {
    /// `=`
    Equals,
    /// `!=`
    NotEquals,
    /// `=~`
    Matches,
    /// `!~`
    NotMatches,
}

impl MatchOperator {
    /// The longer signs come first, because the shorter ones begin them.
    const SIGNS: [(&str, Self); 4] = [
        ("=~", Self::Matches),
        ("!~", Self::NotMatches),
        ("!=", Self::NotEquals),
        ("=", Self::Equals),
    ];

    fn sign(self) -> &'static str {
        let mut signs = Self::SIGNS.into_iter();
        signs.find(|(_, how)| *how == self).map_or("=", |(sign, _)| sign)
    }
}

impl LabelMatcher {
    /// Of this label.
    pub fn new(label: impl Into<String>, how: MatchOperator, value: impl Into<String>) -> Self {
        Self { label: label.into(), how, value: value.into() }
    }

    /// The label that is looked at.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Reads one of any label, the name of the metric included.
    pub(in crate::prometheus) fn written(given: &str) -> Result<Self, InvalidMatcher> {
        let wrong = |why| InvalidMatcher { given: given.to_owned(), why };
        let text = given.trim();
        let (label, rest) = if text.starts_with(['"', '\'', '`']) {
            string(text).ok_or_else(|| wrong("the quotes of its label do not end"))?
        } else {
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (label, rest) = text.split_at(end.unwrap_or(text.len()));
            if !is_label(label) {
                return Err(wrong("it does not begin with the name of a label"));
            }
            (label.to_owned(), rest)
        };
        let rest = rest.trim_start();
        let sign = MatchOperator::SIGNS
            .into_iter()
            .find_map(|(sign, how)| rest.strip_prefix(sign).map(|rest| (how, rest.trim_start())));
        let (how, rest) = sign.ok_or_else(|| wrong("its label is not followed by a comparison"))?;
        if !rest.starts_with(['"', '\'', '`']) {
            return Err(wrong(
                "its value has no quotes (a shell takes them away: put others around)",
            ));
        }
        let (value, rest) = string(rest).ok_or_else(|| wrong("its value is not quoted well"))?;
        if !rest.trim().is_empty() {
            return Err(wrong("there is more after its value: give one matcher at a time"));
        }
        Ok(Self { label, how, value })
    }
}

impl fmt::Display for LabelMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, how, value } = self;
        if is_label(label) {
            f.write_str(label)?;
        } else {
            f.write_str(&quoted(label))?;
        }
        write!(f, "{}{}", how.sign(), quoted(value))
    }
}

/// Why a matcher of a user is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the matcher {given:?} cannot be used: {why}: write LABEL=\"VALUE\", with =, !=, =~ or !~ and the quotes"
)]
pub struct InvalidMatcher {
    /// What was given.
    pub given: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl FromStr for LabelMatcher {
    type Err = InvalidMatcher;

    /// Reads one as it stands between the braces of a selector: `cluster="qa"`, `cluster=~"qa|test"`.
    fn from_str(given: &str) -> Result<Self, InvalidMatcher> {
        let read = Self::written(given)?;
        if read.label == "__name__" {
            let why = "it goes into queries of every metric, so it cannot name one";
            return Err(InvalidMatcher { given: given.to_owned(), why });
        }
        Ok(read)
    }
}

/// Matchers that go into every selector of a client: which cluster, which tenant, which replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelMatchers(Vec<LabelMatcher>);

impl LabelMatchers {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, LabelMatcher> {
        self.0.iter()
    }

    /// These and another one.
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

impl<'a> IntoIterator for &'a LabelMatchers {
    type Item = &'a LabelMatcher;
    type IntoIter = std::slice::Iter<'a, LabelMatcher>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
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
    fn matchers_of_users_are_read_or_refused_in_one_line() {
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
            assert!(error.contains("cannot be used") && !error.contains('\n'), "{error}");
        }
    }
}
