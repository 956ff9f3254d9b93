//! What is odd about an object that can be followed all the same: its author is warned.

use super::{options::WpaOptions, spec::EffectiveSpec};
use crate::api::wpa::WatermarkPodAutoscalerSpec;

/// Of an object that is filled in, with what its annotations ask for.
pub fn collect(spec: &WatermarkPodAutoscalerSpec, options: &WpaOptions) -> Vec<String> {
    let mut doubts = Vec::new();
    let rules = EffectiveSpec::from_spec(spec).with_options(*options);
    let of_pods = spec.metrics.iter().find(|metric| metric.kind != "External");
    if let Some(metric) = of_pods.filter(|_| spec.algorithm == "absolute") {
        doubts.push(format!(
            "spec.algorithm: with `absolute`, a metric of type {} is what all pods use together, compared with the \
             marks and then multiplied by the number of pods; `average` is what is mostly meant",
            metric.kind
        ));
    }
    if !matches!(spec.algorithm.as_str(), "absolute" | "average") {
        doubts.push(format!(
            "spec.algorithm: `{}` is neither `absolute` nor `average`, and taken for `absolute`",
            spec.algorithm
        ));
    }
    let converge = spec.converge_towards_watermark.as_str();
    if rules.converge_towards.is_none() && !converge.is_empty() {
        doubts.push(format!(
            "spec.convergeTowardsWatermark: `{converge}` is neither `highwatermark` nor `lowwatermark`, and ignored"
        ));
    }
    let (min, max) = (rules.limits.min, rules.limits.max);
    if options.scale_to_zero && of_pods.is_some() {
        doubts.push(
            "annotation plimsoll.dev/scale-to-zero: without pods nothing is known of what pods use, so that none comes back"
                .to_owned(),
        );
    }
    if let Some(fallback) = options.fallback.filter(|it| !(min..=max).contains(&it.replicas)) {
        doubts.push(format!(
            "annotation plimsoll.dev/fallback-replicas: {} is outside of {min} to {max}, and held to that",
            fallback.replicas
        ));
    }
    if spec.metrics.is_empty() && spec.recommender.is_none() {
        doubts.push(
            "spec.metrics: neither metrics nor a recommender are set, so that replicas are only held to their bounds"
                .to_owned(),
        );
    }
    doubts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::watermark::{options::Fallback, spec::with_defaults};

    fn doubts(fields: Value, options: WpaOptions) -> Vec<String> {
        let mut whole = json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5,
            "metrics": [{"type": "External"}],
        });
        let Value::Object(fields) = fields else { panic!("{fields} is no object") };
        for (key, value) in fields {
            whole[key] = value;
        }
        collect(&with_defaults(&serde_json::from_value(whole).expect("a spec")), &options)
    }

    #[test]
    fn what_is_odd_is_named_once_and_what_is_not_is_not() {
        let none = WpaOptions::default();
        let to_zero = WpaOptions { scale_to_zero: true, ..none };
        let fallback = Some(Fallback { replicas: 9, after: Duration::from_mins(1) });
        let fallback = WpaOptions { fallback, ..none };
        for (fields, options, expected) in [
            (json!({}), none, None),
            (json!({"algorithm": "average", "metrics": [{"type": "Resource"}]}), none, None),
            (json!({"convergeTowardsWatermark": "highwatermark"}), none, None),
            (json!({"minReplicas": 2}), to_zero, None),
            (json!({"maxReplicas": 9}), fallback, None),
            (json!({"metrics": [{"type": "Resource"}]}), none, Some("mostly meant")),
            (json!({"algorithm": "mean"}), none, Some("`mean` is neither")),
            (json!({"convergeTowardsWatermark": "up"}), none, Some("`up` is neither")),
            (
                json!({"algorithm": "average", "metrics": [{"type": "Resource"}]}),
                to_zero,
                Some("none comes back"),
            ),
            (json!({}), fallback, Some("9 is outside of 1 to 5")),
            (json!({"metrics": []}), none, Some("neither metrics nor a recommender")),
        ] {
            let found = doubts(fields.clone(), options);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{fields} {found:?}");
            assert!(expected.is_none_or(|text| found[0].contains(text)), "{found:?}");
        }
    }
}
