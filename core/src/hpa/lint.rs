//! What is likely a mistake in a HorizontalPodAutoscaler, although the API server accepts it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{
    error::MetricError,
    fixes::{Fix, Fixes},
    options::UtilizationOf,
    pod::Pod,
    requests::{PodRequests, RequestRules},
    spec::{SelectPolicy, Source, Spec, Target},
    takeover::{BEHAVIOR, IneffectiveMode, MODE, ObjectMode, PAUSED, SavedBehavior, takeover},
};
use crate::api::vpa::{UpdateMode, VerticalPodAutoscalerSpec};

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

/// Likely mistakes in an object alone: in the rules that apply to it, and in the annotations that hand it over.
pub fn object_warnings(
    annotations: &BTreeMap<String, String>,
    owners: &[OwnerReference],
    spec: &Spec,
) -> Vec<Warning> {
    let found = takeover(annotations, owners, spec);
    let is_paused = annotations.contains_key(PAUSED);
    let mut warnings = spec_warnings(&found.effective_spec(spec));
    // A paused object is meant not to be scaled.
    let is_pause =
        |code: &str| is_paused && matches!(code, "both_directions_disabled" | "scale_up_disabled");
    warnings.retain(|warning| !is_pause(warning.code));
    let mut warn = |code, message: String| warnings.push(Warning { code, message });
    let is_disabled = |policy: SelectPolicy| policy == SelectPolicy::Disabled;
    let (up, down) = spec.behavior.as_ref().map_or((false, false), |behavior| {
        let (up, down) = (&behavior.scale_up, &behavior.scale_down);
        (is_disabled(up.select_policy), is_disabled(down.select_policy))
    });
    let is_invalid = match &found.ineffective {
        Some(reason) => {
            let code = match reason {
                IneffectiveMode::InvalidMode(_) => "invalid_mode",
                IneffectiveMode::Owned { .. } => "mode_of_owned_object",
                IneffectiveMode::BuiltinActs { .. } => "mode_without_disabled_direction",
                IneffectiveMode::InvalidBehavior { .. } => "invalid_behavior",
            };
            warn(code, reason.to_string());
            matches!(reason, IneffectiveMode::InvalidBehavior { .. })
        }
        None => false,
    };
    // Without a mode it is read once the object is released or resumed.
    if let (Err(error), false) = (SavedBehavior::read(annotations), is_invalid) {
        warn("invalid_behavior", error.to_string());
    }
    if found.mode == ObjectMode::Assist && up && !is_paused {
        let message = format!(
            "{}: assist: spec.behavior.scaleUp is disabled too, so nothing adds replicas; for that, run plimsoll hpa adopt \
             without --assist",
            MODE.name
        );
        warn("assist_without_scale_up", message);
    }
    let is_adopted = annotations.contains_key(MODE.name);
    if annotations.contains_key(BEHAVIOR.name) && !is_adopted && !is_paused {
        let message = if up || down {
            format!(
                "spec.behavior is disabled, and annotation {} keeps the rules for it, but {} is not set, so nothing scales: \
                 run plimsoll hpa release, or adopt",
                BEHAVIOR.name, MODE.name
            )
        } else {
            format!("annotation {} has no effect without {}", BEHAVIOR.name, MODE.name)
        };
        warn("behavior_without_mode", message);
    }
    if annotations.get(PAUSED).is_some_and(|value| value == "all")
        && found.mode != ObjectMode::Drive
        && !(up && down)
    {
        let message = format!(
            "{PAUSED}: all: the built-in controller acts, because spec.behavior does not disable both directions; run plimsoll \
             hpa pause"
        );
        warn("paused_without_disabled_direction", message);
    }
    warnings
}

/// Metrics that fail because a request is missing that their target is a percentage of.
pub fn request_warnings(spec: &Spec, pods: &[&Pod]) -> Vec<Warning> {
    let fixes = Fixes::UPSTREAM.with(Fix::MessagesStandStill);
    let mut warnings = Vec::new();
    for metric in &spec.metrics {
        let (resource, container, target) = match &metric.source {
            Source::Resource { resource, target } => (resource, None, target),
            Source::ContainerResource { resource, container, target } => {
                (resource, Some(container.as_str()), target)
            }
            Source::Pods { .. }
            | Source::Object { .. }
            | Source::External { .. }
            | Source::Prometheus { .. }
            | Source::Unknown => continue,
        };
        if !is_relative_to_request(target) {
            continue;
        }
        let rules = RequestRules {
            resource,
            container,
            pod_level_resources: true,
            of: UtilizationOf::Request,
            fixes,
        };
        if let Err(error) = PodRequests::of(pods, rules) {
            warnings.push(request_warning(resource, &error));
        }
    }
    warnings
}

