//! Reads requirements, as text and as objects have them, and makes their canonical text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use thiserror::Error;

const MAX_NAME_LENGTH: usize = 63;
const MAX_PREFIX_LENGTH: usize = 253;

/// Why something is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// The key of a requirement.
    #[error(
        "{0:?} is not a label key: it is a name of at most 63 letters, digits, '-', '_' and '.', with a DNS name and '/' before it or not"
    )]
    Key(String),
    /// The value of a requirement.
    #[error(
        "{value:?} is not a label value for {key}: it is at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    )]
    Value {
        /// The key that it was given for.
        key: String,
        /// What was given.
        value: String,
    },
    /// An operator of a `matchExpressions` entry that the API does not have, or a word in its place.
    #[error(
        "{operator:?} is not an operator of label selectors for {key}: write In, NotIn, Exists or DoesNotExist"
    )]
    Operator {
        /// The key that it was given for.
        key: String,
        /// What was given.
        operator: String,
    },
    /// Values where there must be none, or none where there must be some.
    #[error(
        "operator {operator} on {key} has {count} values: In and NotIn need one or more, Exists and DoesNotExist none"
    )]
    Values {
        /// The key that it was given for.
        key: String,
        /// The operator.
        operator: String,
        /// How many values it came with.
        count: usize,
    },
    /// `>` or `<` before something that is no integer.
    #[error("{value:?} is not an integer to compare {key} with")]
    Integer {
        /// The key that it was given for.
        key: String,
        /// What was given.
        value: String,
    },
    /// Brackets that do not match.
    #[error("the brackets in {0:?} do not match: a list of values is written (a,b)")]
    Brackets(String),
}

/// One requirement in the text form, as pair of its key and its canonical text.
pub(super) fn parse_requirement(text: &str) -> Result<(String, String), SelectorError> {
    let text = text.trim();
    if let Some(key) = text.strip_prefix('!') {
        let key = check_key(key.trim())?;
        return Ok((key.to_owned(), format!("!{key}")));
    }
    if let Some((head, list)) = text.split_once('(') {
        let values = list
            .strip_suffix(')')
            .ok_or_else(|| SelectorError::Brackets(text.to_owned()))?
            .split(',')
            .map(str::trim);
        let mut words = head.split_whitespace();
        let key = check_key(words.next().unwrap_or_default())?;
        return match (words.next().unwrap_or_default(), words.next()) {
            ("in", None) => one_of(key, values, ""),
            ("notin", None) => one_of(key, values, "not"),
            (other, _) => {
                Err(SelectorError::Operator { key: key.to_owned(), operator: other.to_owned() })
            }
        };
    }
    let Some(at) = text.find(['=', '!', '>', '<']) else {
        let key = check_key(text)?;
        return Ok((key.to_owned(), key.to_owned()));
    };
    let (key, rest) = (check_key(text[..at].trim())?, &text[at..]);
    if let Some(value) = rest.strip_prefix("!=") {
        return one_of(key, [value.trim()], "not");
    }
    if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
        return one_of(key, [value.trim()], "");
    }
    let (sign, bound) = rest.split_at(1);
    match (sign, bound.trim().parse::<i64>()) {
        (">" | "<", Ok(bound)) => Ok((key.to_owned(), format!("{key}{sign}{bound}"))),
        _ => Err(SelectorError::Integer { key: key.to_owned(), value: bound.trim().to_owned() }),
    }
}

/// The same of a requirement as objects have them.
pub(super) fn convert_expression(
    of: &LabelSelectorRequirement,
) -> Result<(String, String), SelectorError> {
    let key = check_key(&of.key)?;
    let values = of.values.as_deref().unwrap_or_default();
    let words = || values.iter().map(String::as_str);
    match (of.operator.as_str(), values.is_empty()) {
        ("In", false) => one_of(key, words(), ""),
        ("NotIn", false) => one_of(key, words(), "not"),
        ("Exists", true) => Ok((key.to_owned(), key.to_owned())),
        ("DoesNotExist", true) => Ok((key.to_owned(), format!("!{key}"))),
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => Err(SelectorError::Values {
            key: key.to_owned(),
            operator: of.operator.clone(),
            count: values.len(),
        }),
        _ => Err(SelectorError::Operator { key: key.to_owned(), operator: of.operator.clone() }),
    }
}

/// The text that is true for these values, or with `not` for all others: the short form when there is one value.
pub(super) fn one_of<'a>(
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
    not: &str,
) -> Result<(String, String), SelectorError> {
    let key = check_key(key)?;
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    if let Some(odd) = values.iter().find(|value| !value.is_empty() && !is_name(value)) {
        return Err(SelectorError::Value { key: key.to_owned(), value: (*odd).to_owned() });
    }
    let text = match (values.as_slice(), not) {
        ([one], "") => format!("{key}={one}"),
        ([one], _) => format!("{key}!={one}"),
        (many, _) => format!("{key} {not}in ({})", many.join(",")),
    };
    Ok((key.to_owned(), text))
}

fn check_key(key: &str) -> Result<&str, SelectorError> {
    let valid = match key.split_once('/') {
        Some((prefix, name)) => is_domain(prefix) && is_name(name),
        None => is_name(key),
    };
    if valid { Ok(key) } else { Err(SelectorError::Key(key.to_owned())) }
}

fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_LENGTH
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_domain(text: &str) -> bool {
    let end = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let inner = |byte: &u8| end(Some(byte)) || *byte == b'-';
    text.len() <= MAX_PREFIX_LENGTH
        && text
            .split('.')
            .map(str::as_bytes)
            .all(|label| end(label.first()) && end(label.last()) && label.iter().all(inner))
}
