//! Warns about likely mistakes in HorizontalPodAutoscalers that are created or changed. None is ever denied.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt as _;

use super::watches::WatchStores;
use crate::cluster::server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer};
use plimsoll_core::{
    admission::validation::ValidationResult,
    api::VerticalPodAutoscaler,
    hpa::{
        Pod, Spec,
        lint::{contested_resources, contested_warning, object_warnings},
        pod::Container,
        takeover::{BEHAVIOR, MODE, PAUSED},
    },
};

pub(super) struct HpaReviewer(pub Arc<WatchStores>);

#[async_trait]
impl Reviewer for HpaReviewer {
    fn resource(&self) -> &'static str {
        "HPA"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        let text = request.object.unwrap_or_default();
        let Ok(object) = serde_json::from_str::<HorizontalPodAutoscaler>(text) else {
            // The API server validates the object.
            return AdmissionDecision::allow("unreadable");
        };
        let old = request.old_object.and_then(|old| serde_json::from_str(old).ok());
        let is_terminating = object.metadata.deletion_timestamp.is_some();
        if is_terminating || old.is_some_and(|old| is_unchanged(&object, &old)) {
            return AdmissionDecision::allow("unchanged");
        }
        let Some(spec) = object.spec.as_ref() else { return AdmissionDecision::allow("valid") };
        let target = &spec.scale_target_ref;
        let vpas = self.0.vpas(&request.namespace, &target.kind, &target.name);
        let warnings = warnings(&object, &vpas);
        let result = ValidationResult { warnings, ..ValidationResult::default() }.truncated();
        AdmissionDecision::allow("valid").with_warnings(result.warnings)
    }
}

/// Whether nothing changed that warnings are about: a controller may write other annotations all the time.
fn is_unchanged(new: &HorizontalPodAutoscaler, old: &HorizontalPodAutoscaler) -> bool {
    let annotations = |object: &HorizontalPodAutoscaler| {
        [MODE.name, BEHAVIOR.name, PAUSED].map(|key| object.annotations().get(key).cloned())
    };
    new.spec == old.spec && annotations(new) == annotations(old)
}

fn warnings(object: &HorizontalPodAutoscaler, vpas: &[Arc<VerticalPodAutoscaler>]) -> Vec<String> {
    let Ok(spec) = Spec::read(&object.spec.clone().unwrap_or_default()) else { return Vec::new() };
    let mut warnings = object_warnings(object.annotations(), object.owner_references(), &spec);
    for vpa in vpas {
        let contested = contested_resources(&spec, &[&known_containers(vpa)], &vpa.spec);
        if !contested.is_empty() {
            warnings.push(contested_warning(&vpa.name_any(), &contested));
        }
    }
    warnings.into_iter().map(|warning| warning.message).collect()
}

/// A pod with the containers that the VPA has policies for; the pods themselves are not read. Without a policy for a
/// container of this name, its policy for all others applies to all.
fn known_containers(vpa: &VerticalPodAutoscaler) -> Pod {
    let policies = vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    let names = policies.map(|policy| policy.container_name.clone());
    let mut names: Vec<_> = names.filter(|name| name != "*").collect();
    if names.is_empty() {
        names.push("*".to_owned());
    }
    let containers = names.into_iter().map(|name| Container { name, ..Container::default() });
    Pod { containers: containers.collect(), ..Pod::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(annotations: &Value, behavior: &Value) -> HorizontalPodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2, "maxReplicas": 5, "behavior": behavior,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 60}}}],
            },
        }))
        .expect("an object")
    }

    #[test]
    fn annotations_that_do_not_fit_the_spec_give_a_warning() {
        let disabled = json!({"selectPolicy": "Disabled"});
        let pair = json!({"scaleUp": disabled, "scaleDown": disabled});
        let drive = json!({"plimsoll.dev/hpa": "drive", "plimsoll.dev/behavior": "{"});
        let found = warnings(&object(&drive, &Value::Null), &[]);
        assert!(found[0].contains("is not Disabled, so the built-in controller acts"), "{found:?}");
        let found = warnings(&object(&drive, &pair), &[]);
        assert!(found.iter().any(|text| text.contains("annotation plimsoll.dev/behavior: EOF")));
        let drive = json!({"plimsoll.dev/hpa": "drive"});
        assert_eq!(warnings(&object(&drive, &pair), &[]), [""; 0]);
        let found = warnings(&object(&json!({}), &pair), &[]);
        assert!(found[0].contains("disables both directions"), "{found:?}");
    }

    #[test]
    fn a_vpa_that_changes_the_request_gives_a_warning() {
        let vpa = |policies: Value| {
            let object = json!({"metadata": {"name": "sizes"}, "spec": {
                "targetRef": {"kind": "Deployment", "name": "web"},
                "resourcePolicy": {"containerPolicies": policies}}});
            [Arc::new(serde_json::from_value(object).expect("a VPA"))]
        };
        let object = object(&json!({}), &Value::Null);
        assert!(warnings(&object, &vpa(json!([])))[0].contains("VerticalPodAutoscaler sizes"));
        let memory = json!([{"containerName": "*", "controlledResources": ["memory"]}]);
        assert_eq!(warnings(&object, &vpa(memory)), [""; 0]);
        let off = json!([{"containerName": "app", "mode": "Off"}]);
        assert_eq!(warnings(&object, &vpa(off)), [""; 0]);
    }

    #[test]
    fn other_annotations_do_not_count_as_a_change() {
        let old = object(&json!({}), &Value::Null);
        let decided = object(&json!({"plimsoll.dev/decision": "{}"}), &Value::Null);
        assert!(is_unchanged(&decided, &old));
        assert!(!is_unchanged(&object(&json!({"plimsoll.dev/hpa": "drive"}), &Value::Null), &old));
    }
}
