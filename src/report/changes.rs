//! Which fields of a report have changed since the previous one.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Fields that name an element of a list, the first one that it has.
const NAMES: [&str; 5] = ["name", "role", "container", "code", "type"];

/// Returns the paths of the fields that differ, such as `roles.recommender.stale`. Elements of a list are
/// compared by their names, if these are unique. The time of a report and ages, which differ in every report,
/// are not compared.
pub fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    let mut changed = Vec::new();
    compare("", Some(before), Some(after), &mut changed);
    changed
}

/// Whether a field changes by the passing of time alone, or says what reading the report took.
fn is_time_of_report(path: &str, field: &str) -> bool {
    let of_source = ["from", "until", "queries", "bytes", "seconds"];
    ["at", "time"].contains(&field)
        || field.ends_with("Seconds")
        || field.ends_with("Millis")
        || path.starts_with("sources.") && of_source.contains(&field)
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, changed: &mut Vec<String>) {
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            compare_fields(path, before, after, changed);
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            compare_elements(path, before, after, changed);
        }
        (before, after) if before != after => changed.push(path.to_owned()),
        _ => {}
    }
}

fn compare_fields(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    changed: &mut Vec<String>,
) {
    let fields: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for field in fields.into_iter().filter(|field| !is_time_of_report(path, field)) {
        compare(&join(path, field), before.get(field), after.get(field), changed);
    }
}

fn compare_elements(path: &str, before: &[Value], after: &[Value], changed: &mut Vec<String>) {
    match (by_name(before), by_name(after)) {
        (Some(before), Some(after)) => {
            let names = before.iter().chain(&after).map(|(name, _)| *name);
            for name in names.collect::<BTreeSet<_>>() {
                let find = |elements: &[(&str, _)]| {
                    elements.iter().find(|(known, _)| *known == name).map(|(_, element)| *element)
                };
                compare(&join(path, name), find(&before), find(&after), changed);
            }
        }
        _ if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                compare(&join(path, &index.to_string()), Some(before), Some(after), changed);
            }
        }
        _ => changed.push(path.to_owned()),
    }
}

/// The elements with their names; `None` if an element has none, or several have the same.
fn by_name(elements: &[Value]) -> Option<Vec<(&str, &Value)>> {
    let name = |element| NAMES.iter().find_map(|field| Value::get(element, field)?.as_str());
    let named: Vec<(&str, &Value)> =
        elements.iter().map(|element| Some((name(element)?, element))).collect::<Option<_>>()?;
    let unique: BTreeSet<&str> = named.iter().map(|(name, _)| *name).collect();
    (unique.len() == named.len()).then_some(named)
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_elements_and_leave_out_the_time_of_the_report() {
        for (before, after, expected) in [
            (json!({"a": 1}), json!({"a": 1}), &[][..]),
            (json!({"a": 1}), json!({"a": 2}), &["a"]),
            (json!({"a": null}), json!({"b": 1}), &["a", "b"]),
            (json!({"time": 1, "x": {"at": 1}}), json!({"time": 2, "x": {"at": 2}}), &[]),
            (
                json!({"loopAgeSeconds": 1.0, "pods": 1}),
                json!({"loopAgeSeconds": 2.0, "pods": 2}),
                &["pods"],
            ),
            (
                json!({"roles": [{"role": "updater", "stale": 0}, {"role": "recommender", "stale": 0}]}),
                json!({"roles": [{"role": "recommender", "stale": 4}, {"role": "updater", "stale": 0}]}),
                &["roles.recommender.stale"],
            ),
            (
                json!({"findings": []}),
                json!({"findings": [{"code": "stale", "message": "old"}]}),
                &["findings.stale"],
            ),
            (
                json!({"sources": [{"server": "a", "seconds": 1, "bytes": 1}], "x": {"bytes": 1}}),
                json!({"sources": [{"server": "a", "seconds": 2, "bytes": 2}], "x": {"bytes": 2}}),
                &["x.bytes"],
            ),
            (json!({"list": [1, 2]}), json!({"list": [1, 3]}), &["list.1"]),
            (json!({"list": [1, 2]}), json!({"list": [1]}), &["list"]),
            (
                json!({"list": [{"name": "a", "x": 1}, {"name": "a", "x": 2}]}),
                json!({"list": [{"name": "a", "x": 1}, {"name": "a", "x": 3}]}),
                &["list.1.x"],
            ),
            (json!({"a": {"b": 1}}), json!({"a": [1]}), &["a"]),
        ] {
            assert_eq!(changed_fields(&before, &after), expected, "{before} {after}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..3_i64).prop_map(Value::from),
            "[a-c]".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            let fields = vec(("name|role|a|b", inner.clone()), 0..3);
            prop_oneof![
                vec(inner, 0..3).prop_map(Value::from),
                fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn something_changed_exactly_if_the_reports_differ(before in values(), after in values()) {
            prop_assert!(changed_fields(&before, &before).is_empty());
            let changed = !changed_fields(&before, &after).is_empty();
            let length = |value: &Value| value.to_string().len();
            // A list of the same named elements in another order has not changed.
            prop_assert!(changed || before == after || length(&before) == length(&after));
            prop_assert!(!changed || before != after);
        }
    }
}
