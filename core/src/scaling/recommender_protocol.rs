//! What a recommender is asked, and what it answers: protobuf's JSON, as upstream writes and reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value, json};

use super::{Scale, metric_value::MetricError};
use crate::{api::scale_target::ScaleTarget, types::quantity::Quantity};

/// What a recommender answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecommendResponse {
    /// Replicas that it recommends.
    pub replicas: i32,
    /// The fewest that would do; nothing is 0.
    pub lower_bound: i32,
    /// The most that would make sense; nothing is 0.
    pub upper_bound: i32,
    /// What it observed of its first target.
    pub observed_target: f64,
    /// Why.
    pub reason: String,
}

/// What an object says that a recommender is told.
#[derive(Clone, Copy, Debug)]
pub struct RecommendRequest<'a> {
    /// The workload.
    pub target: &'a ScaleTarget,
    /// The fewest replicas; nothing is 0.
    pub min_replicas: i32,
    /// The most replicas.
    pub max_replicas: i32,
    /// What kind of target it is asked for.
    pub target_type: &'a str,
    /// Lower end of the band that it is asked for.
    pub low_watermark: Option<Quantity>,
    /// Upper end of it.
    pub high_watermark: Option<Quantity>,
    /// What else it is told.
    pub settings: &'a BTreeMap<String, String>,
}

/// What a recommender is told beside what the object says.
#[derive(Clone, Copy, Debug)]
pub struct RecommendContext<'a> {
    /// Namespace of the object.
    pub namespace: &'a str,
    /// Name of the cluster, if it has one.
    pub cluster: &'a str,
    /// What the target has.
    pub scale: Scale,
    /// Pods that count as ready.
    pub ready_pods: u32,
}

/// The body of a request. What is zero or empty is left out, but for what has to be known.
pub fn request_body(wish: &RecommendRequest<'_>, occasion: &RecommendContext<'_>) -> Value {
    let target = wish.target;
    let target_ref = without_empty([
        ("cluster", occasion.cluster.into()),
        ("namespace", occasion.namespace.into()),
        ("kind", target.kind.as_str().into()),
        ("name", target.name.as_str().into()),
        ("apiVersion", target.api_version.as_str().into()),
    ]);
    let constraints = without_empty([
        ("minReplicas", wish.min_replicas.into()),
        ("maxReplicas", wish.max_replicas.into()),
    ]);
    // Both are the wanted ones: pods of a rolling update are nobody's doing.
    let mut state = without_empty([("desiredReplicas", occasion.scale.spec_replicas.into())]);
    state.insert("currentReplicas".to_owned(), occasion.scale.spec_replicas.into());
    state.insert("readyReplicas".to_owned(), occasion.ready_pods.into());
    let mut request = Map::new();
    request.insert("targetRef".to_owned(), target_ref.into());
    request.insert("constraints".to_owned(), constraints.into());
    request.insert("state".to_owned(), state.into());
    let units =
        |mark: Option<Quantity>| mark.map_or(0.0, |mark| mark.milli_value() as f64 / 1000.0);
    let target = without_empty([
        ("type", wish.target_type.into()),
        ("lowerBound", units(wish.low_watermark).into()),
        ("upperBound", units(wish.high_watermark).into()),
    ]);
    request.insert("targets".to_owned(), json!([target]));
    if !wish.settings.is_empty() {
        request.insert("settings".to_owned(), json!(wish.settings));
    }
    request.into()
}

fn without_empty<const COUNT: usize>(fields: [(&str, Value); COUNT]) -> Map<String, Value> {
    let is_empty = |value: &Value| {
        value.as_str() == Some("") || value.as_f64().is_some_and(|number| number == 0.0)
    };
    let kept = fields.into_iter().filter(|(_, value)| !is_empty(value));
    kept.map(|(key, value)| (key.to_owned(), value)).collect()
}

/// What came back, field by field. Anything else is not understood, as upstream has it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Reply {
    error: Option<Failure>,
    /// It has to be a text; nobody asks which.
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

/// One target as it was observed. Only its value is looked at.
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

/// As protobuf's JSON has it, null is what is not there: servers in Go write it for an empty list.
fn or_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A number, or a text of one (`NaN` and `Infinity` are nothing else); null is none.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let no_number = || D::Error::custom("it is no number");
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(0.0),
        Value::Number(number) => number.as_f64().ok_or_else(no_number),
        Value::String(text) => text.parse().map_err(|_| no_number()),
        _ => Err(no_number()),
    }
}

/// A whole number, or a text of one; null is none.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let not_whole = || D::Error::custom("it is no whole number of replicas");
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

/// What a reply says.
pub fn parse_reply(text: &[u8]) -> Result<RecommendResponse, MetricError> {
    let unreadable =
        |why: serde_json::Error| MetricError::Failed(format!("error unmarshaling response: {why}"));
    // An empty list would read as a reply that says nothing.
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

    fn asked(
        occasion: &RecommendContext<'_>,
        target_type: &str,
        low: &str,
        high: &str,
        settings: &[(&str, &str)],
    ) -> Value {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "front"});
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mark = |text: &str| (!text.is_empty()).then(|| text.parse().expect("a quantity"));
        let wish = RecommendRequest {
            target: &serde_json::from_value(target).expect("a target"),
            min_replicas: 3,
            max_replicas: 100,
            target_type,
            low_watermark: mark(low),
            high_watermark: mark(high),
            settings: &settings.iter().map(own).collect(),
        };
        request_body(&wish, occasion)
    }

    const OCCASION: RecommendContext<'_> = RecommendContext {
        namespace: "web",
        cluster: "prod-1",
        scale: Scale { spec_replicas: 18, status_replicas: 19 },
        ready_pods: 17,
    };

    /// Vectors H3, H4 and R6.
    #[test]
    fn what_is_zero_is_left_out_and_what_has_to_be_known_is_not() {
        assert_eq!(
            asked(&OCCASION, "cpu", "100m", "300m", &[("lookbackWindowSeconds", "600")]),
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
            let targets = asked(&OCCASION, "memory", low, high, &[])["targets"].clone();
            (targets[0]["lowerBound"].as_f64(), targets[0]["upperBound"].as_f64())
        };
        assert_eq!(bounds("200m", "800m"), (Some(0.2), Some(0.8)));
        assert_eq!(bounds("100", "2500"), (Some(100.0), Some(2500.0)));
        assert_eq!(bounds("0", "0"), (None, None));
        let nothing = RecommendContext { scale: Scale::default(), ready_pods: 0, ..OCCASION };
        let state = asked(&nothing, "", "", "", &[])["state"].clone();
        assert_eq!(state, json!({"currentReplicas": 0, "readyReplicas": 0}));
    }

    /// Vectors H6, H11 and H12.
    #[test]
    fn a_reply_is_read_strictly_and_only_the_first_target_counts() {
        let read = |value: &Value| parse_reply(value.to_string().as_bytes());
        let advice = read(&json!({
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
        assert_eq!(advice, Ok(expected));
        assert_eq!(read(&json!({})), Ok(RecommendResponse::default()));
        // In protobuf's JSON null is what is not there, and a number may be written as a text.
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