fn request_warning(resource: &str, error: &MetricError) -> Warning {
    let message = format!(
        "the target for {resource} is a percentage of the request, and the metric fails: {error}; set the request, or use a \
         ContainerResource metric"
    );
    Warning { code: "missing_request", message }
}

/// The warning about a VPA that changes the requests of these resources.
pub fn contested_warning(vpa: &str, resources: &[&str]) -> Warning {
    let resources = resources.join(" and ");
    let message = format!(
        "VerticalPodAutoscaler {vpa} changes the requests of {resources} that the target is a percentage of, so each \
         change of a request also changes the number of replicas: use an AverageValue target, or exclude {resources} \
         from the VPA with controlledResources"
    );
    Warning { code: "vpa_same_resource", message }
}

/// The warning about other objects that select the same pods. The HPA controller then scales for none of them.
pub fn overlap_warning(others: &[&str]) -> Warning {
    let message = format!(
        "its pods are also selected by HorizontalPodAutoscaler {}, so the HPA controller scales neither: delete one of them, \
         or give each workload labels of its own",
        others.join(", ")
    );
    Warning { code: "overlapping_selectors", message }
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
    resource.parse().is_ok_and(|resource| {
        vpa.container_policy(container).is_none_or(|policy| policy.controls(resource))
    })
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

    #[test]
    fn annotations_that_do_not_fit_the_spec_are_warned_about() {
        let disabled = json!({"selectPolicy": "Disabled"});
        let pair = json!({"behavior": {"scaleUp": disabled, "scaleDown": disabled}});
        let down = json!({"behavior": {"scaleDown": disabled}});
        let (mode, behavior, paused) = (MODE.name, BEHAVIOR.name, PAUSED);
        for (annotations, extra, expected) in [
            (&[][..], pair.clone(), &["both_directions_disabled"][..]),
            (&[(mode, "drive")], pair.clone(), &[]),
            (&[(mode, "assist")], down.clone(), &[]),
            (&[(mode, "drive")], json!({}), &["mode_without_disabled_direction"]),
            (&[(mode, "on")], json!({}), &["invalid_mode"]),
            (
                &[(mode, "drive"), (behavior, "{")],
                pair.clone(),
                &["both_directions_disabled", "invalid_behavior"],
            ),
            // Its rules apply, so they are checked.
            (
                &[
                    (mode, "drive"),
                    (behavior, "{\"scaleDown\": {\"stabilizationWindowSeconds\": 0}}"),
                ],
                pair.clone(),
                &["no_scale_down_window"],
            ),
            (&[(mode, "assist")], pair.clone(), &["scale_up_disabled", "assist_without_scale_up"]),
            (
                &[(behavior, "null")],
                pair.clone(),
                &["both_directions_disabled", "behavior_without_mode"],
            ),
            (&[(behavior, "5")], json!({}), &["invalid_behavior", "behavior_without_mode"]),
            (&[(paused, "all"), (behavior, "null")], pair.clone(), &[]),
            (&[(mode, "assist"), (paused, "all")], pair, &[]),
            (&[(paused, "all")], down, &["paused_without_disabled_direction"]),
        ] {
            let annotations = annotations.iter();
            let annotations: BTreeMap<_, _> =
                annotations.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let found = object_warnings(&annotations, &[], &spec(&extra));
            let codes: Vec<_> = found.iter().map(|warning| warning.code).collect();
            assert_eq!(codes, expected, "{annotations:?} {extra}: {found:?}");
        }
    }

    #[test]
    fn a_percentage_of_a_request_that_is_missing_is_warned_about() {
        let cpu = |name: &str, cpu: Option<&str>| Container {
            name: name.to_owned(),
            requests: cpu
                .map(|cpu| ("cpu".to_owned(), cpu.parse().expect("a quantity")))
                .into_iter()
                .collect(),
            ..Container::default()
        };
        let pod = Pod {
            name: "web-1".to_owned(),
            containers: vec![cpu("app", Some("100m")), cpu("proxy", None)],
            ..Pod::default()
        };
        let utilization = json!({"type": "Utilization", "averageUtilization": 60});
        let all = json!([{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}]);
        let average = json!([{"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "1"}}}]);
        let of = |container: &str| {
            json!([{"type": "ContainerResource",
                "containerResource": {"name": "cpu", "container": container, "target": utilization}}])
        };
        for (metrics, is_warned) in
            [(all, true), (average, false), (of("app"), false), (of("proxy"), true)]
        {
            let warnings = request_warnings(&spec(&json!({"metrics": metrics})), &[&pod]);
            assert_eq!(!warnings.is_empty(), is_warned, "{metrics}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.message.contains("proxy of Pod web-1")));
        }
    }
}
