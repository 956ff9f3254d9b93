//! Compares the passes of two controllers, field by field.

use serde_json::Value;

/// A field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The pass: scenario, object and time.
    pub pass: String,
    /// Path of the field.
    pub path: String,
    /// Our value.
    pub ours: Value,
    /// Upstream's value.
    pub upstream: Value,
}

/// The tolerance for times after conflicts: upstream's retries wait for random times.
const JITTER: f64 = 0.5;
const EXACT: f64 = 1e-9;

/// All fields that differ between the passes of one scenario.
pub fn compare(ours: &[Value], upstream: &[Value]) -> Vec<Difference> {
    let mut found = Vec::new();
    if ours.len() != upstream.len() {
        found.push(Difference {
            pass: upstream.first().or(ours.first()).map(name).unwrap_or_default(),
            path: "passes".to_owned(),
            ours: ours.len().into(),
            upstream: upstream.len().into(),
        });
    }
    let mut tolerance = EXACT;
    for (ours, upstream) in ours.iter().zip(upstream) {
        let (mut ours, mut upstream) = (ours.clone(), upstream.clone());
        if upstream.to_string().contains("Operation cannot be fulfilled") || retries(&upstream) {
            tolerance = JITTER;
        }
        let pass = name(&upstream);
        let is_unordered = unsort(&mut ours) | unsort(&mut upstream);
        if is_unordered && status_update_failed(&ours) != status_update_failed(&upstream) {
            // A different text with the same meaning was written by one side only, and that write took a fault that
            // the other side still has before it: from here on the two clusters differ.
            break;
        }
        for pass in [&mut ours, &mut upstream] {
            complete(pass, is_unordered);
        }
        differences(&pass, "", &ours, &upstream, tolerance, &mut found);
    }
    found
}

fn name(pass: &Value) -> String {
    format!(
        "{} {} at {}",
        pass["id"].as_str().unwrap_or(""),
        pass["hpa"].as_str().unwrap_or(""),
        pass["at"]
    )
}

fn retries(pass: &Value) -> bool {
    let calls = pass["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    calls
        .iter()
        .filter(|call| call.as_str().is_some_and(|call| call.starts_with("scale.update")))
        .count()
        > 1
}

fn status_update_failed(pass: &Value) -> bool {
    let events = pass["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    events.iter().any(|event| event["reason"] == "FailedUpdateStatus")
}

/// Sorts texts that upstream builds from an unordered map; returns whether there was one.
fn unsort(value: &mut Value) -> bool {
    match value {
        Value::String(text) => match ordered(text) {
            Some(new) => {
                *text = new;
                true
            }
            None => false,
        },
        Value::Array(all) => all.iter_mut().fold(false, |any, one| unsort(one) | any),
        Value::Object(all) => all.values_mut().fold(false, |any, one| unsort(one) | any),
        _ => false,
    }
}

fn ordered(text: &str) -> Option<String> {
    const LIST: &str = "are controlled by multiple HPAs: [";
    if let Some(at) = text.find(LIST) {
        let (before, list) = text.split_at(at + LIST.len());
        let mut names: Vec<_> = list.trim_end_matches(']').split(' ').collect();
        names.sort_unstable();
        return Some(format!("{before}{}]", names.join(" ")));
    }
    // Which pod is reported for a missing request depends on map order.
    let pod = text.rfind(" Pod ")?;
    let begins = ["missing request for ", "missing pod-level request for ", "container "];
    let begin = begins.iter().filter_map(|begin| text[..pod].rfind(begin)).min()?;
    Some(format!("{}…", &text[..begin]))
}

/// Removes empty values, and what depends on an unordered text.
fn complete(pass: &mut Value, is_unordered: bool) {
    let Some(fields) = pass.as_object_mut() else { return };
    fields.remove("inputs");
    if let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut) {
        let is_nothing = |value: &Value| {
            value.is_null()
                || value.as_array().is_some_and(Vec::is_empty)
                || value.as_i64() == Some(0)
        };
        for field in ["currentReplicas", "currentMetrics", "conditions"] {
            if status.get(field).is_some_and(is_nothing) {
                status.remove(field);
            }
        }
    }
    if is_unordered {
        // A different text with the same meaning causes another write of the status.
        fields.remove("statusWritten");
        if let Some(calls) = fields.get_mut("calls").and_then(Value::as_array_mut) {
            calls.retain(|call| call != "status.update");
        }
    }
}

fn differences(
    pass: &str,
    path: &str,
    ours: &Value,
    upstream: &Value,
    tolerance: f64,
    found: &mut Vec<Difference>,
) {
    match (ours, upstream) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let (one, other) =
                    (one.get(key).unwrap_or(&Value::Null), other.get(key).unwrap_or(&Value::Null));
                differences(pass, &format!("{path}.{key}"), one, other, tolerance, found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (one, other) in one.iter().zip(other) {
                differences(pass, &format!("{path}[]"), one, other, tolerance, found);
            }
        }
        (Value::Number(one), Value::Number(other)) => {
            let is_time =
                path.rsplit('.').next().is_some_and(|field| matches!(field, "at" | "age"));
            let allowed = if is_time { tolerance } else { 0.0 };
            let apart = one
                .as_f64()
                .zip(other.as_f64())
                .is_none_or(|(one, other)| (one - other).abs() > allowed);
            if apart {
                push(pass, path, ours, upstream, found);
            }
        }
        _ => {
            if ours != upstream {
                push(pass, path, ours, upstream, found);
            }
        }
    }
}

fn push(pass: &str, path: &str, ours: &Value, upstream: &Value, found: &mut Vec<Difference>) {
    found.push(Difference {
        pass: pass.to_owned(),
        path: path.trim_start_matches('.').to_owned(),
        ours: ours.clone(),
        upstream: upstream.clone(),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_order_of_a_map_is_no_difference() {
        let pass = |message: &str, written: bool, age: f64| {
            json!({"id": "a", "hpa": "s/w", "at": 15, "statusWritten": written, "calls": ["scale.get d/w"],
                "status": {"currentMetrics": null, "conditions": [{"message": message}]},
                "memory": {"recommendations": [{"replicas": 3, "age": age}]}})
        };
        let list = "pods by selector a=b are controlled by multiple HPAs: [s/a s/b]";
        let other = "pods by selector a=b are controlled by multiple HPAs: [s/b s/a]";
        assert_eq!(compare(&[pass(list, true, 0.0)], &[pass(other, false, 0.0)]), []);
        assert_eq!(compare(&[pass("x", true, 0.0)], &[pass("x", false, 1.0)]).len(), 2);
        assert_eq!(compare(&[pass("x", true, 0.0)], &[]).len(), 1);
        let missing = |pod: &str| {
            pass(&format!("missing request for cpu in container app of Pod {pod}"), true, 0.0)
        };
        assert_eq!(compare(&[missing("p0")], &[missing("p1")]), []);
    }

    #[test]
    fn a_failed_write_caused_by_map_order_ends_the_comparison() {
        let pass = |message: &str, failed: bool| {
            let events = if failed { json!([{"reason": "FailedUpdateStatus"}]) } else { json!([]) };
            json!({"id": "a", "hpa": "s/w", "at": 15, "events": events,
                "status": {"conditions": [{"message": message}]}})
        };
        let missing = |pod: &str| format!("missing request for cpu in container app of Pod {pod}");
        let ours = [pass(&missing("p0"), false), pass("x", true)];
        let upstream = [pass(&missing("p1"), true), pass("x", false)];
        assert_eq!(compare(&ours, &upstream), []);
        assert_eq!(compare(&ours[1..], &upstream[1..]).len(), 1);
    }
}
