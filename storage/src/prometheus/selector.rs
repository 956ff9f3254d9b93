//! Selectors of series: built from their parts, so that no value can become syntax.

use std::{fmt, fmt::Write as _, str::FromStr};

/// Which series: a metric and what its labels must be like. Printed as PromQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    metric: Option<String>,
    matchers: Vec<Matcher>,
}

impl Selector {
    /// Of the series of this metric.
    pub fn metric(name: impl Into<String>) -> Self {
        Self { metric: Some(name.into()), matchers: Vec::new() }
    }

    /// Of series of any metric. A server refuses it without a matcher that asks for something.
    pub fn any() -> Self {
        Self { metric: None, matchers: Vec::new() }
    }

    /// Those whose label has this value; the empty one also means that it is not there.
    #[must_use]
    pub fn equals(self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(Matcher::new(label, Match::Equals, value))
    }

    /// Those whose label has another value, or that do not have it.
    #[must_use]
    pub fn differs(self, label: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(Matcher::new(label, Match::Differs, value))
    }

    /// Those whose label fits the pattern, from its first character to its last.
    #[must_use]
    pub fn matches(self, label: impl Into<String>, pattern: Pattern) -> Self {
        self.with(Matcher::new(label, Match::Fits, pattern.0))
    }

    /// Those whose label does not fit the pattern.
    #[must_use]
    pub fn lacks(self, label: impl Into<String>, pattern: Pattern) -> Self {
        self.with(Matcher::new(label, Match::Misfits, pattern.0))
    }

    /// Those that this matcher lets through too.
    #[must_use]
    pub fn with(mut self, matcher: Matcher) -> Self {
        self.matchers.push(matcher);
        self
    }

