//! HorizontalPodAutoscalers in the namespace of a VPA: an HPA that scales the same pods by the utilization of requests
//! conflicts with it. They are listed when a VPA is written, which is too rare to justify a watch.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec, MetricTarget};
use kube::{
    Client,
    api::{Api, ListParams},
};

use crate::cluster::{
    server::webhook::AdmissionRequest,
    write::{AccessReview, AccessRule, check_access},
};
use moka::future::Cache;
use plimsoll_core::{
    admission::validation::{OtherAutoscaler, UtilizationMetric, has_same_spec},
    hpa,
};

/// A warning is not worth delaying the client that writes the VPA.
const LIST_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of HPAs to read, since users may create any number.
const MAX_HPAS: u32 = 500;
/// How long a permission check is cached: upstream's RBAC does not allow listing HPAs.
const ACCESS_TTL: Duration = Duration::from_mins(10);

/// Lists HPAs if that is permitted.
pub(super) struct HpaLister {
    client: Client,
    /// The cached permission check.
    access: Cache<(), bool>,
}

impl HpaLister {
    pub fn new(client: Client) -> Self {
        Self { client, access: Cache::builder().time_to_live(ACCESS_TTL).build() }
    }

    /// Checks the permission if it is not cached, with an access review instead of a request that may be rejected.
    async fn is_allowed(&self) -> bool {
        if let Some(is_allowed) = self.access.get(&()).await {
            return is_allowed;
        }
        let rule = AccessRule::new("list", "autoscaling", "horizontalpodautoscalers");
        let is_allowed = match check_access(&self.client, std::slice::from_ref(&rule)).await.pop() {
            Some(AccessReview::Allowed) => true,
            Some(AccessReview::Denied) => {
                tracing::info!(%rule, "skipping conflict check with HorizontalPodAutoscalers: RBAC rule is missing");
                false
            }
            Some(AccessReview::Unknown(_)) | None => return false,
        };
        self.access.insert((), is_allowed).await;
        is_allowed
    }

    /// Lists the HPAs of the namespace, as far as possible within the timeout.
    pub(super) async fn hpas_in_namespace(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Vec<HorizontalPodAutoscaler> {
        if !changes_spec(request) {
            return Vec::new();
        }
        let list = async {
            if !self.is_allowed().await {
                return Vec::new();
            }
            let api =
                Api::<HorizontalPodAutoscaler>::namespaced(self.client.clone(), &request.namespace);
            match api.list(&ListParams::default().limit(MAX_HPAS)).await {
                Ok(hpas) => hpas.items,
                Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                    tracing::info!(error = %status.message, "failed to list HorizontalPodAutoscalers; skipping conflict check");
                    self.access.insert((), false).await;
                    Vec::new()
                }
                Err(_) => Vec::new(),
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, list).await.unwrap_or_default()
    }
}

/// The HPA as the validation of VPAs expects it. `is_replaced` is whether Plimsoll replaces the HPA controller of the cluster.
pub(super) fn as_other_autoscaler(
    hpa: &HorizontalPodAutoscaler,
    is_replaced: bool,
) -> Option<OtherAutoscaler<'_>> {
    let spec = hpa.spec.as_ref()?;
    let follower = hpa::request_follower(&hpa.metadata, spec, None);
    let metrics = spec.metrics.as_deref().unwrap_or_default();
    Some(OtherAutoscaler {
        kind: "HorizontalPodAutoscaler",
        name: hpa.metadata.name.as_deref()?,
        target_kind: &spec.scale_target_ref.kind,
        target_name: &spec.scale_target_ref.name,
        utilization_of: if follower.follows_scale_point(is_replaced) {
            Vec::new()
        } else if metrics.is_empty() {
            // The default metric.
            vec![UtilizationMetric { resource: "cpu", container: None }]
        } else {
            metrics.iter().filter_map(utilization_metric).collect()
        },
    })
}

/// The metric, if its target is relative to requests that a VPA may change.
fn utilization_metric(metric: &MetricSpec) -> Option<UtilizationMetric<'_>> {
    let (resource, container, target) = match (&metric.resource, &metric.container_resource) {
        (Some(source), _) => (&source.name, None, &source.target),
        (None, Some(source)) => (&source.name, Some(source.container.as_str()), &source.target),
        (None, None) => return None,
    };
    let is_relative = |target: &MetricTarget| {
        target.average_utilization.is_some() && target.average_value.is_none()
    };
    let is_recommended = resource == "cpu" || resource == "memory";
    (is_recommended && is_relative(target)).then_some(UtilizationMetric { resource, container })
}

/// Whether the request changes the spec: recommenders and updaters write the status of the same object all the time.
fn changes_spec(request: &AdmissionRequest<'_>) -> bool {
    let is_same = |(new, old): (&str, &str)| has_same_spec(new.as_bytes(), old.as_bytes());
    request.operation == "CREATE" || !request.object.zip(request.old_object).is_some_and(is_same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_targets_relative_to_requests_conflict() {
        let utilization = json!({"type": "Utilization", "averageUtilization": 60});
        let average = json!({"type": "AverageValue", "averageValue": "300m"});
        let resource = |name: &str, target: &serde_json::Value| json!([{"type": "Resource", "resource": {"name": name, "target": target}}]);
        let container = json!([{
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "app", "target": utilization},
        }]);
        let external = json!([{
            "type": "External",
            "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}},
        }]);
        for (metrics, expected) in [
            (json!([]), Some(("cpu", None))),
            (resource("cpu", &utilization), Some(("cpu", None))),
            (resource("memory", &utilization), Some(("memory", None))),
            (resource("cpu", &average), None),
            (resource("example.com/gpu", &utilization), None),
            (container, Some(("cpu", Some("app")))),
            (external, None),
        ] {
            let hpa: HorizontalPodAutoscaler = serde_json::from_value(json!({
                "metadata": {"name": "web"},
                "spec": {
                    "maxReplicas": 5, "metrics": metrics,
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                },
            }))
            .expect("an HPA");
            let hpa = as_other_autoscaler(&hpa, false).expect("an autoscaler");
            let found: Vec<_> =
                hpa.utilization_of.iter().map(|one| (one.resource, one.container)).collect();
            assert_eq!(found, Vec::from_iter(expected), "{metrics}");
            assert_eq!((hpa.target_kind, hpa.target_name), ("Deployment", "web"));
        }
    }
}
