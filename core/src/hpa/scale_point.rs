//! Targets that are relative to requests, and how they follow usage instead.

use super::{
    fixes::{Fix, Fixes},
    options::UtilizationOf,
    pod::Pod,
    requests::{PodRequests, RequestRules},
    spec::{Source, Spec, Target},
};
use crate::coordination::{RatioRule, Resource};

/// A metric whose target is a utilization of requests that a VPA may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMetric<'a> {
    /// Its index in `spec.metrics`.
    pub index: usize,
    pub resource: Resource,
    /// The container; `None` for all of them.
    pub container: Option<&'a str>,
    /// The target in percent.
    pub percent: i32,
}

/// The metrics whose target is a utilization of cpu or memory requests.
pub fn request_metrics(spec: &Spec) -> impl Iterator<Item = RequestMetric<'_>> {
    spec.metrics.iter().enumerate().filter_map(|(index, metric)| {
        let (name, container, target) = match &metric.source {
            Source::Resource { resource, target } => (resource, None, target),
            Source::ContainerResource { resource, container, target } => {
                (resource, Some(container.as_str()), target)
            }
            _ => return None,
        };
        let resource = match name.as_str() {
            "cpu" => Resource::Cpu,
            "memory" => Resource::Memory,
            _ => return None,
        };
        // An average value has precedence.
        let percent = target.average_utilization.filter(|_| target.average_value.is_none())?;
        Some(RequestMetric { index, resource, container, percent })
    })
}

impl RequestMetric<'_> {
    /// The mean request that the kubelets have actuated of the pods, in milli-units. `None` if a container that counts has no
    /// request: an average does not show its usage.
    pub fn mean_request(self, pods: &[&Pod], pod_level_resources: bool) -> Option<i64> {
        let resource = self.resource.to_string();
        let rules = RequestRules {
            resource: &resource,
            container: self.container,
            pod_level_resources,
            of: UtilizationOf::Request,
            fixes: Fixes::UPSTREAM.with(Fix::ActuatedRequestsCount),
        };
        let requests = PodRequests::of(pods, rules).ok()?.requests;
        let sum = requests.values().try_fold(0_i64, |sum, request| sum.checked_add(*request))?;
        sum.checked_div(i64::try_from(requests.len()).ok()?)
    }
}

/// The spec with the target of one metric as a rule says.
#[must_use]
pub fn with_rule(spec: &Spec, index: usize, rule: RatioRule) -> Spec {
    let mut spec = spec.clone();
    let source = spec.metrics.get_mut(index).map(|metric| &mut metric.source);
    if let Some(Source::Resource { target, .. } | Source::ContainerResource { target, .. }) = source
    {
        *target = match rule {
            RatioRule::Usage { average_milli } => Target {
                type_name: "AverageValue".to_owned(),
                average_value: Some(average_milli),
                ..Target::default()
            },
            RatioRule::Utilization { percent } => Target {
                type_name: "Utilization".to_owned(),
                average_utilization: Some(percent),
                ..Target::default()
            },
        };
    }
    spec
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{hpa::pod::Container, types::Quantity};

    fn spec(metrics: &Value) -> Spec {
        let spec = json!({"maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "metrics": metrics});
        Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("a valid spec")
    }

    fn template(requests: &[(&str, Option<&str>)]) -> Pod {
        let container = |(name, cpu): &(&str, Option<&str>)| Container {
            name: (*name).to_owned(),
            requests: cpu
                .map(|cpu| ("cpu".to_owned(), cpu.parse::<Quantity>().expect("a quantity")))
                .into_iter()
                .collect(),
            ..Container::default()
        };
        Pod { containers: requests.iter().map(container).collect(), ..Pod::default() }
    }

    #[test]
    fn only_utilization_of_requests_that_a_vpa_may_change_is_found() {
        let spec = spec(&json!([
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}},
            {"type": "Resource", "resource": {"name": "example.com/gpu",
                "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Resource", "resource": {"name": "memory",
                "target": {"type": "Utilization", "averageUtilization": 70}}},
            {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
                "target": {"type": "Utilization", "averageUtilization": 60}}},
        ]));
        let found: Vec<_> = request_metrics(&spec)
            .map(|metric| (metric.index, metric.resource, metric.container, metric.percent))
            .collect();
        assert_eq!(found, [(2, Resource::Memory, None, 70), (3, Resource::Cpu, Some("app"), 60)]);
    }

    #[test]
    fn the_mean_request_is_that_of_the_containers_that_the_metric_counts() {
        let metric =
            |container| RequestMetric { index: 0, resource: Resource::Cpu, container, percent: 60 };
        let named = |name: &str, pod: Pod| Pod { name: name.to_owned(), ..pod };
        let pod = named("a", template(&[("app", Some("400m")), ("proxy", Some("100m"))]));
        let mut resized = named("b", template(&[("app", Some("900m")), ("proxy", Some("100m"))]));
        resized.containers[0].actuated = pod.containers[0].requests.clone().into();
        let larger = named("c", template(&[("app", Some("800m")), ("proxy", Some("100m"))]));
        let none = named("d", template(&[("app", Some("400m")), ("proxy", None)]));
        for (pods, container, expected) in [
            (&[&pod][..], None, Some(500)),
            (&[&pod], Some("app"), Some(400)),
            (&[&pod], Some("db"), None),
            (&[&pod, &resized], None, Some(500)),
            (&[&pod, &larger], None, Some(700)),
            (&[&none], None, None),
            (&[&none], Some("app"), Some(400)),
            (&[&pod, &none], None, None),
            (&[], None, None),
        ] {
            assert_eq!(metric(container).mean_request(pods, true), expected, "{container:?}");
        }
    }

    #[test]
    fn a_rule_replaces_the_target() {
        let original = spec(&json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 60}}}]));
        let usage = with_rule(&original, 0, RatioRule::Usage { average_milli: 300 });
        assert_eq!(request_metrics(&usage).count(), 0);
        let as_user = spec(&json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "AverageValue", "averageValue": "300m"}}}]));
        assert_eq!(usage, as_user);
        assert_eq!(with_rule(&usage, 0, RatioRule::Utilization { percent: 60 }), original);
        assert_eq!(with_rule(&original, 7, RatioRule::Utilization { percent: 1 }), original);
    }
}