    /// Those that all of these let through too.
    #[must_use]
    pub fn all(mut self, matchers: &Matchers) -> Self {
        self.matchers.extend(matchers.0.iter().cloned());
        self
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.metric.as_deref().filter(|name| is_metric(name));
        f.write_str(plain.unwrap_or_default())?;
        // A name with other characters is known to release 2 only in this form.
        let odd = self.metric.as_deref().filter(|_| plain.is_none());
        let odd = odd.map(|name| Matcher::new("__name__", Match::Equals, name));
        if plain.is_some() && self.matchers.is_empty() {
            return Ok(());
        }
        f.write_str("{")?;
        for (at, matcher) in odd.iter().chain(&self.matchers).enumerate() {
            write!(f, "{}{matcher}", if at == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

/// What one label must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    label: String,
    how: Match,
    value: String,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// `=`
    Equals,
    /// `!=`
    Differs,
    /// `=~`
    Fits,
    /// `!~`
    Misfits,
}

impl Match {
    /// The longer signs come first, because the shorter ones begin them.
    const SIGNS: [(&str, Self); 4] =
        [("=~", Self::Fits), ("!~", Self::Misfits), ("!=", Self::Differs), ("=", Self::Equals)];

    fn sign(self) -> &'static str {
        let mut signs = Self::SIGNS.into_iter();
        signs.find(|(_, how)| *how == self).map_or("=", |(sign, _)| sign)
    }
}

impl Matcher {
    /// Of this label.
    pub fn new(label: impl Into<String>, how: Match, value: impl Into<String>) -> Self {
        Self { label: label.into(), how, value: value.into() }
    }

    /// The label that is looked at.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl fmt::Display for Matcher {
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
pub struct NoMatcher {
    /// What was given.
    pub given: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl FromStr for Matcher {
    type Err = NoMatcher;

    /// Reads one as it stands between the braces of a selector: `cluster="qa"`, `cluster=~"qa|test"`.
    fn from_str(given: &str) -> Result<Self, NoMatcher> {
        let wrong = |why| NoMatcher { given: given.to_owned(), why };
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
        if label == "__name__" {
            return Err(wrong("it goes into queries of every metric, so it cannot name one"));
        }
        let rest = rest.trim_start();
        let sign = Match::SIGNS
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

/// Matchers that go into every selector of a client: which cluster, which tenant, which replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matchers(Vec<Matcher>);

impl Matchers {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> std::slice::Iter<'_, Matcher> {
        self.0.iter()
    }
}

impl FromIterator<Matcher> for Matchers {
    fn from_iter<I: IntoIterator<Item = Matcher>>(matchers: I) -> Self {
        Self(matchers.into_iter().collect())
    }
}

impl<'a> IntoIterator for &'a Matchers {
    type Item = &'a Matcher;
    type IntoIter = std::slice::Iter<'a, Matcher>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Matchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, matcher) in self.iter().enumerate() {
            write!(f, "{}{matcher}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A regular expression (RE2) for a whole value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// One that was written as such.
    pub fn regex(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Exactly this text, whatever is in it.
    pub fn literal(text: &str) -> Self {
        let mut pattern = String::with_capacity(text.len());
        for c in text.chars() {
            if r"\.+*?()|[]{}^$".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        Self(pattern)
    }

    /// One of these. Of none nothing fits, not even a label that is not there.
    pub fn any_of(patterns: impl IntoIterator<Item = Self>) -> Self {
        let patterns: Vec<_> = patterns.into_iter().map(|pattern| pattern.0).collect();
        match patterns.as_slice() {
            [] => Self(r"[^\x00-\x{10FFFF}]".to_owned()),
            [one] => Self(one.clone()),
            several => Self(format!("(?:{})", several.join("|"))),
        }
    }

    /// Exactly one of these texts.
    pub fn one_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::any_of(texts.into_iter().map(Self::literal))
    }

    /// This and then that.
    #[must_use]
    pub fn then(mut self, next: &Self) -> Self {
        self.0.push_str(&next.0);
        self
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

pub(super) fn is_label(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_metric(name: &str) -> bool {
    // Words that PromQL knows are metrics to it only in some places.
    const WORDS: [&str; 14] = [
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
    is_label(&name.replace(':', "_")) && !WORDS.contains(&name.to_ascii_lowercase().as_str())
}

/// A text as PromQL reads it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                // Writing to a string does not fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The string that a text begins with, and the rest. Strings are Go's: two kinds of quotes with escapes, one without.
fn string(text: &str) -> Option<(String, &str)> {
    let mut chars = text.chars();
    let quote = chars.next()?;
    let mut read = String::new();
    loop {
        let c = chars.next()?;
        if c == quote {
            return Some((read, chars.as_str()));
        }
        if c != '\\' || quote == '`' {
            if c == '\n' && quote != '`' {
                return None;
            }
            read.push(c);
            continue;
        }
        let digits = match chars.next()? {
            'a' => '\u{7}'.into(),
            'b' => '\u{8}'.into(),
            'f' => '\u{c}'.into(),
            'n' => '\n'.into(),
            'r' => '\r'.into(),
            't' => '\t'.into(),
            'v' => '\u{b}'.into(),
            '\\' => '\\'.into(),
            c if c == quote => c.into(),
            'x' => Escape::Digits(2),
            'u' => Escape::Digits(4),
            'U' => Escape::Digits(8),
            _ => return None,
        };
        match digits {
            Escape::Is(c) => read.push(c),
            Escape::Digits(count) => {
                let digits = chars.as_str().get(..count)?;
                let code = u32::from_str_radix(digits, 16).ok()?;
                // Above that `\x` means half a character.
                read.push(char::from_u32(code).filter(|_| count > 2 || code < 0x80)?);
                chars = chars.as_str()[count..].chars();
            }
        }
    }
}

enum Escape {
    Is(char),
    Digits(usize),
}

impl From<char> for Escape {
    fn from(c: char) -> Self {
        Self::Is(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_printed_as_promql() {
        let matchers: Matchers = [r#"cluster="qa""#.parse().expect("one")].into_iter().collect();
        let pods = Pattern::any_of([
            Pattern::literal("web.1-").then(&Pattern::regex("[a-z0-9]+")),
            Pattern::literal("db-0"),
        ]);
        let selector = Selector::metric("container_memory_working_set_bytes")
            .equals("namespace", "a\"b\\c\nd")
            .matches("pod", pods)
            .differs("container", "")
            .lacks("id", Pattern::one_of(["/", "/kubepods"]))
            .all(&matchers);
        assert_eq!(
            selector.to_string(),
            "container_memory_working_set_bytes{namespace=\"a\\\"b\\\\c\\nd\",\
             pod=~\"(?:web\\\\.1-[a-z0-9]+|db-0)\",container!=\"\",id!~\"(?:/|/kubepods)\",cluster=\"qa\"}"
        );
        assert_eq!(Selector::metric("up").to_string(), "up");
        assert_eq!(Selector::any().equals("job", "x").to_string(), r#"{job="x"}"#);
        assert_eq!(Selector::metric("a.b").to_string(), r#"{__name__="a.b"}"#);
    }

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
            let read = given.parse::<Matcher>().map(|matcher| matcher.to_string());
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
            let error = given.parse::<Matcher>().expect_err(given).to_string();
            assert!(error.contains("cannot be used") && !error.contains('\n'), "{error}");
        }
    }
}
