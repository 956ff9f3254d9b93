//! Log attributes of an object: key-value pairs that are attached to every log line about it.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Upstream's annotation. Its value is a JSON object.
pub const ANNOTATION: &str = "wpa.datadoghq.com/logs-attributes";
/// The longest accepted value, in bytes: it is attached to every log line.
const MAX_BYTES: usize = 4096;

/// Formats the pairs as `name=value`, separated by spaces. Returns `None` if the annotation is missing or empty.
///
/// # Errors
///
/// Returns what is wrong with the value if it is not a JSON object or is too long.
pub fn parse(annotation: Option<&str>) -> Result<Option<String>, String> {
    let Some(text) = annotation else { return Ok(None) };
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes, at most {MAX_BYTES} are allowed", text.len()));
    }
    let pairs: Map<String, Value> = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let mut line = String::new();
    for (name, value) in &pairs {
        let space = if line.is_empty() { "" } else { " " };
        // Writing to a String does not fail.
        let _ = match value {
            Value::String(value) => write!(line, "{space}{name}={value}"),
            other => write!(line, "{space}{name}={other}"),
        };
    }
    Ok((!line.is_empty()).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors M4 to M7.
    #[test]
    fn log_attributes_are_read_from_a_json_object_and_anything_else_is_rejected() {
        assert_eq!(parse(None), Ok(None));
        assert_eq!(parse(Some("{}")), Ok(None));
        assert_eq!(parse(Some(r#"{"test": "foo"}"#)), Ok(Some("test=foo".to_owned())));
        let two = r#"{"team": "payments", "tier": 1}"#;
        assert_eq!(parse(Some(two)), Ok(Some("team=payments tier=1".to_owned())));
        for bad in ["", "{", "[]", "team"] {
            assert!(parse(Some(bad)).is_err(), "{bad}");
        }
        let long = format!(r#"{{"team": "{}"}}"#, "x".repeat(MAX_BYTES));
        assert!(parse(Some(&long)).is_err_and(|why| why.contains("at most 4096")));
    }
}
