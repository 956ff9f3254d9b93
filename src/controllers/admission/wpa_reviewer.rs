//! What is said of a WatermarkPodAutoscaler that is created or changed: what the controller would not follow is kept out,
//! what is odd is a warning.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use kube::ResourceExt as _;
use plimsoll_storage::prometheus::schema::Dialect;

use super::{AdmissionController, vpa_reviewer::response_status, watches::TargetKey};
use crate::{
    cluster::{
        metrics_api::source::promql::{check_query, check_query_in},
        server::webhook::{AdmissionDecision, AdmissionRequest, Reviewer},
    },
    controllers::watermark::scaling_gates::{queried_metric, read_annotations},
};
use plimsoll_core::{
    admission::validation::{FieldError, FieldErrorType, ValidationResult as Said},
    api::{
        VerticalPodAutoscaler,
        annotations::MAX_VALUE_BYTES,
        wpa::{WatermarkPodAutoscaler, WatermarkPodAutoscalerSpec},
    },
    watermark::{spec::with_defaults, validation::validate, warnings},
};

/// How often objects are looked at where nobody says otherwise: what an annotation means is told by it, and not whether
/// it means anything.
const DEFAULT_PERIOD: Duration = Duration::from_secs(15);

/// Decides about WatermarkPodAutoscalers.
pub(super) struct WpaReviewer(pub Arc<AdmissionController>);

#[async_trait]
impl Reviewer for WpaReviewer {
    fn resource(&self) -> &'static str {
        "WPA"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        let object = match read(request.object.unwrap_or_default()) {
            Ok(object) => object,
            Err(error) => {
                let said = Said { errors: vec![error], ..Said::default() }.truncated();
                return AdmissionDecision::deny(response_status(request, &said));
            }
        };
        // What is wrong already can be taken away, and whoever writes something else of it is not to blame.
        let old = request.old_object.and_then(|old| read(old).ok());
        let is_leaving = object.metadata.deletion_timestamp.is_some();
        if is_leaving || old.is_some_and(|old| is_unchanged(&object, &old)) {
            return AdmissionDecision::allow("unchanged");
        }
        let mut said = validate_object(&object);
        let filled = with_defaults(&object.spec);
        let target = &filled.scale_target_ref;
        let key = TargetKey::new(&request.namespace, &target.kind, &target.name);
        said.warnings.extend(conflicting_vpas(&filled, &self.0.stores.vpas(&key)));
        let said = said.truncated();
        let verdict = if said.errors.is_empty() {
            AdmissionDecision::allow("valid")
        } else {
            AdmissionDecision::deny(response_status(request, &said))
        };
        verdict.with_warnings(said.warnings)
    }
}

fn read(text: &str) -> Result<WatermarkPodAutoscaler, FieldError> {
    serde_json::from_str(text).map_err(|why| FieldError {
        path: ".".to_owned(),
        error_type: FieldErrorType::Internal,
        value: None,
        detail: why.to_string(),
    })
}

fn is_unchanged(one: &WatermarkPodAutoscaler, other: &WatermarkPodAutoscaler) -> bool {
    one.spec == other.spec && one.annotations() == other.annotations()
}

/// What is wrong with an object, and what is odd.
fn validate_object(object: &WatermarkPodAutoscaler) -> Said {
    let mut said = Said::default();
    let filled = with_defaults(&object.spec);
    let name = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    if let Err(wrong) = validate(&filled, &name) {
        said.errors.push(FieldError {
            path: wrong.field().to_owned(),
            error_type: FieldErrorType::Invalid,
            value: None,
            detail: wrong.to_string(),
        });
    }
    let (options, bad) = read_annotations(object.annotations(), DEFAULT_PERIOD);
    said.warnings.extend(bad.iter().map(ToString::to_string));
    if said.errors.is_empty() {
        said.warnings.extend(warnings::collect(&filled, &options));
    }
    validate_queries(object.annotations(), &filled, &mut said);
    said
}

fn validate_queries(
    annotations: &BTreeMap<String, String>,
    spec: &WatermarkPodAutoscalerSpec,
    said: &mut Said,
) {
    let external = spec.metrics.iter().filter_map(|metric| metric.external.as_ref());
    let names: HashSet<&str> = external.map(|external| &*external.metric_name).collect();
    for (key, query) in annotations {
        let Some(metric) = queried_metric(key) else { continue };
        if !names.contains(metric) {
            said.warnings.push(format!(
                "annotation {key}: there is no external metric of that name, so that nobody asks for it"
            ));
        }
        if query.len() > MAX_VALUE_BYTES {
            said.warnings.push(format!(
                "annotation {key}: a query of {} bytes is not checked; the longest that is has {MAX_VALUE_BYTES}",
                query.len()
            ));
            continue;
        }
        let Err(why) = check_query(query) else { continue };
        if check_query_in(query, Dialect::MetricsQl).is_ok() {
            said.warnings.push(format!(
                "annotation {key}: only VictoriaMetrics understands that: for a Prometheus, {why}"
            ));
            continue;
        }
        said.errors.push(FieldError {
            path: format!("metadata.annotations[{key}]"),
            error_type: FieldErrorType::Invalid,
            value: Some(format!("{query:?}")),
            detail: why,
        });
    }
}

/// A warning for each VPA that sizes the same pods by what replicas go by.
fn conflicting_vpas(
    spec: &WatermarkPodAutoscalerSpec,
    vpas: &[Arc<VerticalPodAutoscaler>],
) -> Vec<String> {
    let of_pods = spec.metrics.iter().any(|metric| metric.kind != "External");
    let rivals = vpas.iter().filter(|_| of_pods);
    let told = rivals.map(|vpa| {
        format!(
            "VerticalPodAutoscaler {} sizes the same pods by what they use, and this goes by that too: they will work \
             against each other; let one of them go by another metric",
            vpa.name_any()
        )
    });
    told.collect()
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
    fn a_query_that_cannot_be_right_keeps_an_object_out_and_one_that_may_be_does_not() {
        let query = |query: &str| {
            let said = validate_object(&object(&json!({"query.plimsoll.dev/load": query}), "load"));
            (said.errors.iter().map(ToString::to_string).collect::<Vec<_>>(), said.warnings)
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
    fn what_the_controller_would_not_follow_is_refused_where_it_is_wrong() {
        let mut wrong = object(&json!({}), "load");
        wrong.spec.max_replicas = 0;
        let said = validate_object(&wrong);
        let [error] = &said.errors[..] else { panic!("{:?}", said.errors) };
        assert_eq!(error.path, "spec.minReplicas");
        let odd = validate_object(&object(&json!({"plimsoll.dev/delays": "both"}), "load"));
        assert!(odd.errors.is_empty());
        assert!(odd.warnings[0].contains("`both` is not `joint` or `each`"), "{:?}", odd.warnings);
    }

    #[test]
    fn a_vpa_of_the_same_pods_is_named_where_both_go_by_what_they_use() {
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
