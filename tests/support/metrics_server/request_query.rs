//! Parses requests: label selectors and query parameters.

use std::collections::BTreeMap;

/// A label selector in the syntax of a query: `a=b,c!=d,e in (f,g),!h`.
#[derive(Debug, Default)]
pub struct Selector(Vec<Term>);

#[derive(Debug)]
enum Term {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

// === impl Selector ===

impl Selector {
    /// Parses a selector; an empty text selects everything.
    pub fn parse(text: &str) -> Self {
        let mut terms = Vec::new();
        let mut depth = 0;
        let comma_outside = |letter: char| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            letter == ',' && depth == 0
        };
        for term in text.split(comma_outside).map(str::trim).filter(|term| !term.is_empty()) {
            terms.push(Term::parse(term));
        }
        Self(terms)
    }

    /// Whether the selector matches these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| match term {
            Term::In(label, values) => {
                labels.get(label).is_some_and(|value| values.contains(value))
            }
            Term::NotIn(label, values) => {
                labels.get(label).is_none_or(|value| !values.contains(value))
            }
            Term::Exists(label) => labels.contains_key(label),
            Term::Absent(label) => !labels.contains_key(label),
        })
    }
}

// === impl Term ===

impl Term {
    fn parse(term: &str) -> Self {
        let one =
            |(label, value): (&str, &str)| (label.trim().to_owned(), vec![value.trim().to_owned()]);
        let many = |(label, values): (&str, &str)| {
            let values = values.trim().trim_matches(['(', ')']).split(',');
            (label.trim().to_owned(), values.map(|value| value.trim().to_owned()).collect())
        };
        if let Some((label, values)) = term.split_once(" notin ").map(many) {
            Self::NotIn(label, values)
        } else if let Some((label, values)) = term.split_once(" in ").map(many) {
            Self::In(label, values)
        } else if let Some((label, values)) = term.split_once("!=").map(one) {
            Self::NotIn(label, values)
        } else if let Some((label, values)) =
            term.split_once("==").or_else(|| term.split_once('=')).map(one)
        {
            Self::In(label, values)
        } else if let Some(label) = term.strip_prefix('!') {
            Self::Absent(label.to_owned())
        } else {
            Self::Exists(term.to_owned())
        }
    }
}

/// The value of a query parameter.
pub fn parameter(query: &str, name: &str) -> String {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.into_iter().find(|(key, _)| *key == name);
    found.map(|(_, value)| decode(value)).unwrap_or_default()
}

/// Percent-decodes a text.
pub fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let code = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        if let Some(code) = code {
            bytes.push(code);
            rest = &tail[2..];
        } else {
            bytes.push(if *first == b'+' { b' ' } else { *first });
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn selectors_select_like_the_api_server() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    for (text, selected) in [
        ("", true),
        ("app=web", true),
        ("app!=web", false),
        ("app in (db, web),!tier", true),
        ("app notin (web)", false),
        ("tier", false),
        ("app==web,tier!=x", true),
    ] {
        assert_eq!(Selector::parse(text).matches(&labels), selected, "{text}");
    }
}
