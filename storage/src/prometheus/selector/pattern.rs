//! What a value must look like as a whole: regular expressions, in which nothing of a text becomes syntax.

/// A regular expression (RE2) for a whole value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub(super) String);

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
    pub fn any_literal<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
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
