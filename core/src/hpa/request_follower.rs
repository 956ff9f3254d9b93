//! A HorizontalPodAutoscaler as what VerticalPodAutoscalers have to know about it.

use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    follower_replicas::{observed_replicas, usage_per_pod},
    scale_point::request_metrics,
    spec::Spec,
    takeover::{ObjectMode, takeover},
};
use crate::{
    api::hpa_annotations::UTILIZATION_OF,
    coordination::{FollowedRequest, RequestFollower, Resource},
};

/// Reads an object.
pub fn request_follower(
    metadata: &ObjectMeta,
    spec: &HorizontalPodAutoscalerSpec,
    status: Option<&HorizontalPodAutoscalerStatus>,
) -> RequestFollower {
    let parsed = Spec::read(spec).ok();
    let requests = match &parsed {
        Some(spec) => request_metrics(spec)
            .map(|metric| FollowedRequest {
                resource: metric.resource,
                container: metric.container.map(Into::into),
                percent: Some(metric.percent),
                usage: usage_per_pod(spec, metric, status),
            })
            .collect(),
        // What cannot be read could be relative to any request.
        None => [Resource::Cpu, Resource::Memory]
            .map(|resource| FollowedRequest {
                resource,
                container: None,
                percent: None,
                usage: None,
            })
            .to_vec(),
    };
    RequestFollower {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        target_kind: spec.scale_target_ref.kind.as_str().into(),
        target_name: spec.scale_target_ref.name.as_str().into(),
        requests,
        replicas: parsed
            .as_ref()
            .map(|spec| observed_replicas(metadata, spec, status))
            .unwrap_or_default(),
        uses_scale_point: parsed
            .as_ref()
            .is_some_and(|spec| is_driven(metadata, spec) && may_use_scale_point(metadata)),
        uses_scale_point_if_replaced: parsed.is_some() && may_use_scale_point(metadata),
    }
}

/// Whether only Plimsoll changes the replicas, even beside the HPA controller of the cluster.
fn is_driven(metadata: &ObjectMeta, spec: &Spec) -> bool {
    let Some(annotations) = &metadata.annotations else { return false };
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    takeover(annotations, owners, spec).mode == ObjectMode::Drive
}

/// Whether the object does not ask for the utilization of anything else.
fn may_use_scale_point(metadata: &ObjectMeta) -> bool {
    !metadata.annotations.iter().any(|all| all.contains_key(UTILIZATION_OF.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn follower(metadata: &Value, behavior: &Value, target: &Value) -> RequestFollower {
        let spec = json!({
            "maxReplicas": 5, "behavior": behavior,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        });
        request_follower(
            &serde_json::from_value(metadata.clone()).expect("metadata"),
            &serde_json::from_value(spec).expect("a spec"),
            None,
        )
    }

    #[test]
    fn only_an_object_that_is_driven_follows_the_scale_point() {
        let utilization = json!({"type": "Utilization", "averageUtilization": 60});
        let disabled = json!({"selectPolicy": "Disabled"});
        let both = json!({"scaleUp": disabled, "scaleDown": disabled});
        let down = json!({"scaleDown": disabled});
        let drive = json!({"plimsoll.dev/hpa": "drive"});
        for (annotations, behavior, expected) in [
            (&json!({}), &both, false),
            (&drive, &both, true),
            (&drive, &down, false),
            (&json!({"plimsoll.dev/hpa": "assist"}), &down, false),
            (
                &json!({"plimsoll.dev/hpa": "drive", "plimsoll.dev/utilization-of": "request"}),
                &both,
                false,
            ),
        ] {
            let metadata = json!({"name": "web", "annotations": annotations});
            let follower = follower(&metadata, behavior, &utilization);
            assert_eq!(follower.uses_scale_point, expected, "{annotations} {behavior}");
            let asks_for_requests = annotations.get("plimsoll.dev/utilization-of").is_some();
            assert_eq!(follower.uses_scale_point_if_replaced, !asks_for_requests, "{annotations}");
            assert!(follower.scales("Deployment", "web") && !follower.scales("StatefulSet", "web"));
        }
        let scaled_object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "1", "controller": true});
        let owned =
            json!({"name": "web", "annotations": drive, "ownerReferences": [scaled_object]});
        assert!(!follower(&owned, &both, &utilization).uses_scale_point);
    }

    #[test]
    fn an_average_value_follows_no_request() {
        let average = json!({"type": "AverageValue", "averageValue": "300m"});
        let follower = follower(&json!({"name": "web"}), &json!({}), &average);
        assert!(follower.requests.is_empty());
    }

    #[test]
    fn an_object_that_cannot_be_read_follows_all_requests() {
        let broken = json!({"type": "AverageValue", "averageValue": "many"});
        let follower = follower(&json!({"name": "web"}), &json!({}), &broken);
        let resources: Vec<_> = follower.requests.iter().map(|one| one.resource).collect();
        assert_eq!(resources, [Resource::Cpu, Resource::Memory]);
    }
}
