//! Parses requirements, from text and from API objects, into canonical text.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
use thiserror::Error;

const MAX_NAME_LENGTH: usize = 63;
const MAX_PREFIX_LENGTH: usize = 253;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SelectorError {
    #[error(
        "{0:?} is not a label key: use at most 63 letters, digits, '-', '_' and '.', optionally after a DNS name and '/'"
    )]
    Key(String),
    #[error(
        "{value:?} is not a label value for {key}: use at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
    )]
    Value { key: String, value: String },
    #[error(
        "{operator:?} is not a label selector operator for {key}: use In, NotIn, Exists or DoesNotExist"
    )]
    Operator { key: String, operator: String },
    #[error(
        "operator {operator} on {key} has {count} values: In and NotIn require at least one, Exists and DoesNotExist allow none"
    )]
    Values { key: String, operator: String, count: usize },
    #[error("{value:?} is not an integer, so {key} cannot be compared with it")]
    Integer { key: String, value: String },
    #[error("unbalanced brackets in {0:?}: write a list of values as (a,b)")]
    Brackets(String),
}

/// Parses one requirement from text. Returns its key and its canonical text.
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

/// Converts one requirement of an API object. Returns its key and its canonical text.
pub(super) fn convert_expression(
    requirement: &LabelSelectorRequirement,
) -> Result<(String, String), SelectorError> {
    let key = check_key(&requirement.key)?;
    let values = requirement.values.as_deref().unwrap_or_default();
    let words = || values.iter().map(String::as_str);
    match (requirement.operator.as_str(), values.is_empty()) {
        ("In", false) => one_of(key, words(), ""),
        ("NotIn", false) => one_of(key, words(), "not"),
        ("Exists", true) => Ok((key.to_owned(), key.to_owned())),
        ("DoesNotExist", true) => Ok((key.to_owned(), format!("!{key}"))),
        ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => Err(SelectorError::Values {
            key: key.to_owned(),
            operator: requirement.operator.clone(),
            count: values.len(),
        }),
        _ => Err(SelectorError::Operator {
            key: key.to_owned(),
            operator: requirement.operator.clone(),
        }),
    }
}

/// The canonical text of `in`, or with `not` of `notin`: in the short form when there is one value.
pub(super) fn one_of<'a>(
    key: &str,
    values: impl IntoIterator<Item = &'a str>,
    not: &str,
) -> Result<(String, String), SelectorError> {
    let key = check_key(key)?;
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_unstable();
    values.dedup();
    if let Some(invalid) = values.iter().find(|value| !value.is_empty() && !is_name(value)) {
        return Err(SelectorError::Value { key: key.to_owned(), value: (*invalid).to_owned() });
    }
    let text = match (values.as_slice(), not) {
        ([value], "") => format!("{key}={value}"),
        ([value], _) => format!("{key}!={value}"),
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
