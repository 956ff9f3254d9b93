//! Metric values and past recommendations, as far as the status that another controller wrote contains them. With these a
//! pass can be repeated without a second request to the metrics APIs of objects and external systems.

use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscalerStatus, MetricIdentifier, MetricStatus, MetricValueStatus,
};

use super::{
    conditions::{ABLE_TO_SCALE, SCALE_DOWN_STABILIZED, SCALE_UP_STABILIZED},
    hpa_state::{HpaState, Recommendation},
    observed::ScaleValues,
    pod::Pod,
    samples::{Answer, Fetched, PodValue},
    selector::Selector,
    spec::{Metric, MetricId, Source, Spec},
};
use crate::types::{Quantity, Time, quantity::Format};

/// The response for a metric whose value is not in the status.
const NOT_IN_STATUS: &str = "the status of the HorizontalPodAutoscaler contains no value of it";

/// Where values that are not in the status come from.
#[derive(Clone, Copy, Debug)]
pub struct StatusValues<'a> {
    pub status: &'a HorizontalPodAutoscalerStatus,
    /// The scale of the target.
    pub scale: &'a ScaleValues,
    /// The number of pods that the averages in the status are of.
    pub reported_replicas: i32,
    /// The pods of the namespace.
    pub pods: &'a [Pod],
    /// The current time.
    pub now: Time,
}

impl StatusValues<'_> {
    /// The responses for metrics of pods, objects and external systems, in the order of the spec. `None` for usage of
    /// resources: their average does not reveal which pods counted.
    pub fn answers(&self, spec: &Spec) -> Vec<Option<Fetched>> {
        // The status has an entry for each metric of the spec, which is empty if the metric failed.
        let entries = self.status.current_metrics.as_deref().unwrap_or_default();
        let metrics = spec.metrics.iter().enumerate();
        metrics.map(|(index, metric)| self.answer(metric, entries.get(index))).collect()
    }

    fn answer(&self, metric: &Metric, entry: Option<&MetricStatus>) -> Option<Fetched> {
        let answer = match &metric.source {
            Source::Resource { .. }
            | Source::ContainerResource { .. }
            | Source::Prometheus { .. }
            | Source::Unknown => {
                return None;
            }
            Source::Pods { metric, .. } => entry
                .and_then(|entry| entry.pods.as_ref())
                .filter(|entry| is_same(metric, &entry.metric))
                .and_then(|entry| self.values_of_pods(&entry.current)),
            Source::Object { described, metric, .. } => entry
                .and_then(|entry| entry.object.as_ref())
                .filter(|entry| {
                    is_same(metric, &entry.metric) && *described == entry.described_object
                })
                .and_then(|entry| self.total(&entry.current))
                .map(Answer::Object),
            Source::External { metric, .. } => entry
                .and_then(|entry| entry.external.as_ref())
                .filter(|entry| is_same(metric, &entry.metric))
                .and_then(|entry| self.total(&entry.current))
                .map(|total| Answer::External(vec![total])),
        };
        Some(answer.ok_or_else(|| NOT_IN_STATUS.to_owned()))
    }

    /// The value as a whole. Its average per pod was rounded up to thousandths, so several values have the same: of these
    /// the one without a fraction, if there is one, because most metrics count something.
    fn total(&self, current: &MetricValueStatus) -> Option<Quantity> {
        if let Some(value) = &current.value {
            return parse(&value.0);
        }
        let average = parse(&current.average_value.as_ref()?.0)?.milli_value();
        let pods = i64::from(self.reported_replicas);
        let largest = average.checked_mul(pods)?;
        let whole = largest.div_euclid(1000) * 1000;
        let is_possible = whole > (average - 1).checked_mul(pods)?;
        let milli = if is_possible { whole } else { largest };
        Some(Quantity::from_milli(milli, Format::DecimalSi))
    }

    /// The average for each pod: the values of single pods are unknown. Those that are not part of it have no value.
    fn values_of_pods(&self, current: &MetricValueStatus) -> Option<Answer> {
        let value = parse(&current.average_value.as_ref()?.0)?;
        let selector = Selector::parse(&self.scale.selector).ok()?;
        let mut pods: Vec<_> =
            self.pods.iter().filter(|pod| selector.matches(&pod.labels)).collect();
        if self.reported_replicas < self.scale.status_replicas {
            pods.retain(|pod| !pod.is_terminating);
            pods.sort_by_key(|pod| (pod.start_time.is_none(), pod.start_time));
            pods.truncate(usize::try_from(self.reported_replicas).unwrap_or(0));
        }
        let value_of = |pod: &Pod| PodValue {
            pod: pod.name.clone(),
            value,
            timestamp: self.now,
            window_seconds: None,
        };
        Some(Answer::Pods(pods.into_iter().map(value_of).collect()))
    }

    /// What the other controller remembers, as far as its status reveals it: while it delays a change, a recommendation of
    /// the desired replicas is still in the window. When that leaves the window is unknown; it is taken as recent.
    pub fn memory(&self) -> HpaState {
        let conditions = self.status.conditions.iter().flatten();
        let delays = conditions.clone().any(|condition| {
            condition.type_ == ABLE_TO_SCALE
                && matches!(
                    &*condition.reason.clone().unwrap_or_default(),
                    SCALE_DOWN_STABILIZED | SCALE_UP_STABILIZED
                )
        });
        let recommendation =
            Recommendation { replicas: self.status.desired_replicas, at: self.now };
        HpaState {
            // Not `None`, which is seeded with the current replicas.
            recommendations: Some(if delays { vec![recommendation] } else { Vec::new() }),
            ..HpaState::default()
        }
    }
}

