//! What is likely a mistake in a HorizontalPodAutoscaler, although the API server accepts it.

use super::{
    pod::Pod,
    spec::{SelectPolicy, Source, Spec, Target},
};
use crate::api::{
    resource_list::ResourceName,
    vpa::{ContainerMode, UpdateMode, VerticalPodAutoscalerSpec},
};

/// From this length on, a stabilization window delays scaling up for longer than a rise of load usually lasts.
const LONG_SCALE_UP_WINDOW_SECONDS: i32 = 300;

/// A likely mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A stable identifier, independent of the message.
    pub code: &'static str,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Likely mistakes in the spec alone.
pub fn spec_warnings(spec: &Spec) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, message: String| warnings.push(Warning { code, message });
    if spec.min_replicas == spec.max_replicas {
        let message = format!(
            "minReplicas and maxReplicas are both {}, so replicas never change",
            spec.max_replicas
        );
        warn("min_equals_max", message);
    }
    let Some(behavior) = &spec.behavior else { return warnings };
    let is_disabled = |policy: SelectPolicy| policy == SelectPolicy::Disabled;
    if is_disabled(behavior.scale_up.select_policy)
        && is_disabled(behavior.scale_down.select_policy)
    {
        let message = "spec.behavior disables both directions, so replicas only change to stay within minReplicas and \
                       maxReplicas";
        warn("both_directions_disabled", message.to_owned());
    } else if is_disabled(behavior.scale_up.select_policy) {
        let message =
            "spec.behavior.scaleUp is disabled: replicas are never added, except up to minReplicas";
        warn("scale_up_disabled", message.to_owned());
    }
    let up_window = behavior.scale_up.stabilization_window_seconds.unwrap_or(0);
    if up_window >= LONG_SCALE_UP_WINDOW_SECONDS {
        let message = format!(
            "spec.behavior.scaleUp.stabilizationWindowSeconds is {up_window}: replicas are added only after the metrics have \
             asked for them for that long"
        );
        warn("long_scale_up_window", message);
    }
    if behavior.scale_down.stabilization_window_seconds == Some(0)
        && !is_disabled(behavior.scale_down.select_policy)
    {
        let message = "spec.behavior.scaleDown.stabilizationWindowSeconds is 0: each short drop of a metric removes replicas";
        warn("no_scale_down_window", message.to_owned());
    }
    warnings
}

/// The resources of which a VPA changes the requests that a `Utilization` target is relative to: each request that the VPA
/// lowers raises the utilization, and so the replicas.
pub fn contested_resources<'a>(
    spec: &'a Spec,
    pods: &[&Pod],
    vpa: &VerticalPodAutoscalerSpec,
) -> Vec<&'a str> {
    if vpa.update_mode() == UpdateMode::Off {
        return Vec::new();
    }
    let mut contested: Vec<&str> = Vec::new();
    for metric in &spec.metrics {
        let (resource, container, target) = match &metric.source {
            Source::Resource { resource, target } => (resource, None, target),
            Source::ContainerResource { resource, container, target } => {
                (resource, Some(container), target)
            }
            Source::Pods { .. }
            | Source::Object { .. }
            | Source::External { .. }
            | Source::Prometheus { .. }
            | Source::Unknown => {
                continue;
            }
        };
        let containers = pods.iter().flat_map(|pod| &pod.containers);
        let mut containers =
            containers.filter(|one| container.is_none_or(|name| *name == one.name));
        let is_contested = is_relative_to_request(target)
            && containers.any(|container| is_controlled(vpa, &container.name, resource));
        if is_contested && !contested.contains(&&**resource) {
            contested.push(resource);
        }
    }
    contested
}

fn is_relative_to_request(target: &Target) -> bool {
    target.average_value.is_none() && target.average_utilization.is_some()
}

