//! Validates WatermarkPodAutoscalers that are created or changed: specs that the controller would reject are denied,
//! oddities become warnings.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use kube::ResourceExt as _;
use plimsoll_storage::prometheus::{promql::Query, schema::Dialect};

use super::{vpa_reviewer::response_status, watches::WatchStores};
use crate::{
    cluster::server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer},
    controllers::watermark::scaling_gates::read_annotations,
};
use plimsoll_core::{
    admission::validation::{FieldError, FieldErrorType, ValidationResult},
    api::{
        VerticalPodAutoscaler,
        annotations::MAX_VALUE_BYTES,
        wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec},
    },
    watermark::{
        metric_requests::queried_metric, spec::with_defaults, validation::validate, warnings,
    },
};

/// The default reconcile interval. It affects the meaning of annotations, but not whether they are valid.
const DEFAULT_PERIOD: Duration = Duration::from_secs(15);

pub(super) struct WpaReviewer(pub Arc<WatchStores>);

#[async_trait]
impl Reviewer for WpaReviewer {
    fn resource(&self) -> &'static str {
        "WPA"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        let object: WatermarkPodAutoscaler =
            match serde_json::from_str(request.object.unwrap_or_default()) {
                Ok(object) => object,
                Err(error) => {
                    let result = ValidationResult::unreadable(&error);
                    return AdmissionDecision::deny(response_status(request, &result));
                }
            };
        // Deleting an invalid object, or changing unrelated fields of it, must stay possible.
        let old = request.old_object.and_then(|old| serde_json::from_str(old).ok());
        let is_terminating = object.metadata.deletion_timestamp.is_some();
        if is_terminating || old.is_some_and(|old| is_unchanged(&object, &old)) {
            return AdmissionDecision::allow("unchanged");
        }
        let mut result = validate_object(&object);
        let spec = with_defaults(&object.spec);
        let target = &spec.scale_target_ref;
        let vpas = self.0.vpas(&request.namespace, &target.kind, &target.name);
        result.warnings.extend(conflicting_vpas(&spec, &vpas));
        let result = result.truncated();
        let decision = if result.errors.is_empty() {
            AdmissionDecision::allow("valid")
        } else {
            AdmissionDecision::deny(response_status(request, &result))
        };
        decision.with_warnings(result.warnings)
    }
}

fn is_unchanged(new: &WatermarkPodAutoscaler, old: &WatermarkPodAutoscaler) -> bool {
    new.spec == old.spec && new.annotations() == old.annotations()
}

/// Validates an object: errors and warnings.
fn validate_object(object: &WatermarkPodAutoscaler) -> ValidationResult {
    let mut result = ValidationResult::default();
    let spec = with_defaults(&object.spec);
    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    if let Err(error) = validate(&spec, &name) {
        result.errors.push(FieldError {
            path: error.field().to_owned(),
            error_type: FieldErrorType::Invalid,
            value: None,
            detail: error.to_string(),
        });
    }
    let (options, invalid) = read_annotations(object.annotations(), DEFAULT_PERIOD);
    result.warnings.extend(invalid.iter().map(ToString::to_string));
    if result.errors.is_empty() {
        result.warnings.extend(warnings::collect(&spec, &options));
    }
    validate_queries(object.annotations(), &spec, &mut result);
    result
}

fn validate_queries(
    annotations: &BTreeMap<String, String>,
    spec: &WatermarkPodAutoscalerSpec,
    result: &mut ValidationResult,
) {
    let external = spec.metrics.iter().filter_map(|metric| metric.external.as_ref());
    let names: HashSet<&str> = external.map(|external| &*external.metric_name).collect();
    for (key, query) in annotations {
        let Some(metric) = queried_metric(key) else { continue };
        if !names.contains(metric) {
            result.warnings.push(format!(
                "annotation {key}: no external metric has this name, so the query is not used"
            ));
        }
        if query.len() > MAX_VALUE_BYTES {
            result.warnings.push(format!(
                "annotation {key}: the query has {} bytes and is not checked; the limit is {MAX_VALUE_BYTES}",
                query.len()
            ));
            continue;
        }
        let Err(error) = Query::validate(query, Dialect::PromQl) else { continue };
        if Query::validate(query, Dialect::MetricsQl).is_ok() {
            result.warnings.push(format!(
                "annotation {key}: only VictoriaMetrics supports this query; Prometheus would fail with: {error}"
            ));
            continue;
        }
        result.errors.push(FieldError {
            path: format!("metadata.annotations[{key}]"),
            error_type: FieldErrorType::Invalid,
            value: Some(format!("{query:?}")),
            detail: error.to_string(),
        });
    }
}

