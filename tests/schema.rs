//! Checks JSON against the schemas in `docs/schema`: the part of JSON Schema 2020-12 that they use, and any
//! other keyword is an error. (Every complete validator brings a licence outside our list.)

use std::{fs, path::Path};

use serde_json::{Map, Value};

/// A schema from `docs/schema`.
pub fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema").join(name);
    let text = fs::read_to_string(&path).expect("the schema is in the repository");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// Everything that is wrong with a value, each with its place.
pub fn faults(schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(schema, schema, value, "", &mut faults);
    faults
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let rules = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in rules {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "title" | "description" | "format" => true,
            "$ref" => {
                let name = rule.as_str().and_then(|link| link.strip_prefix('#'));
                let target =
                    name.and_then(|name| root.pointer(name)).expect("a link within the file");
                check(root, target, value, at, faults);
                true
            }
            "type" => match rule.as_array() {
                Some(types) => types.iter().any(|rule| is_a(rule, value)),
                None => is_a(rule, value),
            },
            "const" => rule == value,
            "enum" => rule.as_array().expect("a list").contains(value),
            "minimum" => value.as_f64().is_none_or(|value| value >= number(rule)),
            "maximum" => value.as_f64().is_none_or(|value| value <= number(rule)),
            "minItems" => value.as_array().is_none_or(|items| items.len() as f64 >= number(rule)),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, item, &format!("{at}/{index}"), faults);
                }
                true
            }
            "properties" => {
                for (name, rule) in rule.as_object().expect("an object") {
                    if let Some(value) = value.get(name) {
                        check(root, rule, value, &format!("{at}/{name}"), faults);
                    }
                }
                true
            }
            "required" => {
                let mut names = rule.as_array().expect("a list").iter().filter_map(Value::as_str);
                names.all(|name| value.get(name).is_some())
            }
            "additionalProperties" if rule.is_object() => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    if !is_known(rules, name) {
                        check(root, rule, value, &format!("{at}/{name}"), faults);
                    }
                }
                true
            }
            "additionalProperties" => {
                assert_eq!(rule, false, "only false and a schema are understood");
                let mut names = value.as_object().into_iter().flat_map(|object| object.keys());
                names.all(|name| is_known(rules, name))
            }
            other => panic!("{at}: the keyword {other} is not understood: add it here"),
        };
        if !holds {
            faults.push(format!("{at}: {value} against {keyword}: {rule}"));
        }
    }
}

fn is_known(rules: &Map<String, Value>, name: &str) -> bool {
    rules.get("properties").is_some_and(|known| known.get(name).is_some())
}

fn is_a(rule: &Value, value: &Value) -> bool {
    match rule.as_str().expect("the name of a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("{other} is no type"),
    }
}

fn number(rule: &Value) -> f64 {
    rule.as_f64().expect("a number")
}

#[test]
fn each_keyword_rejects_invalid_documents() {
    let schema: Value = serde_json::from_str(
        r##"{
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {
                "a": { "$ref": "#/$defs/small" },
                "b": { "type": ["string", "null"] },
                "c": { "type": "array", "minItems": 1, "items": { "enum": ["x", "y"] } },
                "d": { "const": true },
                "f": { "type": "object", "additionalProperties": { "type": "integer" } }
            },
            "$defs": { "small": { "type": "integer", "minimum": 1, "maximum": 3 } }
        }"##,
    )
    .expect("JSON");
    let count = |text| faults(&schema, &serde_json::from_str(text).expect("JSON")).len();
    assert_eq!(count(r#"{ "a": 1, "b": null, "c": ["x"], "d": true, "f": { "x": 1 } }"#), 0);
    for bad in [
        r"[]",
        r"{}",
        r#"{ "a": 0 }"#,
        r#"{ "a": 4 }"#,
        r#"{ "a": 1.5 }"#,
        r#"{ "a": 1, "b": 1 }"#,
        r#"{ "a": 1, "c": [] }"#,
        r#"{ "a": 1, "c": ["z"] }"#,
        r#"{ "a": 1, "d": false }"#,
        r#"{ "a": 1, "e": 1 }"#,
        r#"{ "a": 1, "f": { "x": "1" } }"#,
    ] {
        assert!(count(bad) > 0, "{bad} was let through");
    }
}
