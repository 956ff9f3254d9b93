//! Globs for names and the values of labels: `*` matches any text, `?` one character, everything else itself.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Glob(Box<str>);

impl Glob {
    /// A glob; every text is one.
    pub fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        // After a mismatch only the last `*` takes one character more: an earlier one could not reach further
        // than it. So the time is bounded by the product of both lengths.
        let (mut pattern, mut rest) = (&*self.0, text);
        let mut retry: Option<(&str, &str)> = None;
        loop {
            let mut next = pattern.chars();
            match (next.next(), rest.chars().next()) {
                (Some('*'), _) => {
                    pattern = next.as_str();
                    retry = Some((pattern, rest));
                    continue;
                }
                (None, None) => return true,
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    (pattern, rest) = (next.as_str(), &rest[found.len_utf8()..]);
                    continue;
                }
                _ => {}
            }
            let Some((after_star, from)) = retry else { return false };
            let mut shorter = from.chars();
            if shorter.next().is_none() {
                return false;
            }
            (pattern, rest) = (after_star, shorter.as_str());
            retry = Some((after_star, rest));
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, text, matches) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("m6i.*", "m6i.large", true),
            ("m6i.*", "m6id.large", false),
            ("*.large", "m6i.large", true),
            ("*.large", "m6i.xlarge", false),
            ("m?i.large", "m6i.large", true),
            ("m?i.large", "mi.large", false),
            ("?", "é", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("team-*", "team-", true),
            ("team", "team-a", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(text), matches, "{pattern:?} on {text:?}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!Glob::new(&pattern).matches(&"a".repeat(4000)));
    }

    /// The definition, in exponential time.
    fn matches_by_definition(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                (0..=text.len()).any(|taken| matches_by_definition(rest, &text[taken..]))
            }
            (['?', rest @ ..], [_, others @ ..]) => matches_by_definition(rest, others),
            ([wanted, rest @ ..], [found, others @ ..]) => {
                wanted == found && matches_by_definition(rest, others)
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn globs_match_as_defined(pattern in "[ab*?]{0,7}", text in "[ab]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = matches_by_definition(&chars(&pattern), &chars(&text));
            prop_assert_eq!(Glob::new(&pattern).matches(&text), expected);
        }
    }
}
