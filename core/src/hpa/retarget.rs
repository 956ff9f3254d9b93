//! Writes the target of an object together with the requests that it is relative to, while another controller scales it.

use k8s_openapi::{
    api::autoscaling::v2::HorizontalPodAutoscaler, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

use super::{
    options::UtilizationOf,
    scale_point::request_metrics,
    spec::Spec,
    takeover::{ObjectMode, controlling_owner, takeover},
};
use crate::{
    coordination::{
        CurrentTarget, ObjectTargets, RecordedTarget, Resource, TargetChange, TargetRecord,
    },
    types::Time,
};

/// The annotation that holds the record of the targets.
pub const SCALE_POINT_ANNOTATION: &str = "plimsoll.dev/scale-point";

/// Why a target is not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Another rule applies to the object by now.
    #[error("it has changed since the decision: {0}")]
    Changed(String),
    /// The object has no such target.
    #[error("it has no averageUtilization for {0}")]
    NotFound(Resource),
    /// The object has no version.
    #[error("its resourceVersion or spec is missing or invalid")]
    Unreadable,
}

/// What an object shows of its targets. A record that cannot be read counts as missing.
pub fn object_targets(metadata: &ObjectMeta, spec: &Spec) -> ObjectTargets {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = controlling_owner(owners);
    let owner = owner.map(|owner| (owner.kind.as_str().into(), owner.name.as_str().into()));
    let annotations = metadata.annotations.clone().unwrap_or_default();
    let text = annotations.get(SCALE_POINT_ANNOTATION);
    let record = text.and_then(|text| TargetRecord::parse(text).ok()).unwrap_or_default();
    let is_driven = takeover(&annotations, owners, spec).mode == ObjectMode::Drive;
    // With the option, Plimsoll computes something else from the target than the HPA controller of the cluster. An invalid
    // one could be meant for that.
    let has_option = !matches!(UtilizationOf::read(&annotations), Ok(None));
    ObjectTargets { record, owner, may_follow: !is_driven && !has_option }
}

/// The patch of an object that was just read for a change of a target; `None` if it has the target and its record already.
pub fn target_change_patch(
    object: &HorizontalPodAutoscaler,
    change: &TargetChange,
    now: Time,
) -> Result<Option<Value>, TargetError> {
    let (metadata, version) = (&object.metadata, object.metadata.resource_version.as_deref());
    let spec = object.spec.as_ref().and_then(|spec| Spec::read(spec).ok());
    let (Some(version), Some(spec)) = (version, spec) else { return Err(TargetError::Unreadable) };
    let decided = &change.target;
    let container = decided.container.as_deref();
    let metric = request_metrics(&spec)
        .find(|metric| metric.resource == decided.resource && metric.container == container)
        .ok_or(TargetError::NotFound(decided.resource))?;
    let ObjectTargets { record, owner, may_follow } = object_targets(metadata, &spec);
    if !may_follow {
        return Err(TargetError::Changed("its replicas follow another rule".to_owned()));
    }
    let owner = owner.as_ref().map(|(kind, name)| (&**kind, &**name));
    let percent = metric.percent;
    let current = CurrentTarget { resource: decided.resource, container, percent };
    let found = record
        .review(current, Some(decided.template), owner, now)
        .map_err(|refusal| TargetError::Changed(refusal.to_string()))?;
    if found.target.scale_point != decided.scale_point {
        return Err(TargetError::Changed("the scale point is another one".to_owned()));
    }
    // The admission controller needs the record even of a target that stays.
    if percent == change.percent && found.is_recorded {
        return Ok(None);
    }
    let record = record.with_target(&found, change.percent, now);
    let has_annotations = metadata.annotations.is_some();
    let RecordedTarget { resource, .. } = found.target;
    target_patch(&spec, version, has_annotations, &found.target, change.percent, &record)
        .map(Some)
        .ok_or(TargetError::NotFound(resource))
}

