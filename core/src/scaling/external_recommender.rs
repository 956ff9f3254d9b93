//! Requests to and responses from an external recommender, in protobuf's JSON as upstream writes and reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value, json};

use super::{Scale, metric_source::MetricError};
use crate::{api::scale_target::ScaleTarget, types::quantity::Quantity};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecommendResponse {
    pub replicas: i32,
    /// The lower bound of the recommendation; 0 if missing.
    pub lower_bound: i32,
    /// The upper bound of the recommendation; 0 if missing.
    pub upper_bound: i32,
    /// The observed value of the first target.
    pub observed_target: f64,
    pub reason: String,
}

/// The part of a request that comes from the spec of the object.
#[derive(Clone, Copy, Debug)]
pub struct RecommendRequest<'a> {
    pub target: &'a ScaleTarget,
    /// The minimum replicas; 0 if missing.
    pub min_replicas: i32,
    pub max_replicas: i32,
    /// The type of the target, such as `cpu`.
    pub target_type: &'a str,
    pub low_watermark: Option<Quantity>,
    pub high_watermark: Option<Quantity>,
    pub settings: &'a BTreeMap<String, String>,
}

/// The part of a request that comes from the cluster.
#[derive(Clone, Copy, Debug)]
pub struct RecommendContext<'a> {
    pub namespace: &'a str,
    /// The name of the cluster; may be empty.
    pub cluster: &'a str,
    pub scale: Scale,
    pub ready_pods: u32,
}

/// The body of a request. Zero and empty fields are omitted, except those that upstream always writes.
pub fn request_body(request: &RecommendRequest<'_>, context: &RecommendContext<'_>) -> Value {
    let target = request.target;
    let target_ref = without_empty([
        ("cluster", context.cluster.into()),
        ("namespace", context.namespace.into()),
        ("kind", target.kind.as_str().into()),
        ("name", target.name.as_str().into()),
        ("apiVersion", target.api_version.as_str().into()),
    ]);
    let constraints = without_empty([
        ("minReplicas", request.min_replicas.into()),
        ("maxReplicas", request.max_replicas.into()),
    ]);
    // Both are `spec.replicas`, so that surge pods of a rolling update do not count.
    let mut state = without_empty([("desiredReplicas", context.scale.spec_replicas.into())]);
    state.insert("currentReplicas".to_owned(), context.scale.spec_replicas.into());
    state.insert("readyReplicas".to_owned(), context.ready_pods.into());
    let mut body = Map::new();
    body.insert("targetRef".to_owned(), target_ref.into());
    body.insert("constraints".to_owned(), constraints.into());
    body.insert("state".to_owned(), state.into());
    let units = |watermark: Option<Quantity>| {
        watermark.map_or(0.0, |watermark| watermark.milli_value() as f64 / 1000.0)
    };
    let target = without_empty([
        ("type", request.target_type.into()),
        ("lowerBound", units(request.low_watermark).into()),
        ("upperBound", units(request.high_watermark).into()),
    ]);
    body.insert("targets".to_owned(), json!([target]));
    if !request.settings.is_empty() {
        body.insert("settings".to_owned(), json!(request.settings));
    }
    body.into()
}

fn without_empty<const COUNT: usize>(fields: [(&str, Value); COUNT]) -> Map<String, Value> {
    let is_empty = |value: &Value| {
        value.as_str() == Some("") || value.as_f64().is_some_and(|number| number == 0.0)
    };
    let non_empty = fields.into_iter().filter(|(_, value)| !is_empty(value));
    non_empty.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The response body. Unknown fields are an error, as upstream has it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Reply {
    error: Option<Failure>,
    /// Has to be a string; its value is not used.
    timestamp: Option<String>,
    #[serde(alias = "target_replicas", deserialize_with = "whole")]
    target_replicas: i32,
    #[serde(alias = "lower_bound_replicas", deserialize_with = "whole")]
    lower_bound_replicas: i32,
    #[serde(alias = "upper_bound_replicas", deserialize_with = "whole")]
    upper_bound_replicas: i32,
    #[serde(alias = "observed_targets", deserialize_with = "or_nothing")]
    observed_targets: Vec<Observed>,
    #[serde(deserialize_with = "or_nothing")]
    reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Failure {
    #[serde(deserialize_with = "whole")]
    code: i32,
    #[serde(deserialize_with = "or_nothing")]
    message: String,
}

/// An observed target. Only its value is used.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Observed {
    #[serde(rename = "type", deserialize_with = "or_nothing")]
    kind: String,
    #[serde(alias = "target_value", deserialize_with = "number")]
    target_value: f64,
    #[serde(alias = "lower_bound", deserialize_with = "number")]
    lower_bound: f64,
    #[serde(alias = "upper_bound", deserialize_with = "number")]
    upper_bound: f64,
}

/// Reads null as the default, as protobuf's JSON does: servers in Go write it for an empty list.
fn or_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A number, or a string with one (including `NaN` and `Infinity`); null is 0.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let not_a_number = || D::Error::custom("not a number");
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(0.0),
        Value::Number(number) => number.as_f64().ok_or_else(not_a_number),
        Value::String(text) => text.parse().map_err(|_| not_a_number()),
        _ => Err(not_a_number()),
    }
}

/// A whole number, or a string with one; null is 0.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let not_whole = || D::Error::custom("not a whole number of replicas");
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(0),
        Value::String(text) => text.parse().map_err(|_| not_whole()),
        Value::Number(number) => {
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            let fits =
                whole.filter(|number| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(number));
            fits.map(|number| number as i32).ok_or_else(not_whole)
        }
        _ => Err(not_whole()),
    }
}

