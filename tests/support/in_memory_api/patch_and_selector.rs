//! Patches and selectors of the in-memory API server.

use serde_json::{Map, Value};

use super::status_error::StatusError;

/// A patch of one of the two types that our controllers send.
pub enum Patch {
    Merge(Value),
    Json(Vec<Value>),
}

impl Patch {
    pub fn read(kind: &str, body: Value) -> Result<Self, StatusError> {
        match (kind, body) {
            ("application/merge-patch+json", body) if body.is_object() => Ok(Self::Merge(body)),
            ("application/json-patch+json", Value::Array(steps)) => Ok(Self::Json(steps)),
            ("application/merge-patch+json" | "application/json-patch+json", _) => {
                Err(StatusError::bad_request())
            }
            _ => Err(StatusError::unsupported_media_type()),
        }
    }

    pub fn apply(&self, object: &Value) -> Result<Value, StatusError> {
        let mut object = object.clone();
        match self {
            Self::Merge(patch) => merge(&mut object, patch),
            Self::Json(steps) => {
                for step in steps {
                    change(&mut object, step).ok_or_else(StatusError::unprocessable)?;
                }
            }
        }
        Ok(object)
    }
}

/// RFC 7396.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(object) = object else { return };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// One operation of RFC 6902: `add`, `remove`, `replace` or `test`. `None` if it fails.
fn change(object: &mut Value, step: &Value) -> Option<()> {
    let path = step["path"].as_str()?;
    let (parent, last) = path.rsplit_once('/')?;
    let key = last.replace("~1", "/").replace("~0", "~");
    let operation = step["op"].as_str()?;
    if operation == "test" {
        return (object.pointer(path) == step.get("value")).then_some(());
    }
    let is_there = object.pointer(path).is_some();
    match object.pointer_mut(parent)? {
        Value::Object(members) => match operation {
            "add" => drop(members.insert(key, step.get("value")?.clone())),
            "replace" if is_there => drop(members.insert(key, step.get("value")?.clone())),
            "remove" => drop(members.remove(&key)?),
            _ => return None,
        },
        Value::Array(items) => {
            let place = if key == "-" { items.len() } else { key.parse().ok()? };
            match operation {
                "add" if place <= items.len() => items.insert(place, step.get("value")?.clone()),
                "replace" if is_there => items[place] = step.get("value")?.clone(),
                "remove" if is_there => drop(items.remove(place)),
                _ => return None,
            }
        }
        _ => return None,
    }
    Some(())
}

/// A label and field selector.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    /// Accepted values; empty accepts any value.
    values: Vec<String>,
    is_negative: bool,
}

impl Requirement {
    fn read(text: &str) -> Self {
        let text = text.trim();
        let values =
            |values: &str| values.split(',').map(|value| value.trim().to_owned()).collect();
        let of = |key: &str, values: Vec<String>, is_negative| Self {
            key: key.trim().to_owned(),
            values,
            is_negative,
        };
        if let Some((key, set)) = text.split_once(" notin (") {
            return of(key, values(set.trim_end_matches(')')), true);
        }
        if let Some((key, set)) = text.split_once(" in (") {
            return of(key, values(set.trim_end_matches(')')), false);
        }
        if let Some((key, value)) = text.split_once("!=") {
            return of(key, values(value), true);
        }
        if let Some((key, value)) = text.split_once('=') {
            return of(key, values(value.trim_start_matches('=')), false);
        }
        text.strip_prefix('!')
            .map_or_else(|| of(text, Vec::new(), false), |key| of(key, Vec::new(), true))
    }

    fn matches_value(&self, value: Option<&str>) -> bool {
        let is_so = value.is_some_and(|value| {
            self.values.is_empty() || self.values.iter().any(|wanted| wanted == value)
        });
        is_so != self.is_negative
    }
}

impl Selector {
    pub fn labels(&mut self, text: &str) {
        self.labels = requirements(text);
    }

    pub fn fields(&mut self, text: &str) {
        self.fields = requirements(text);
    }

    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        let field = |key: &str| object.pointer(&format!("/{}", key.replace('.', "/")))?.as_str();
        self.labels.iter().all(|one| one.matches_value(label(&one.key)))
            && self.fields.iter().all(|one| one.matches_value(field(&one.key)))
    }
}

/// The requirements of a selector, split at commas outside of parentheses.
fn requirements(text: &str) -> Vec<Requirement> {
    let (mut parts, mut depth) = (vec![String::new()], 0_u32);
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
        .iter()
        .filter(|part| !part.trim().is_empty())
        .map(|part| Requirement::read(part))
        .collect()
}
