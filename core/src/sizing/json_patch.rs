//! JSON patches (RFC 6902) as plain data, and the paths in them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{pod::Resources, sized_container::SizedContainer};

/// One operation of a JSON patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// What is done.
    pub op: Op,
    /// Where.
    pub path: String,
    /// With what. Always written, as upstream does it, also where it means nothing.
    pub value: Value,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Adds a value, or replaces the one that is there.
    Add,
    /// Takes a value away.
    Remove,
    /// Fails the whole patch unless the value is this one.
    Test,
}

impl Operation {
    /// Adds a value, or replaces the one that is there.
    pub fn add(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { op: Op::Add, path: path.into(), value: value.into() }
    }

    /// Takes a value away.
    pub fn remove(path: impl Into<String>) -> Self {
        Self { op: Op::Remove, path: path.into(), value: Value::Null }
    }

    /// Fails the whole patch unless the value is this one.
    pub fn test(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { op: Op::Test, path: path.into(), value: value.into() }
    }
}

/// What an annotation is set to.
pub fn set_annotation(key: &str, value: impl Into<Value>) -> Operation {
    Operation::add(annotation_path(key), value)
}

/// The path of an annotation.
pub fn annotation_path(key: &str) -> String {
    ["/metadata/annotations/", &escape_segment(key)].concat()
}

/// What gives a container its size. `present` is what is there to be added to: at admission what the container has, for
/// a resize what its spec says.
pub fn resize_operations(size: &SizedContainer, present: &Resources) -> Vec<Operation> {
    let place = format!("{}/resources", size.container);
    let mut operations = Vec::new();
    if present.requests.is_none() && present.limits.is_none() {
        operations.push(Operation::add(&*place, Map::new()));
    }
    for (field, amounts, there) in
        [("requests", &size.requests, &present.requests), ("limits", &size.limits, &present.limits)]
    {
        if there.is_none() && !amounts.is_empty() {
            operations.push(Operation::add([&*place, "/", field].concat(), Map::new()));
        }
        operations.extend(amounts.iter().map(|(resource, amount)| {
            let path = [&*place, "/", field, "/", &escape_segment(resource.as_str())].concat();
            Operation::add(path, amount.to_string())
        }));
    }
    operations
}

/// A name as one segment of a path (RFC 6901).
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
    fn names_with_slashes_and_tildes_are_one_segment() {
        for (name, expected) in [
            ("nvidia.com/gpu", "nvidia.com~1gpu"),
            ("custom~domain.com/resource/name", "custom~0domain.com~1resource~1name"),
        ] {
            assert_eq!(escape_segment(name), expected);
        }
    }

    #[test]
    fn an_operation_always_writes_its_value() {
        let text = serde_json::to_string(&Operation::remove("/a")).expect("serialises");
        assert_eq!(text, r#"{"op":"remove","path":"/a","value":null}"#);
    }
}