/// One warning per VPA that sizes the same pods by a metric that this object scales by.
fn conflicting_vpas(
    spec: &WatermarkPodAutoscalerSpec,
    vpas: &[Arc<VerticalPodAutoscaler>],
) -> Vec<String> {
    let uses_pod_metrics = spec.metrics.iter().any(|metric| metric.kind != "External");
    let conflicting = vpas.iter().filter(|_| uses_pod_metrics);
    let messages = conflicting.map(|vpa| {
        format!(
            "VerticalPodAutoscaler {} sizes the same pods by their resource usage, and this object scales by it: they will \
             conflict; use another metric for one of them",
            vpa.name_any()
        )
    });
    messages.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(annotations: &Value, metric: &str) -> WatermarkPodAutoscaler {
        serde_json::from_value(json!({
            "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1, "maxReplicas": 5,
                "metrics": [{"type": "External", "external": {
                    "metricName": metric, "metricSelector": {}, "highWatermark": "2", "lowWatermark": "1",
                }}],
            },
        }))
        .expect("an object")
    }

    #[test]
    fn an_invalid_query_is_rejected_and_a_doubtful_one_gets_a_warning() {
        let query = |query: &str| {
            let result =
                validate_object(&object(&json!({"query.plimsoll.dev/load": query}), "load"));
            (result.errors.iter().map(ToString::to_string).collect::<Vec<_>>(), result.warnings)
        };
        assert_eq!(query("sum(rate(requests_total[5m]))"), (vec![], vec![]));
        let (errors, _) = query("sum(rate(requests_total[5m])");
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(
            error.starts_with("metadata.annotations[query.plimsoll.dev/load]: Invalid value: "),
            "{error}"
        );
        let (errors, warnings) = query("rate(requests_total)");
        assert_eq!((errors.len(), warnings.len()), (0, 1), "{warnings:?}");
        assert!(warnings[0].contains("VictoriaMetrics"), "{warnings:?}");
        let other = validate_object(&object(&json!({"query.plimsoll.dev/load": "up"}), "other"));
        assert!(other.errors.is_empty() && other.warnings[0].contains("no external metric"));
    }

    #[test]
    fn an_invalid_wpa_is_rejected_with_the_path_of_the_field() {
        let mut wrong = object(&json!({}), "load");
        wrong.spec.max_replicas = 0;
        let result = validate_object(&wrong);
        let [error] = &result.errors[..] else { panic!("{:?}", result.errors) };
        assert_eq!(error.path, "spec.minReplicas");
        let odd = validate_object(&object(&json!({"plimsoll.dev/delays": "both"}), "load"));
        assert!(odd.errors.is_empty());
        assert!(odd.warnings[0].contains("`both` is not `joint` or `each`"), "{:?}", odd.warnings);
    }

    #[test]
    fn a_vpa_that_controls_the_same_resources_gives_a_warning() {
        let vpa: VerticalPodAutoscaler = serde_json::from_value(json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "sizes"},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
        }))
        .expect("a VPA");
        let mut spec = object(&json!({}), "load").spec;
        let vpas = [Arc::new(vpa)];
        assert_eq!(conflicting_vpas(&spec, &vpas), [""; 0]);
        spec.metrics[0].kind = "Resource".to_owned();
        assert!(conflicting_vpas(&spec, &vpas)[0].contains("sizes"));
    }
}
