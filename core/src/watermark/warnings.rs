//! Warnings about a valid spec that probably does not do what its author meant.

use super::{options::WpaOptions, spec::EffectiveSpec};
use crate::api::wpa::WatermarkPodAutoscalerSpec;

/// Collects the warnings for a spec with defaults applied and the options from its annotations.
pub fn collect(spec: &WatermarkPodAutoscalerSpec, options: &WpaOptions) -> Vec<String> {
    let mut warnings = Vec::new();
    let rules = EffectiveSpec::from_spec(spec).with_options(*options);
    let pod_metric = spec.metrics.iter().find(|metric| metric.kind != "External");
    if let Some(metric) = pod_metric.filter(|_| spec.algorithm == "absolute") {
        warnings.push(format!(
            "spec.algorithm: with `absolute`, a metric of type {} is the total usage of all pods, which is compared with \
             the watermarks and then multiplied by the number of pods; `average` is usually meant",
            metric.kind
        ));
    }
    if !matches!(spec.algorithm.as_str(), "absolute" | "average") {
        warnings.push(format!(
            "spec.algorithm: `{}` is neither `absolute` nor `average`; `absolute` is used",
            spec.algorithm
        ));
    }
    let converge = spec.converge_towards_watermark.as_str();
    if rules.converge_towards.is_none() && !converge.is_empty() {
        warnings.push(format!(
            "spec.convergeTowardsWatermark: `{converge}` is neither `highwatermark` nor `lowwatermark`; it is ignored"
        ));
    }
    let (min, max) = (rules.limits.min, rules.limits.max);
    if options.scale_to_zero && pod_metric.is_some() {
        warnings.push(
            "annotation plimsoll.dev/scale-to-zero: resource metrics need running pods, so the workload never scales up \
             from zero"
                .to_owned(),
        );
    }
    if let Some(fallback) =
        options.fallback.filter(|fallback| !(min..=max).contains(&fallback.replicas))
    {
        warnings.push(format!(
            "annotation plimsoll.dev/fallback-replicas: {} is outside of {min} to {max} and is clamped to it",
            fallback.replicas
        ));
    }
    if spec.metrics.is_empty() && spec.recommender.is_none() {
        warnings.push(
            "spec.metrics: neither metrics nor a recommender is set; replicas are only kept within their bounds"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::watermark::{options::Fallback, spec::with_defaults};

    fn warnings(fields: Value, options: WpaOptions) -> Vec<String> {
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
    fn each_suspicious_setting_gives_one_warning() {
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
            (json!({"metrics": [{"type": "Resource"}]}), none, Some("usually meant")),
            (json!({"algorithm": "mean"}), none, Some("`mean` is neither")),
            (json!({"convergeTowardsWatermark": "up"}), none, Some("`up` is neither")),
            (
                json!({"algorithm": "average", "metrics": [{"type": "Resource"}]}),
                to_zero,
                Some("never scales up"),
            ),
            (json!({}), fallback, Some("9 is outside of 1 to 5")),
            (json!({"metrics": []}), none, Some("neither metrics nor a recommender")),
        ] {
            let found = warnings(fields.clone(), options);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{fields} {found:?}");
            assert!(expected.is_none_or(|text| found[0].contains(text)), "{found:?}");
        }
    }
}
