//! HorizontalPodAutoscalers of the namespace of a VPA: one that goes by CPU or memory of the same pods works against it.
//! They are asked for when somebody writes a VPA, and seldom enough not to be watched for it.

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

/// A warning is not worth a longer wait: whoever writes the VPA stands by.
const LIST_TIMEOUT: Duration = Duration::from_millis(500);
/// No more of them are read: whoever may write them chooses how many there are.
const MAX_HPAS: u32 = 500;
/// How long an answer holds of whether they may be read: upstream's RBAC says nothing of them.
const ACCESS_TTL: Duration = Duration::from_mins(10);

/// Whether they may be read, and since when that is known.
#[derive(Debug, Default)]
pub(super) struct HpaAccess(Mutex<Option<(Instant, bool)>>);

impl HpaAccess {
    fn cached(&self) -> Option<bool> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(since, _)| since.elapsed() < ACCESS_TTL).map(|(_, is_allowed)| is_allowed)
    }

    fn store(&self, is_allowed: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), is_allowed));
    }

    /// Asks whether they may be, where that is not known: nothing has to be refused to find out.
    async fn is_allowed(&self, client: &Client) -> bool {
        if let Some(known) = self.cached() {
            return known;
        }
        let rule = AccessRule::new("list", "autoscaling", "horizontalpodautoscalers");
        match act::check_access(client, std::slice::from_ref(&rule)).await.pop() {
            Some(AccessReview::Allowed) => self.store(true),
            Some(AccessReview::Denied) => {
                tracing::info!(%rule, "HorizontalPodAutoscalers beside VPAs are not looked at without this rule");
                self.store(false);
            }
            Some(AccessReview::Unknown(_)) | None => {}
        }
        self.cached().unwrap_or(false)
    }
}

/// As much of one as a warning takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HpaSummary {
    name: String,
    kind: String,
    target: String,
    uses_resources: bool,
}

impl HpaSummary {
    /// As whoever looks a VPA over sees it.
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
    fn from(scaler: HorizontalPodAutoscaler) -> Self {
        let spec = scaler.spec.unwrap_or_default();
        let metrics = spec.metrics.unwrap_or_default();
        let of_pods = |metric: &MetricSpec| {
            let container = metric.container_resource.as_ref().map(|one| &one.name);
            let resource = metric.resource.as_ref().map(|one| &one.name);
            container.or(resource).is_some_and(|name| name == "cpu" || name == "memory")
        };
        Self {
            name: scaler.metadata.name.unwrap_or_default(),
            kind: spec.scale_target_ref.kind,
            target: spec.scale_target_ref.name,
            // One without metrics goes by CPU.
            uses_resources: metrics.is_empty() || metrics.iter().any(of_pods),
        }
    }
}

/// Whether somebody says what a VPA is to do: recommenders and updaters write the same object all the time.
fn changes_spec(request: &AdmissionRequest<'_>) -> bool {
    #[derive(serde::Deserialize)]
    struct SpecOnly<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    fn spec(object: Option<&str>) -> Option<&str> {
        let bare: SpecOnly<'_> = serde_json::from_str(object?).ok()?;
        bare.spec.map(RawValue::get)
    }
    let (new, old) = (request.object, request.old_object);
    request.operation == "CREATE" || spec(new) != spec(old)
}

impl AdmissionController {
    /// The HPAs of the namespace, as far as they can be had in time.
    pub(super) async fn hpas_in_namespace(
        &self,
        request: &AdmissionRequest<'_>,
    ) -> Vec<HpaSummary> {
        if self.config.compat != Compat::Plimsoll || !changes_spec(request) {
            return Vec::new();
        }
        let found = async {
            if !self.hpa_access.is_allowed(&self.client).await {
                return Vec::new();
            }
            let api =
                Api::<HorizontalPodAutoscaler>::namespaced(self.client.clone(), &request.namespace);
            match api.list(&ListParams::default().limit(MAX_HPAS)).await {
                Ok(list) => list.items.into_iter().map(HpaSummary::from).collect(),
                Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403 | 404) => {
                    tracing::info!(why = %status.message, "HorizontalPodAutoscalers are not looked at");
                    self.hpa_access.store(false);
                    Vec::new()
                }
                Err(_) => Vec::new(),
            }
        };
        tokio::time::timeout(LIST_TIMEOUT, found).await.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_that_goes_by_cpu_or_memory_of_pods_or_says_nothing_uses_resources() {
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
            let scaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
                "metadata": {"name": "web"},
                "spec": {
                    "maxReplicas": 5, "metrics": metrics,
                    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                },
            }))
            .expect("an HPA");
            let scaler = HpaSummary::from(scaler);
            assert_eq!(scaler.uses_resources, expected, "{metrics}");
            assert_eq!((&*scaler.kind, &*scaler.target), ("Deployment", "web"));
        }
    }
}
