//! The defaults that the API server sets in a HorizontalPodAutoscaler.

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget, ResourceMetricSource,
};

/// Target CPU utilization in percent if no metric is set.
const CPU_UTILIZATION: i32 = 80;

/// Sets the defaults of a spec as the API server does when the object is created.
pub fn complete(spec: &mut HorizontalPodAutoscalerSpec) {
    spec.min_replicas.get_or_insert(1);
    if spec.metrics.as_ref().is_none_or(Vec::is_empty) {
        let target = MetricTarget {
            type_: "Utilization".to_owned(),
            average_utilization: Some(CPU_UTILIZATION),
            ..MetricTarget::default()
        };
        let resource = Some(ResourceMetricSource { name: "cpu".to_owned(), target });
        let metric = MetricSpec { type_: "Resource".to_owned(), resource, ..MetricSpec::default() };
        spec.metrics = Some(vec![metric]);
    }
    if let Some(behavior) = &mut spec.behavior {
        complete_behavior(behavior);
    }
}

/// Sets the defaults of a behavior that is set.
pub fn complete_behavior(behavior: &mut HorizontalPodAutoscalerBehavior) {
    let up = behavior.scale_up.get_or_insert_default();
    up.stabilization_window_seconds.get_or_insert(0);
    complete_rules(up, &[("Pods", 4, 15), ("Percent", 100, 15)]);
    complete_rules(behavior.scale_down.get_or_insert_default(), &[("Percent", 100, 15)]);
}

fn complete_rules(rules: &mut HPAScalingRules, policies: &[(&str, i32, i32)]) {
    rules.select_policy.get_or_insert_with(|| "Max".to_owned());
    // An empty list was set on purpose, and validation rejects it later.
    if rules.policies.is_none() {
        let policy = |&(kind, value, period_seconds): &(&str, i32, i32)| HPAScalingPolicy {
            type_: kind.to_owned(),
            value,
            period_seconds,
        };
        rules.policies = Some(policies.iter().map(policy).collect());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn completed(behavior: &Value) -> HorizontalPodAutoscalerBehavior {
        let mut spec: HorizontalPodAutoscalerSpec = serde_json::from_value(
            json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3,
                "behavior": behavior}),
        )
        .expect("a spec");
        complete(&mut spec);
        spec.behavior.expect("a behavior")
    }

    /// Vectors D1 to D10.
    #[test]
    fn each_field_of_a_behavior_is_completed_by_itself() {
        let percent =
            |value, period| json!({"type": "Percent", "value": value, "periodSeconds": period});
        let pods = |value, period| json!({"type": "Pods", "value": value, "periodSeconds": period});
        let both = json!([pods(1, 2), percent(3, 4)]);
        for (given, policies, window, select) in [
            (json!({}), json!([percent(100, 15)]), None, "Max"),
            (
                json!({"policies": both, "stabilizationWindowSeconds": 25, "selectPolicy": "Max"}),
                both.clone(),
                Some(25),
                "Max",
            ),
            (
                json!({"policies": [percent(1, 2)], "selectPolicy": "Min"}),
                json!([percent(1, 2)]),
                None,
                "Min",
            ),
            (json!({"policies": [pods(3, 4)]}), json!([pods(3, 4)]), None, "Max"),
        ] {
            let rules = completed(&json!({"scaleDown": given})).scale_down.expect("completed");
            assert_eq!(serde_json::to_value(&rules.policies).expect("JSON"), policies);
            assert_eq!(rules.stabilization_window_seconds, window);
            assert_eq!(rules.select_policy.as_deref(), Some(select));
        }
        for (given, policies, window, select) in [
            (json!({}), json!([pods(4, 15), percent(100, 15)]), 0, "Max"),
            (
                json!({"policies": both, "stabilizationWindowSeconds": 25, "selectPolicy": "Max"}),
                both.clone(),
                25,
                "Max",
            ),
            (
                json!({"policies": [pods(1, 2)], "selectPolicy": "Min"}),
                json!([pods(1, 2)]),
                0,
                "Min",
            ),
            (json!({"policies": [percent(7, 10)]}), json!([percent(7, 10)]), 0, "Max"),
            (
                json!({"policies": [pods(4, 2)], "stabilizationWindowSeconds": 25}),
                json!([pods(4, 2)]),
                25,
                "Max",
            ),
            (
                json!({"policies": [percent(7, 60)], "stabilizationWindowSeconds": 25}),
                json!([percent(7, 60)]),
                25,
                "Max",
            ),
        ] {
            let rules = completed(&json!({"scaleUp": given})).scale_up.expect("completed");
            assert_eq!(serde_json::to_value(&rules.policies).expect("JSON"), policies);
            assert_eq!(rules.stabilization_window_seconds, Some(window));
            assert_eq!(rules.select_policy.as_deref(), Some(select));
        }
    }

    #[test]
    fn without_metrics_the_default_is_80_percent_cpu() {
        let mut spec = HorizontalPodAutoscalerSpec::default();
        complete(&mut spec);
        assert_eq!(spec.min_replicas, Some(1));
        assert_eq!(
            serde_json::to_value(&spec.metrics).expect("JSON"),
            json!([{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80}}}])
        );
        assert!(spec.behavior.is_none());
    }
}
