//! HorizontalPodAutoscalers that follow requests, as far as they may be read: upstream's RBAC does not include them.

use std::sync::Arc;

use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Deserialize;

use super::{hpa_replacement::HpaReplacement, optional_watch::OptionalWatch};
use plimsoll_core::{
    coordination::{RequestFollower, Retargeting, SharedRequest, SharingContext, TemplateRequests},
    hpa,
};

/// A HorizontalPodAutoscaler as it is read; less of it is stored.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "HorizontalPodAutoscaler")]
pub(crate) struct PartialHpa {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: HorizontalPodAutoscalerSpec,
    #[serde(default)]
    status: Option<HorizontalPodAutoscalerStatus>,
}

/// Cached HorizontalPodAutoscalers. Nothing may be decided before they are known: one that is not known yet might follow
/// the request that changes.
#[derive(Debug)]
pub(crate) struct RequestFollowers {
    pub watch: Arc<OptionalWatch<PartialHpa, RequestFollower>>,
    /// Whether Plimsoll replaces the HPA controller of the cluster.
    pub hpa_replacement: Arc<HpaReplacement>,
}

impl Default for RequestFollowers {
    fn default() -> Self {
        let stored =
            |hpa: PartialHpa| hpa::request_follower(&hpa.metadata, &hpa.spec, hpa.status.as_ref());
        let watch = OptionalWatch::new("autoscaling", "horizontalpodautoscalers", stored);
        Self { watch: Arc::new(watch), hpa_replacement: Arc::default() }
    }
}

impl RequestFollowers {
    /// What the autoscalers of a target mean for the requests of its pods. Without `retargeting`, their targets do not change
    /// together with the requests.
    pub fn shared_requests(
        &self,
        namespace: &str,
        (kind, name): (&str, &str),
        template: Option<&TemplateRequests>,
        retargeting: Option<Retargeting>,
    ) -> Vec<SharedRequest> {
        let context = SharingContext { is_replaced: self.hpa_replacement.is_active(), retargeting };
        let shared = self.watch.read(|followers| {
            let followers = followers.in_namespace(namespace);
            let of_target = followers.filter(|follower| follower.scales(kind, name));
            of_target.flat_map(|follower| follower.shared_requests(template, context)).collect()
        });
        shared.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use plimsoll_core::coordination::{ContainerRequests, Resource};

    fn hpa(namespace: &str, name: &str, target: &str) -> PartialHpa {
        let hpa = json!({
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"maxReplicas": 5, "scaleTargetRef": {"kind": "Deployment", "name": target},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 60}}}]},
        });
        serde_json::from_value(hpa).expect("an HPA")
    }

    #[test]
    fn only_the_autoscalers_of_the_target_count() {
        let followers = RequestFollowers::default();
        let hpas = [hpa("shop", "web", "web"), hpa("shop", "db", "db"), hpa("bank", "web", "web")];
        followers.watch.store_list(hpas);
        let container = ContainerRequests { name: "app".into(), cpu: Some(500), memory: None };
        let template = TemplateRequests::from_iter([container]);
        let shared =
            followers.shared_requests("shop", ("Deployment", "web"), Some(&template), None);
        let shared: Vec<_> = shared.iter().map(|one| (&*one.hpa, one.resource)).collect();
        assert_eq!(shared, [("web", Resource::Cpu)]);
        assert!(followers.shared_requests("shop", ("StatefulSet", "web"), None, None).is_empty());
    }
}
