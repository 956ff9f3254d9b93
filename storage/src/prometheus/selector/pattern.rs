//! Regular expressions for label values, built so that no literal can be interpreted as syntax.

use std::collections::BTreeSet;

/// A regular expression (RE2) that matches a whole value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(pub(super) String);

impl Pattern {
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

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Splits names into groups whose patterns have about this maximum length.
pub fn literal_groups(names: BTreeSet<&str>, max_length: usize) -> Vec<Vec<&str>> {
    let mut groups: Vec<Vec<&str>> = Vec::new();
    let mut group_length = 0;
    for name in names {
        match groups.last_mut() {
            Some(group) if group_length + literal_length(&[name]) <= max_length => group.push(name),
            _ => {
                groups.push(vec![name]);
                group_length = 0;
            }
        }
        group_length += literal_length(&[name]);
    }
    groups
}

/// The maximum length of a pattern of these names: each dot is escaped.
pub fn literal_length(names: &[&str]) -> usize {
    names.iter().map(|name| 1 + name.len() + name.matches('.').count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_grouped_while_their_pattern_is_short() {
        const MAX_LENGTH: usize = 4096;
        let names: Vec<String> = (0..500).map(|number| format!("team-{number:03}")).collect();
        let mut wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        wanted.extend(["team-007", "team-008"]);
        wanted.reverse();
        let batches = literal_groups(wanted.into_iter().collect(), MAX_LENGTH - 4);
        assert_eq!(batches.len(), 2);
        for batch in &batches {
            let pattern = Pattern::any_literal(batch.iter().copied());
            assert!(pattern.as_str().len() <= MAX_LENGTH, "{}", pattern.as_str().len());
        }
        assert_eq!(batches.concat(), names, "each once");
        assert!(literal_groups(BTreeSet::new(), MAX_LENGTH).is_empty());
    }
}
