//! HorizontalPodAutoscalers in the namespace of a VPA: an HPA that scales the same pods by CPU or memory conflicts
//! with it. They are listed when a VPA is written, which is too rare to justify a watch.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec};
use kube::{
    Client,
    api::{Api, ListParams},
};
use serde_json::value::RawValue;

use super::AdmissionController;
use crate::cluster::{
    server::webhook::AdmissionRequest,
    write as act,
    write::{AccessReview, AccessRule},
};
use plimsoll_core::{admission::validation::OtherAutoscaler, types::compat::Compat};

/// A warning is not worth delaying the client that writes the VPA.
const LIST_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of HPAs to read, since users may create any number.
const MAX_HPAS: u32 = 500;
/// How long a permission check is cached: upstream's RBAC does not allow listing HPAs.
const ACCESS_TTL: Duration = Duration::from_mins(10);

/// The cached permission check, with its time.
#[derive(Debug, Default)]
pub(super) struct HpaAccess(Mutex<Option<(Instant, bool)>>);

impl HpaAccess {
    fn cached(&self) -> Option<bool> {
        let cached = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached
            .filter(|(checked_at, _)| checked_at.elapsed() < ACCESS_TTL)
            .map(|(_, is_allowed)| is_allowed)
    }

    fn store(&self, is_allowed: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), is_allowed));
    }

    /// Checks the permission if it is not cached, with an access review instead of a request that may be rejected.
    async fn is_allowed(&self, client: &Client) -> bool {
        if let Some(cached) = self.cached() {
            return cached;
        }
        let rule = AccessRule::new("list", "autoscaling", "horizontalpodautoscalers");
        match act::check_access(client, std::slice::from_ref(&rule)).await.pop() {
            Some(AccessReview::Allowed) => self.store(true),
            Some(AccessReview::Denied) => {
                tracing::info!(%rule, "skipping conflict check with HorizontalPodAutoscalers: RBAC rule is missing");
                self.store(false);
            }
            Some(AccessReview::Unknown(_)) | None => {}
        }
        self.cached().unwrap_or(false)
    }
}

/// The fields of an HPA that warnings need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HpaSummary {
    name: String,
    kind: String,
    target: String,
    uses_resources: bool,
}

impl HpaSummary {
    /// The HPA as the validation of VPAs expects it.
    pub fn as_other_autoscaler(&self) -> OtherAutoscaler<'_> {
        OtherAutoscaler {
            kind: "HorizontalPodAutoscaler",
            name: &self.name,
            target_kind: &self.kind,
            target_name: &self.target,
            uses_resources: self.uses_resources,
        }
    }
}

impl From<HorizontalPodAutoscaler> for HpaSummary {
    fn from(hpa: HorizontalPodAutoscaler) -> Self {
        let spec = hpa.spec.unwrap_or_default();
        let metrics = spec.metrics.unwrap_or_default();
        let uses_cpu_or_memory = |metric: &MetricSpec| {
            let container = metric.container_resource.as_ref().map(|source| &source.name);
            let resource = metric.resource.as_ref().map(|source| &source.name);
            container.or(resource).is_some_and(|name| name == "cpu" || name == "memory")
        };
        Self {
            name: hpa.metadata.name.unwrap_or_default(),
            kind: spec.scale_target_ref.kind,
            target: spec.scale_target_ref.name,
            // An HPA without metrics scales by CPU.
            uses_resources: metrics.is_empty() || metrics.iter().any(uses_cpu_or_memory),
        }
    }
}

/// Whether the request changes the spec: recommenders and updaters write the status of the same object all the time.
fn changes_spec(request: &AdmissionRequest<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct SpecOnly<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    fn spec(object: Option<&str>) -> Option<&str> {
        let parsed: SpecOnly<'_> = serde_json::from_str(object?).ok()?;
        parsed.spec.map(RawValue::get)
    }
    let (new, old) = (request.object, request.old_object);
    request.operation == "CREATE" || spec(new) != spec(old)
}

impl AdmissionController {
    /// Lists the HPAs of the namespace, as far as possible within the timeout.
    pub(super) async fn hpas_in_namespace(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Vec<HpaSummary> {
        if self.config.compat != Compat::Plimsoll || !changes_spec(request) {
            return Vec::new();
        }
        let list = async {
            if !self.hpa_access.is_allowed(&self.client).await {
                return Vec::new();
            }
            let api =
                Api::<HorizontalPodAutoscaler>::namespaced(self.client.clone(), &request.namespace);
            match api.list(&ListParams::default().limit(MAX_HPAS)).await {
                Ok(hpas) => hpas.items.into_iter().map(HpaSummary::from).collect(),
                Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                    tracing::info!(error = %status.message, "failed to list HorizontalPodAutoscalers; skipping conflict check");
                    self.hpa_access.store(false);
                    Vec::new()
                }
                Err(_) => Vec::new(),
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, list).await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_hpa_on_pod_cpu_or_memory_or_without_metrics_conflicts() {
        let utilization = json!({"type": "Utilization", "averageUtilization": 60});
        let resource = |name: &str| json!([{"type": "Resource", "resource": {"name": name, "target": utilization}}]);
        let container = json!([{
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "app", "target": utilization},
        }]);
        let external = json!([{
            "type": "External",
            "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}},
        }]);
        for (metrics, expected) in [
            (json!([]), true),
            (resource("cpu"), true),
            (resource("memory"), true),
            (resource("example.com/gpu"), false),
            (container, true),
            (external, false),
        ] {
            let hpa: HorizontalPodAutoscaler = serde_json::from_value(json!({
                "metadata": {"name": "web"},
                "spec": {
                    "maxReplicas": 5, "metrics": metrics,
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                },
            }))
            .expect("an HPA");
            let hpa = HpaSummary::from(hpa);
            assert_eq!(hpa.uses_resources, expected, "{metrics}");
            assert_eq!((&*hpa.kind, &*hpa.target), ("Deployment", "web"));
        }
    }
}
