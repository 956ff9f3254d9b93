//! A HorizontalPodAutoscaler as what VerticalPodAutoscalers have to know about it.

use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    follower_replicas::{observed_replicas, usage_per_pod},
    options::UtilizationOf,
    record::{HpaRecord, RECORD_ANNOTATION},
    retarget::object_targets,
    scale_point::{RequestMetric, request_metrics},
    shared_states::SharedStates,
    spec::Spec,
    takeover::{ObjectMode, takeover},
};
use crate::coordination::{FollowedRequest, RequestFollower, Resource, State};

/// Reads an object.
pub fn request_follower(
    metadata: &ObjectMeta,
    spec: &HorizontalPodAutoscalerSpec,
    status: Option<&HorizontalPodAutoscalerStatus>,
) -> RequestFollower {
    let parsed = Spec::read(spec).ok();
    let may_use_scale_point = parsed.is_some() && !follows_pods(utilization_of(metadata));
    let target = &spec.scale_target_ref;
    let stored = if may_use_scale_point {
        stored_states(metadata, (&target.kind, &target.name))
    } else {
        SharedStates::default()
    };
    let asks_for_template = utilization_of(metadata) == Some(UtilizationOf::Template);
    let state_of = |metric: RequestMetric<'_>| {
        let state = stored.state(metric.resource, metric.container);
        // A template without a request is an error then.
        State { first_requests: state.first_requests.filter(|_| !asks_for_template), ..state }
    };
    let requests = match &parsed {
        Some(spec) => request_metrics(spec)
            .map(|metric| FollowedRequest {
                resource: metric.resource,
                container: metric.container.map(Into::into),
                percent: Some(metric.percent),
                usage: usage_per_pod(spec, metric, status),
                state: state_of(metric),
            })
            .collect(),
        // What cannot be read could be relative to any request.
        None => [Resource::Cpu, Resource::Memory]
            .map(|resource| FollowedRequest {
                resource,
                container: None,
                percent: None,
                usage: None,
                state: State::default(),
            })
            .to_vec(),
    };
    RequestFollower {
        name: metadata.name.as_deref().unwrap_or_default().into(),
        target_kind: target.kind.as_str().into(),
        target_name: target.name.as_str().into(),
        requests,
        replicas: parsed
            .as_ref()
            .map(|spec| observed_replicas(metadata, spec, status))
            .unwrap_or_default(),
        uses_scale_point: may_use_scale_point
            && parsed.as_ref().is_some_and(|spec| is_driven(metadata, spec)),
        uses_scale_point_if_replaced: may_use_scale_point,
        targets: parsed.as_ref().map(|spec| object_targets(metadata, spec)).unwrap_or_default(),
    }
}

/// What the controller of the replicas has stored. A record that cannot be read is ignored.
fn stored_states(metadata: &ObjectMeta, target: (&str, &str)) -> SharedStates {
    let text = metadata.annotations.as_ref().and_then(|all| all.get(RECORD_ANNOTATION));
    let record = text.and_then(|text| HpaRecord::parse(text).ok());
    let uid = metadata.uid.as_deref();
    record.map(|record| SharedStates::of_record(&record, uid, target)).unwrap_or_default()
}

/// Whether only Plimsoll changes the replicas, even beside the HPA controller of the cluster.
fn is_driven(metadata: &ObjectMeta, spec: &Spec) -> bool {
    let Some(annotations) = &metadata.annotations else { return false };
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    takeover(annotations, owners, spec).mode == ObjectMode::Drive
}

/// What the object asks for the utilization of. An invalid annotation is ignored.
fn utilization_of(metadata: &ObjectMeta) -> Option<UtilizationOf> {
    UtilizationOf::read(metadata.annotations.as_ref()?).ok().flatten()
}

