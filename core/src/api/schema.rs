//! Generates the structural schema of a CustomResourceDefinition from a Rust type.
//!
//! schemars describes Rust types exactly: optional fields are nullable, defaults are listed, and a variant with a
//! comment is a separate case. CRDs are written differently, and an API server rejects half of that. This module
//! rewrites the schemas of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// The schema of an object, from the types of its spec and status.
pub(super) fn object_schema<Spec: JsonSchema, Status: JsonSchema>(
    description: &str,
    required: &[&str],
) -> Result<JSONSchemaProps, serde_json::Error> {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": {
                "type": "string",
                "description": "Group and version of this object.",
            },
            "kind": {
                "type": "string",
                "description": "Kind of this object.",
            },
            "metadata": { "type": "object" },
            "spec": rewritten_schema::<Spec>(),
            "status": rewritten_schema::<Status>(),
        },
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    serde_json::from_value(schema)
}

/// The schema of a single type.
pub(super) fn type_schema<T: JsonSchema>() -> Result<JSONSchemaProps, serde_json::Error> {
    serde_json::from_value(rewritten_schema::<T>())
}

/// The property at a path of field names.
pub(super) fn property_at<'a>(
    schema: &'a mut JSONSchemaProps,
    path: &[&str],
) -> Option<&'a mut JSONSchemaProps> {
    path.iter().try_fold(schema, |schema, name| schema.properties.as_mut()?.get_mut(*name))
}

/// The schema of the items of a list.
pub(super) fn items(schema: &mut JSONSchemaProps) -> Option<&mut JSONSchemaProps> {
    match schema.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

fn rewritten_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    rewrite(&mut schema);
    schema
}

fn rewrite(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    map.remove("title");
    map.remove("default");
    remove_null(map);
    merge_enum_cases(map);
    mark_selector_atomic(map);
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.sort_by(|left, right| left.as_str().cmp(&right.as_str()));
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(rewrite);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(inner) {
            rewrite(inner);
        }
    }
}

/// Removes `null` from the types: an optional field is omitted, not null.
fn remove_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    let Some(Value::Array(cases)) = map.get_mut("anyOf") else { return };
    let before = cases.len();
    cases.retain(|case| case["type"] != "null");
    if let (true, [Value::Object(only)]) = (cases.len() < before, cases.as_slice()) {
        let only = only.clone();
        map.remove("anyOf");
        for (key, value) in only {
            // The description of the field takes precedence over that of its type.
            map.entry(key).or_insert(value);
        }
        remove_null(map);
    }
}

/// Merges variants that schemars separated because they have comments into one enumeration.
fn merge_enum_cases(map: &mut Map<String, Value>) {
    let Some(Value::Array(cases)) = map.get("oneOf") else { return };
    let mut names = Vec::new();
    for case in cases {
        match (case.get("const"), case.get("enum")) {
            (Some(name), None) => names.push(name.clone()),
            (None, Some(Value::Array(more))) => names.extend(more.iter().cloned()),
            // Not an enumeration of names. Leave it: the API server rejects it with a clear message.
            _ => return,
        }
    }
    map.remove("oneOf");
    map.insert("type".into(), "string".into());
    map.insert("enum".into(), names.into());
}

/// Marks a label selector as atomic, so that server-side apply never merges two selectors.
fn mark_selector_atomic(map: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = map.get_mut("properties") else { return };
    if !properties.contains_key("matchLabels") {
        return;
    }
    if let Some(expressions) = properties.get_mut("matchExpressions") {
        expressions["x-kubernetes-list-type"] = "atomic".into();
        if let Some(values) = expressions.pointer_mut("/items/properties/values") {
            values["x-kubernetes-list-type"] = "atomic".into();
        }
    }
    map.insert("x-kubernetes-map-type".into(), "atomic".into());
}
