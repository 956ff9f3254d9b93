//! Compares the twin objects of two recommenders field by field, except for a list of known differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kube::Client;
use serde_json::Value;

use super::generated_cluster::TWINS;

/// Plural of the resource with recommendations.
pub const VPAS: &str = "verticalpodautoscalers";
/// Plural of the resource with checkpoints.
pub const CHECKPOINTS: &str = "verticalpodautoscalercheckpoints";

/// Expected differences, each with its reason. Any other difference fails the test.
const EXPECTED_DIFFERENCES: &[ExpectedDifference] = &[];

/// Sums of floats depend on the order of addition; this is the relative tolerance.
const ROUNDING: f64 = 1e-9;

/// A difference that is expected.
struct ExpectedDifference {
    /// Substring of the field name.
    field: &'static str,
    /// Why both are correct.
    #[expect(dead_code, reason = "for those who read the list")]
    because: &'static str,
}

/// A field whose values differ between the two recommenders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    object: String,
    field: String,
    values: [Option<String>; 2],
}

/// The fields of one object, by name.
pub type Fields = BTreeMap<String, String>;

/// The fields of all objects of a recommender, by namespace, the name that twins share, and the part of the object.
pub type ObjectFields = BTreeMap<String, Fields>;

/// Reads an object: its name, the part of it, and its fields.
type ObjectReader = fn(&Value) -> (String, String, Fields);

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The fields that differ.
    pub differences: Vec<Difference>,
    /// Number of fields that were compared.
    pub fields: usize,
    /// Fields of the first recommender.
    pub left: ObjectFields,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.values;
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        write!(
            f,
            "{:<28} {:<44} {}: {:<24} {}: {}",
            self.object,
            self.field,
            TWINS[0],
            text(one),
            TWINS[1],
            text(other)
        )
    }
}

// === impl Comparison ===

impl Comparison {
    /// Compares the fields of two recommenders.
    pub fn of(left: ObjectFields, mut right: ObjectFields) -> Self {
        let mut comparison = Self::default();
        let mut both: BTreeMap<String, [Fields; 2]> = BTreeMap::new();
        for (object, fields) in left {
            let other = right.remove(&object).unwrap_or_default();
            both.insert(object, [fields, other]);
        }
        both.extend(right.into_iter().map(|(object, fields)| (object, [Fields::new(), fields])));
        for (object, [left, right]) in both {
            let names: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for name in names {
                comparison.fields += 1;
                let values = [left.get(name).cloned(), right.get(name).cloned()];
                let listed = EXPECTED_DIFFERENCES.iter().any(|listed| name.contains(listed.field));
                if !listed && !are_same(name, &values) {
                    let (object, field) = (object.clone(), name.clone());
                    comparison.differences.push(Difference { object, field, values });
                }
            }
            comparison.left.insert(object, left);
        }
        comparison
    }

    /// Number of objects with a target for at least one container.
    pub fn recommended(&self) -> usize {
        let has_target = |fields: &&Fields| fields.keys().any(|name| name.ends_with(".target"));
        self.left.values().filter(has_target).count()
    }

    /// The first differences, in readable form.
    pub fn report(&self) -> String {
        let lines: Vec<_> = self.differences.iter().take(10).map(ToString::to_string).collect();
        format!("{} differences, the first:\n{}", self.differences.len(), lines.join("\n"))
    }
}

/// Compares the current statuses of all twins.
pub async fn statuses(client: &Client) -> Comparison {
    let [left, right] = fields_by_twin(&list(client, VPAS).await, status);
    Comparison::of(left, right)
}

/// The same if the left twins do not exist and their fields come from a recording.
pub async fn statuses_against(client: &Client, left: &ObjectFields) -> Comparison {
    let [_, right] = fields_by_twin(&list(client, VPAS).await, status);
    Comparison::of(left.clone(), right)
}

/// Lists all objects of a kind.
pub async fn list(client: &Client, plural: &str) -> Vec<Value> {
    let path = format!("/apis/autoscaling.k8s.io/v1/{plural}");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    let mut list: Value = client.request(request).await.expect("API server responds");
    match list["items"].take() {
        Value::Array(items) => items,
        other => panic!("{other} is not a list"),
    }
}