/// Whether the replicas follow what the pods have, although a VPA may change that.
pub(super) fn follows_pods(utilization_of: Option<UtilizationOf>) -> bool {
    matches!(utilization_of, Some(UtilizationOf::Request | UtilizationOf::Limit))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::coordination::{ContainerRequests, SharingContext, TemplateRequests};

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
        let utilization_of =
            |of: &str| json!({"plimsoll.dev/hpa": "drive", "plimsoll.dev/utilization-of": of});
        for (annotations, behavior, expected) in [
            (&json!({}), &both, false),
            (&drive, &both, true),
            (&drive, &down, false),
            (&json!({"plimsoll.dev/hpa": "assist"}), &down, false),
            (&utilization_of("request"), &both, false),
            (&utilization_of("limit"), &both, false),
            (&utilization_of("template"), &both, true),
            // It is ignored.
            (&utilization_of("limits"), &both, true),
        ] {
            let metadata = json!({"name": "web", "annotations": annotations});
            let follower = follower(&metadata, behavior, &utilization);
            assert_eq!(follower.uses_scale_point, expected, "{annotations} {behavior}");
            let utilization_of = annotations.get("plimsoll.dev/utilization-of");
            let follows_pods = utilization_of.is_some_and(|of| of == "request" || of == "limit");
            assert_eq!(follower.uses_scale_point_if_replaced, !follows_pods, "{annotations}");
            assert!(follower.scales("Deployment", "web") && !follower.scales("StatefulSet", "web"));
        }
        let scaled_object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "1", "controller": true});
        let owned =
            json!({"name": "web", "annotations": drive, "ownerReferences": [scaled_object]});
        assert!(!follower(&owned, &both, &utilization).uses_scale_point);
    }

    #[test]
    fn what_is_stored_about_a_request_counts_if_the_replicas_follow_the_scale_point() {
        let utilization = json!({"type": "Utilization", "averageUtilization": 60});
        let disabled = json!({"selectPolicy": "Disabled"});
        let both = json!({"scaleUp": disabled, "scaleDown": disabled});
        let record = |uid: &str, target: &str| {
            let requests = json!({"cpu": {"firstRequests": 400}});
            json!({"memory": {"uid": uid}, "sharedRequests": {"target": target, "requests": requests}})
        };
        let own = record("1", "Deployment/web");
        let container = ContainerRequests { name: "app".into(), cpu: None, memory: None };
        let no_request: TemplateRequests = [container].into_iter().collect();
        // 60 % of the first requests.
        for (mode, record, expected, if_replaced) in [
            ("drive", own.to_string(), Some(240), Some(240)),
            ("assist", own.to_string(), None, Some(240)),
            ("drive", record("2", "Deployment/web").to_string(), None, None),
            ("drive", record("1", "Deployment/db").to_string(), None, None),
            ("drive", json!({"memory": {"uid": "1"}}).to_string(), None, None),
            ("drive", own.to_string().replace("400", "\"many\""), None, None),
            ("drive", "{".to_owned(), None, None),
        ] {
            let annotations = json!({"plimsoll.dev/hpa": mode, RECORD_ANNOTATION: record});
            let metadata = json!({"name": "web", "uid": "1", "annotations": annotations});
            let follower = follower(&metadata, &both, &utilization);
            let scale_point = |is_replaced| {
                let context = SharingContext { is_replaced, ..SharingContext::default() };
                let shared = follower.shared_requests(Some(&no_request), context).next();
                let point = shared.expect("it follows one request").scale_point;
                point.map(|point| point.milli)
            };
            assert_eq!(scale_point(false), expected, "{mode} {record}");
            assert_eq!(scale_point(true), if_replaced, "{mode} {record}");
        }
        let annotations = json!({"plimsoll.dev/hpa": "drive", RECORD_ANNOTATION: own.to_string(),
            "plimsoll.dev/utilization-of": "template"});
        let metadata = json!({"name": "web", "uid": "1", "annotations": annotations});
        let template = follower(&metadata, &both, &utilization);
        assert_eq!(template.requests[0].state, State::default(), "only the template counts");
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