/// Whether a VPA changes the request of a resource of a container.
fn is_controlled(vpa: &VerticalPodAutoscalerSpec, container: &str, resource: &str) -> bool {
    let resource = match resource {
        "cpu" => ResourceName::Cpu,
        "memory" => ResourceName::Memory,
        _ => return false,
    };
    let Some(policy) = vpa.container_policy(container) else { return true };
    policy.mode != Some(ContainerMode::Off)
        && policy.controlled_resources.as_ref().is_none_or(|names| names.contains(&resource))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::hpa::pod::Container;

    fn spec(extra: &Value) -> Spec {
        let mut spec = json!({"minReplicas": 2, "maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"}});
        for (name, value) in extra.as_object().expect("an object") {
            spec[name] = value.clone();
        }
        Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("a valid spec")
    }

    #[test]
    fn a_spec_that_cannot_do_what_it_seems_to_is_warned_about() {
        let disabled = json!({"selectPolicy": "Disabled"});
        for (extra, expected) in [
            (json!({}), &[][..]),
            (json!({"minReplicas": 10}), &["min_equals_max"]),
            (
                json!({"behavior": {"scaleUp": disabled, "scaleDown": disabled}}),
                &["both_directions_disabled"],
            ),
            (json!({"behavior": {"scaleUp": disabled}}), &["scale_up_disabled"]),
            (json!({"behavior": {"scaleDown": disabled}}), &[]),
            (
                json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 300}}}),
                &["long_scale_up_window"],
            ),
            (
                json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}),
                &["no_scale_down_window"],
            ),
        ] {
            let codes: Vec<_> =
                spec_warnings(&spec(&extra)).iter().map(|warning| warning.code).collect();
            assert_eq!(codes, expected, "{extra}");
        }
    }

    #[test]
    fn a_vpa_contests_the_resources_that_it_changes_and_that_utilization_is_relative_to() {
        let utilization = json!({"type": "Utilization", "averageUtilization": 60});
        let average = json!({"type": "AverageValue", "averageValue": "500m"});
        let resource = |name: &str, target: &Value| json!([{"type": "Resource", "resource": {"name": name, "target": target}}]);
        let of_container = |name: &str| {
            json!([{"type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": name, "target": utilization}}])
        };
        let policies = |policies: Value| json!({"resourcePolicy": {"containerPolicies": policies}});
        let container = |name: &str| Container { name: name.to_owned(), ..Container::default() };
        let pod = Pod { containers: vec![container("app"), container("proxy")], ..Pod::default() };
        for (metrics, vpa, expected) in [
            (resource("cpu", &utilization), json!({}), &["cpu"][..]),
            (resource("memory", &utilization), json!({}), &["memory"]),
            (resource("example.com/gpu", &utilization), json!({}), &[]),
            // The target does not depend on the request.
            (resource("cpu", &average), json!({}), &[]),
            (resource("cpu", &utilization), json!({"updatePolicy": {"updateMode": "Off"}}), &[]),
            (
                resource("cpu", &utilization),
                policies(json!([{"containerName": "*", "controlledResources": ["memory"]}])),
                &[],
            ),
            (
                resource("cpu", &utilization),
                policies(json!([{"containerName": "*", "mode": "Off"}])),
                &[],
            ),
            // One of two containers is enough.
            (
                resource("cpu", &utilization),
                policies(json!([{"containerName": "app", "mode": "Off"}])),
                &["cpu"],
            ),
            (of_container("app"), policies(json!([{"containerName": "app", "mode": "Off"}])), &[]),
            (of_container("app"), json!({}), &["cpu"]),
        ] {
            let mut object = json!({"targetRef": {"kind": "Deployment", "name": "web"}});
            for (name, value) in vpa.as_object().expect("an object") {
                object[name] = value.clone();
            }
            let vpa: VerticalPodAutoscalerSpec = serde_json::from_value(object).expect("a VPA");
            let spec = spec(&json!({"metrics": metrics}));
            assert_eq!(contested_resources(&spec, &[&pod], &vpa), expected, "{metrics}");
        }
    }
}