/// The fields of the objects of each twin.
pub fn fields_by_twin(objects: &[Value], read: ObjectReader) -> [ObjectFields; 2] {
    let mut both = <[ObjectFields; 2]>::default();
    for object in objects {
        let (name, part, fields) = read(object);
        let namespace = normalize(&object["metadata"]["namespace"]);
        for (all_fields, twin) in both.iter_mut().zip(TWINS) {
            if let Some(shared) = name.strip_suffix(&format!("-{twin}")) {
                all_fields.insert(format!("{namespace}/{shared}{part}"), fields.clone());
            }
        }
    }
    both
}

/// Reads the status of a VPA.
pub fn status(object: &Value) -> (String, String, Fields) {
    let mut fields = Fields::new();
    let status = &object["status"];
    let generation = &object["metadata"]["generation"];
    if status["observedGeneration"] != *generation {
        fields.insert("observedGeneration".to_owned(), status["observedGeneration"].to_string());
    }
    if status["recommendation"].is_object() {
        fields.insert("recommendation".to_owned(), "present".to_owned());
    }
    let containers = status["recommendation"]["containerRecommendations"].as_array();
    for container in containers.into_iter().flatten() {
        let name = container["containerName"].as_str().unwrap_or_default();
        for bound in ["target", "lowerBound", "upperBound", "uncappedTarget"] {
            // Present and empty differs from absent.
            if let Some(amounts) = container[bound].as_object() {
                fields.insert(format!("{name}.{bound}"), "present".to_owned());
                for (resource, amount) in amounts {
                    fields.insert(format!("{name}.{bound}.{resource}"), normalize(amount));
                }
            }
        }
    }
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let text = ["status", "reason", "message"].map(|field| normalize(&condition[field]));
        fields.insert(format!("condition.{}", normalize(&condition["type"])), text.join(" | "));
    }
    (normalize(&object["metadata"]["name"]), String::new(), fields)
}

/// Reads a checkpoint.
pub fn checkpoint(object: &Value) -> (String, String, Fields) {
    let mut fields = Fields::new();
    flatten("", &object["status"], &mut fields);
    fields.remove("lastUpdateTime");
    let vpa = normalize(&object["spec"]["vpaObjectName"]);
    (vpa, format!("/{}", normalize(&object["spec"]["containerName"])), fields)
}

fn flatten(name: &str, value: &Value, into: &mut Fields) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let dot = if name.is_empty() { "" } else { "." };
                flatten(&format!("{name}{dot}{field}"), value, into);
            }
        }
        Value::Null => {}
        _ => {
            into.insert(name.to_owned(), normalize(value));
        }
    }
}

fn normalize(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn are_same(name: &str, values: &[Option<String>; 2]) -> bool {
    if values[0] == values[1] {
        return true;
    }
    // Upstream keeps one sum per set of labels and adds them at each save; ours keeps a single sum. A weight that lies
    // exactly between two ten-thousandths may therefore be rounded either way.
    if name.contains(".bucketWeights.") {
        let part = |value: &Option<String>| value.as_deref().map_or(Ok(0), str::parse::<i64>);
        let [Ok(one), Ok(other)] = [part(&values[0]), part(&values[1])] else { return false };
        return (one - other).abs() <= 1;
    }
    let [Some(one), Some(other)] = values else { return false };
    let (Ok(one), Ok(other)) = (one.parse::<f64>(), other.parse::<f64>()) else { return false };
    name.ends_with("totalWeight") && (one - other).abs() <= ROUNDING * one.abs()
}

#[test]
fn a_different_digit_is_a_difference_and_a_rounded_sum_is_not() {
    let fields = |target: &str, total: &str| {
        let pairs = [("main.target.cpu", target), ("cpuHistogram.totalWeight", total)];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect()
    };
    let compare = |left: Fields, right: Fields| {
        let of = |fields: Fields| ObjectFields::from([("team/web".to_owned(), fields)]);
        Comparison::of(of(left), of(right)).differences
    };
    let one = || fields("126m", "52988.61292431593");
    assert_eq!(compare(one(), fields("126m", "52988.61292431594")), []);
    let found = compare(one(), fields("127m", "52988.7"));
    assert_eq!(found.len(), 2);
    assert!(found[1].to_string().contains("127m"), "{}", found[1]);
    assert_eq!(compare(one(), Fields::new()).len(), 2);
    let parts = |parts: &str| -> Fields {
        [("memoryHistogram.bucketWeights.48".to_owned(), parts.to_owned())].into()
    };
    assert_eq!(compare(parts("2808"), parts("2809")), []);
    assert_eq!(compare(parts("1"), Fields::new()), []);
    assert_eq!(compare(parts("2808"), parts("2810")).len(), 1);
    assert_eq!(compare(parts("2"), Fields::new()).len(), 1);
}