pub fn parse_reply(text: &[u8]) -> Result<RecommendResponse, MetricError> {
    let unreadable =
        |why: serde_json::Error| MetricError::Failed(format!("error unmarshaling response: {why}"));
    // An empty list would otherwise parse as a response with defaults.
    let object: Map<String, Value> = serde_json::from_slice(text).map_err(unreadable)?;
    let reply: Reply = serde_json::from_value(object.into()).map_err(unreadable)?;
    if let Some(Failure { code, message }) = reply.error {
        return Err(MetricError::Failed(format!("error from recommender: {code} {message}")));
    }
    let observed = reply.observed_targets.first().map_or(0.0, |first| first.target_value);
    if !observed.is_finite() {
        return Err(MetricError::NotANumber);
    }
    Ok(RecommendResponse {
        replicas: reply.target_replicas,
        lower_bound: reply.lower_bound_replicas,
        upper_bound: reply.upper_bound_replicas,
        observed_target: observed,
        reason: reply.reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_request(
        context: &RecommendContext<'_>,
        target_type: &str,
        low: &str,
        high: &str,
        settings: &[(&str, &str)],
    ) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"});
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let watermark = |text: &str| (!text.is_empty()).then(|| text.parse().expect("a quantity"));
        let request = RecommendRequest {
            target: &serde_json::from_value(target).expect("a target"),
            min_replicas: 3,
            max_replicas: 100,
            target_type,
            low_watermark: watermark(low),
            high_watermark: watermark(high),
            settings: &settings.iter().map(owned).collect(),
        };
        request_body(&request, context)
    }

    const CONTEXT: RecommendContext<'_> = RecommendContext {
        namespace: "web",
        cluster: "prod-1",
        scale: Scale { spec_replicas: 18, status_replicas: 19 },
        ready_pods: 17,
    };

    /// Vectors H3, H4 and R6.
    #[test]
    fn zero_values_are_omitted_except_required_ones() {
        assert_eq!(
            build_request(&CONTEXT, "cpu", "100m", "300m", &[("lookbackWindowSeconds", "600")]),
            json!({
                "targetRef": {
                    "cluster": "prod-1", "namespace": "web", "kind": "Deployment", "name": "front",
                    "apiVersion": "apps/v1",
                },
                "constraints": {"minReplicas": 3, "maxReplicas": 100},
                "state": {"desiredReplicas": 18, "currentReplicas": 18, "readyReplicas": 17},
                "targets": [{"type": "cpu", "lowerBound": 0.1, "upperBound": 0.3}],
                "settings": {"lookbackWindowSeconds": "600"},
            })
        );
        let bounds = |low: &str, high: &str| {
            let targets = build_request(&CONTEXT, "memory", low, high, &[])["targets"].clone();
            (targets[0]["lowerBound"].as_f64(), targets[0]["upperBound"].as_f64())
        };
        assert_eq!(bounds("200m", "800m"), (Some(0.2), Some(0.8)));
        assert_eq!(bounds("100", "2500"), (Some(100.0), Some(2500.0)));
        assert_eq!(bounds("0", "0"), (None, None));
        let nothing = RecommendContext { scale: Scale::default(), ready_pods: 0, ..CONTEXT };
        let state = build_request(&nothing, "", "", "", &[])["state"].clone();
        assert_eq!(state, json!({"currentReplicas": 0, "readyReplicas": 0}));
    }

    /// Vectors H6, H11 and H12.
    #[test]
    fn a_response_is_parsed_strictly_and_only_the_first_target_counts() {
        let read = |value: &Value| parse_reply(value.to_string().as_bytes());
        let response = read(&json!({
            "timestamp": "2026-11-23T00:00:00Z", "targetReplicas": 6, "lowerBoundReplicas": "4",
            "upperBoundReplicas": 6.0, "reason": "because",
            "observedTargets": [
                {"type": "cpu", "targetValue": 0.438}, {"targetValue": 0.223}, {"targetValue": 0.585},
            ],
        }));
        let expected = RecommendResponse {
            replicas: 6,
            lower_bound: 4,
            upper_bound: 6,
            observed_target: 0.438,
            reason: "because".to_owned(),
        };
        assert_eq!(response, Ok(expected));
        assert_eq!(read(&json!({})), Ok(RecommendResponse::default()));
        // In protobuf's JSON, null means unset, and a number may be a string.
        let nothing = json!({
            "error": null, "timestamp": null, "targetReplicas": null, "reason": null, "observedTargets": null,
        });
        assert_eq!(read(&nothing), Ok(RecommendResponse::default()));
        let texts = json!({
            "targetReplicas": "6",
            "observedTargets": [{"type": null, "targetValue": "0.5", "lowerBound": null, "upperBound": "NaN"}],
        });
        let expected =
            RecommendResponse { replicas: 6, observed_target: 0.5, ..RecommendResponse::default() };
        assert_eq!(read(&texts), Ok(expected));
        for (value, start) in [
            (
                json!({"error": {"code": 7, "message": "no idea"}}),
                "error from recommender: 7 no idea",
            ),
            (json!({"targetReplicas": 6, "other": 1}), "error unmarshaling response: "),
            (
                json!({"observedTargets": [{"targetValue": "much"}]}),
                "error unmarshaling response: ",
            ),
            (json!({"targetReplicas": 6.5}), "error unmarshaling response: "),
            (json!({"targetReplicas": 3_000_000_000_i64}), "error unmarshaling response: "),
            (json!([]), "error unmarshaling response: "),
        ] {
            let why = read(&value).expect_err("is refused").to_string();
            assert!(why.starts_with(start), "{why}");
        }
        assert!(parse_reply(b"no JSON").is_err());
    }
}