/// The patch that writes the target of a metric together with the record, in one request; `None` if the object has no such
/// metric. It fails if the object is not the one that was read. `has_annotations` is whether the object has any.
pub fn target_patch(
    spec: &Spec,
    resource_version: &str,
    has_annotations: bool,
    target: &RecordedTarget,
    percent: i32,
    record: &TargetRecord,
) -> Option<Value> {
    let metric = request_metrics(spec).find(|metric| {
        metric.resource == target.resource && metric.container == target.container.as_deref()
    })?;
    let source = if metric.container.is_some() { "containerResource" } else { "resource" };
    let path = format!("/spec/metrics/{}/{source}/target/averageUtilization", metric.index);
    // The key of the annotation, in a JSON pointer.
    let annotation = format!("/metadata/annotations/{}", SCALE_POINT_ANNOTATION.replace('/', "~1"));
    let text = serde_json::to_string(record).ok()?;
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": resource_version}),
        json!({"op": "test", "path": path, "value": metric.percent}),
        json!({"op": "replace", "path": path, "value": percent}),
    ];
    if !has_annotations {
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    operations.push(json!({"op": "add", "path": annotation, "value": text}));
    Some(Value::Array(operations))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn object(annotations: &Value, percent: i32) -> HorizontalPodAutoscaler {
        let object = json!({
            "metadata": {"name": "web", "resourceVersion": "7", "annotations": annotations},
            "spec": {"maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": percent}}}]},
        });
        serde_json::from_value(object).expect("an HPA")
    }

    /// A change of the user's target of 60 % of 500m in the template.
    fn change(percent: i32) -> TargetChange {
        let current = CurrentTarget { resource: Resource::Cpu, container: None, percent: 60 };
        let found = TargetRecord::default().review(current, Some(500), None, NOW);
        TargetChange { hpa: "web".into(), target: found.expect("allowed").target, percent }
    }

    fn written_record(patch: &Value) -> TargetRecord {
        let operations = patch.as_array().expect("operations");
        let text = operations.last().expect("the record")["value"].as_str().expect("text");
        TargetRecord::parse(text).expect("a record")
    }

    #[test]
    fn a_target_is_written_with_its_record_unless_the_object_has_it() {
        let patch = target_change_patch(&object(&json!({}), 60), &change(75), NOW);
        let patch = patch.expect("allowed").expect("a patch");
        assert_eq!(patch[0]["value"], "7");
        assert_eq!(patch[2]["value"], 75);
        let record = written_record(&patch);
        let kept = &record.metrics[0];
        assert_eq!((kept.original, kept.written, kept.scale_point), (60, 75, 300));
        let text = serde_json::to_string(&record).expect("JSON");
        let written = json!({SCALE_POINT_ANNOTATION: text});
        assert_eq!(target_change_patch(&object(&written, 75), &change(75), NOW), Ok(None));
        // A target that stays is recorded once.
        let same = target_change_patch(&object(&json!({}), 60), &change(60), NOW);
        let record = written_record(&same.expect("allowed").expect("a patch"));
        let text = serde_json::to_string(&record).expect("JSON");
        let recorded = object(&json!({SCALE_POINT_ANNOTATION: text}), 60);
        assert_eq!(target_change_patch(&recorded, &change(60), NOW), Ok(None));
        // The next step.
        let next = target_change_patch(&object(&written, 75), &change(80), NOW);
        let record = written_record(&next.expect("allowed").expect("a patch"));
        assert_eq!((record.metrics[0].original, record.metrics[0].written), (60, 80));
        // Another client has written the original target, and does it again.
        let reset = target_change_patch(&object(&written, 60), &change(75), NOW);
        let record = written_record(&reset.expect("once").expect("a patch"));
        assert_eq!(record.resets, [NOW]);
        let text = serde_json::to_string(&record).expect("JSON");
        let again = object(&json!({SCALE_POINT_ANNOTATION: text}), 60);
        let refused = target_change_patch(&again, &change(75), NOW).expect_err("refused");
        assert!(refused.to_string().contains("again 2 times within an hour"), "{refused}");
    }

    #[test]
    fn a_target_is_not_written_if_the_object_is_another_one_by_now() {
        let drive = json!({"plimsoll.dev/hpa": "drive"});
        let mut driven = object(&drive, 60);
        let disabled = json!({"scaleUp": {"selectPolicy": "Disabled"},
            "scaleDown": {"selectPolicy": "Disabled"}});
        let spec = driven.spec.as_mut().expect("a spec");
        spec.behavior = serde_json::from_value(disabled).expect("a behavior");
        let mut by_keda = object(&json!({}), 60);
        let owner = json!([{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web",
            "uid": "1", "controller": true}]);
        by_keda.metadata.owner_references = serde_json::from_value(owner).expect("an owner");
        let mut unversioned = object(&json!({}), 60);
        unversioned.metadata.resource_version = None;
        let mut without = object(&json!({}), 60);
        without.spec.as_mut().expect("a spec").metrics = None;
        let by_limits = object(&json!({"plimsoll.dev/utilization-of": "limit"}), 60);
        let invalid = object(&json!({"plimsoll.dev/utilization-of": "limits"}), 60);
        for (object, expected) in [
            (&driven, "follow another rule"),
            (&by_limits, "follow another rule"),
            (&invalid, "follow another rule"),
            (&by_keda, "ScaledObject web owns the object"),
            (&object(&json!({}), 80), "the scale point is another one"),
            (&unversioned, "resourceVersion"),
            (&without, "no averageUtilization for cpu"),
        ] {
            let error = target_change_patch(object, &change(75), NOW).expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
        // It takes effect only with the disabled directions.
        assert!(target_change_patch(&object(&drive, 60), &change(75), NOW).is_ok());
    }

    #[test]
    fn target_and_record_are_written_in_one_request() {
        let spec = json!({
            "maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "metrics": [
                {"type": "Resource", "resource": {"name": "memory",
                    "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
                    "target": {"type": "Utilization", "averageUtilization": 60}}},
            ],
        });
        let spec = Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("valid");
        let app = CurrentTarget { resource: Resource::Cpu, container: Some("app"), percent: 60 };
        let found = TargetRecord::default().review(app, Some(500), None, NOW).expect("allowed");
        let record = TargetRecord::default().with_target(&found, 75, NOW);
        let written = target_patch(&spec, "7", true, &found.target, 75, &record).expect("a patch");
        let path = "/spec/metrics/1/containerResource/target/averageUtilization";
        assert_eq!(written[0]["value"], "7");
        assert_eq!(written[1], json!({"op": "test", "path": path, "value": 60}));
        assert_eq!(written[2], json!({"op": "replace", "path": path, "value": 75}));
        assert_eq!(written[3]["path"], "/metadata/annotations/plimsoll.dev~1scale-point");
        let text = written[3]["value"].as_str().expect("text");
        assert_eq!(TargetRecord::parse(text), Ok(record.clone()));
        let all = RecordedTarget { container: None, ..found.target };
        assert_eq!(target_patch(&spec, "7", true, &all, 75, &record), None);
        let first = target_patch(&spec, "7", false, &found.target, 75, &record).expect("a patch");
        assert_eq!(first[3]["path"], "/metadata/annotations", "an object without annotations");
    }
}
