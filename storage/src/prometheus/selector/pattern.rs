//! Regular expressions for label values, built so that no literal can be interpreted as syntax.

/// A regular expression (RE2) that matches a whole value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub(super) String);

impl Pattern {
    /// A pattern from a regular expression.
    pub fn regex(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Matches exactly this text.
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

    /// Matches any of these patterns. An empty list matches nothing, not even a missing label.
    pub fn any_of(patterns: impl IntoIterator<Item = Self>) -> Self {
        let patterns: Vec<_> = patterns.into_iter().map(|pattern| pattern.0).collect();
        match patterns.as_slice() {
            [] => Self(r"[^\x00-\x{10FFFF}]".to_owned()),
            [one] => Self(one.clone()),
            several => Self(format!("(?:{})", several.join("|"))),
        }
    }

    /// Matches any of these texts.
    pub fn any_literal<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::any_of(texts.into_iter().map(Self::literal))
    }

    #[must_use]
    pub fn then(mut self, next: &Self) -> Self {
        self.0.push_str(&next.0);
        self
    }

    /// The regular expression.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