fn is_same(metric: &MetricId, entry: &MetricIdentifier) -> bool {
    metric.name == entry.name && metric.selector == entry.selector
}

fn parse(text: &str) -> Option<Quantity> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn spec(metrics: &Value) -> Spec {
        let spec = json!({"maxReplicas": 10, "metrics": metrics,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}});
        Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("a valid spec")
    }

    fn answers(metrics: &Value, current: &Value) -> Vec<Option<Fetched>> {
        let status = json!({"currentMetrics": current, "desiredReplicas": 3});
        let pod = |name: &str| Pod {
            name: name.to_owned(),
            labels: [("app".to_owned(), name[..3].to_owned())].into(),
            ..Pod::default()
        };
        let values = StatusValues {
            status: &serde_json::from_value(status).expect("a status"),
            scale: &ScaleValues { replicas: 3, status_replicas: 3, selector: "app=web".to_owned() },
            reported_replicas: 3,
            pods: &[pod("web-1"), pod("web-2"), pod("api-1")],
            now: NOW,
        };
        values.answers(&spec(metrics))
    }

    fn external(target: &Value) -> Value {
        json!({"type": "External", "external": {"metric": {"name": "queue"}, "target": target}})
    }

    fn milli(fetched: &[Option<Fetched>]) -> Option<i64> {
        match fetched {
            [Some(Ok(Answer::External(values)))] => Some(values[0].milli_value()),
            [Some(Ok(Answer::Object(value)))] => Some(value.milli_value()),
            _ => None,
        }
    }

    #[test]
    fn a_value_is_taken_as_it_is_and_an_average_times_the_pods() {
        for (current, expected) in [
            (json!({"value": "120"}), Some(120_000)),
            (json!({"averageValue": "40"}), Some(120_000)),
            // 100 / 3, rounded up to thousandths.
            (json!({"averageValue": "33334m"}), Some(100_000)),
            (json!({"averageValue": "33400m"}), Some(100_200)),
            (json!({"averageValue": "many"}), None),
            (json!({}), None),
        ] {
            let metrics = json!([external(&json!({"type": "AverageValue", "averageValue": "30"}))]);
            let entry = json!([{"type": "External",
                "external": {"metric": {"name": "queue"}, "current": current}}]);
            assert_eq!(milli(&answers(&metrics, &entry)), expected, "{entry}");
        }
        let described = json!({"kind": "Ingress", "name": "main"});
        let metrics = json!([{"type": "Object", "object": {"describedObject": described,
            "metric": {"name": "rps"}, "target": {"type": "Value", "value": "1"}}}]);
        let entry = |name: &str| {
            json!([{"type": "Object", "object": {"current": {"value": "5"},
            "describedObject": {"kind": "Ingress", "name": name}, "metric": {"name": "rps"}}}])
        };
        assert_eq!(milli(&answers(&metrics, &entry("main"))), Some(5000));
        assert_eq!(milli(&answers(&metrics, &entry("other"))), None, "another object");
    }

    #[test]
    fn each_pod_of_the_selector_has_the_average() {
        let metrics = json!([{"type": "Pods", "pods": {"metric": {"name": "rps"},
            "target": {"type": "AverageValue", "averageValue": "1"}}}]);
        let entry = json!([{"type": "Pods",
            "pods": {"metric": {"name": "rps"}, "current": {"averageValue": "7"}}}]);
        let fetched = answers(&metrics, &entry);
        let [Some(Ok(Answer::Pods(values)))] = &fetched[..] else { panic!("{fetched:?}") };
        let values: Vec<_> =
            values.iter().map(|value| (&*value.pod, value.value.milli_value())).collect();
        assert_eq!(values, [("web-1", 7000), ("web-2", 7000)]);
    }

    #[test]
    fn a_metric_that_failed_or_changed_has_no_value_and_is_not_zero() {
        let target = json!({"type": "Value", "value": "30"});
        let two = json!([external(&target), {"type": "Resource", "resource":
            {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]);
        for current in [
            json!([]),
            json!([{"type": ""}]),
            json!([{"type": "External", "external":
                {"metric": {"name": "other"}, "current": {"value": "1"}}}]),
            json!([{"type": "External", "external": {"metric": {"name": "queue",
                "selector": {"matchLabels": {"a": "b"}}}, "current": {"value": "1"}}}]),
        ] {
            assert_eq!(answers(&two, &current), [Some(Err(NOT_IN_STATUS.to_owned())), None]);
        }
    }

    #[test]
    fn a_delayed_change_reveals_a_recommendation_and_any_other_status_none() {
        for (kind, reason, expected) in [
            ("AbleToScale", "ScaleDownStabilized", Some(9)),
            ("AbleToScale", "ScaleUpStabilized", Some(9)),
            ("AbleToScale", "ReadyForNewScale", None),
            ("ScalingActive", "ScaleDownStabilized", None),
        ] {
            let status = json!({"desiredReplicas": 9,
                "conditions": [{"type": kind, "status": "True", "reason": reason}]});
            let status = serde_json::from_value(status).expect("a status");
            let scale = ScaleValues::default();
            let values = StatusValues {
                status: &status,
                scale: &scale,
                reported_replicas: 0,
                pods: &[],
                now: NOW,
            };
            let memory = values.memory();
            let remembered = memory.recommendations.expect("never seeded");
            let replicas = remembered.first().map(|recommendation| recommendation.replicas);
            assert_eq!(replicas, expected, "{kind} {reason}");
        }
    }
}
