//! JSON patches (RFC 6902) as plain data, and JSON pointers (RFC 6901).

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{pod::Resources, sized_container::SizedContainer};

/// Adds or replaces a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename = "add")]
pub struct Operation {
    /// The JSON pointer to the target.
    pub path: String,
    /// The value. Always serialized, even where it has no meaning, as upstream does.
    pub value: Value,
}

impl Operation {
    pub fn add(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { path: path.into(), value: value.into() }
    }
}

pub fn set_annotation(key: &str, value: impl Into<Value>) -> Operation {
    Operation::add(annotation_path(key), value)
}

pub fn annotation_path(key: &str) -> String {
    ["/metadata/annotations/", &escape_segment(key)].concat()
}

/// Returns the operations that set the resources of a container. `present` is what the object has already: the actual
/// resources at admission, those of the spec for a resize.
pub fn resize_operations(size: &SizedContainer, present: &Resources) -> Vec<Operation> {
    let base = format!("{}/resources", size.container);
    let mut operations = Vec::new();
    if present.requests.is_none() && present.limits.is_none() {
        operations.push(Operation::add(&*base, Map::new()));
    }
    for (field, amounts, present_list) in
        [("requests", &size.requests, &present.requests), ("limits", &size.limits, &present.limits)]
    {
        if present_list.is_none() && !amounts.is_empty() {
            operations.push(Operation::add([&*base, "/", field].concat(), Map::new()));
        }
        operations.extend(amounts.iter().map(|(resource, amount)| {
            let path = [&*base, "/", field, "/", &escape_segment(resource.as_str())].concat();
            Operation::add(path, amount.to_string())
        }));
    }
    operations
}

/// Escapes a name as one segment of a JSON pointer (RFC 6901).
pub fn escape_segment(name: &str) -> Cow<'_, str> {
    if name.contains(['~', '/']) {
        name.replace('~', "~0").replace('/', "~1").into()
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden vectors 93 and 94.
    #[test]
    fn slashes_and_tildes_are_escaped_in_a_path_segment() {
        for (name, expected) in [
            ("nvidia.com/gpu", "nvidia.com~1gpu"),
            ("custom~domain.com/resource/name", "custom~0domain.com~1resource~1name"),
        ] {
            assert_eq!(escape_segment(name), expected);
        }
    }

    #[test]
    fn an_operation_always_includes_its_value() {
        let text = serde_json::to_string(&Operation::add("/a", Value::Null)).expect("serialises");
        assert_eq!(text, r#"{"op":"add","path":"/a","value":null}"#);
    }
}
