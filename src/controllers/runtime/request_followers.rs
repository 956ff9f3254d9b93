//! HorizontalPodAutoscalers that follow requests, as far as they may be read: upstream's RBAC does not include them.

use std::sync::Arc;

use k8s_openapi::{
    api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Deserialize;

use super::optional_watch::OptionalWatch;
use plimsoll_core::{
    coordination::{RequestFollower, SharedRequest, TemplateRequests},
    hpa,
};

/// A HorizontalPodAutoscaler without its status.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "HorizontalPodAutoscaler")]
pub(crate) struct PartialHpa {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: HorizontalPodAutoscalerSpec,
}

/// Cached HorizontalPodAutoscalers. Nothing may be decided before they are known: one that is not known yet might follow
/// the request that changes.
#[derive(Debug)]
pub(crate) struct RequestFollowers {
    pub watch: Arc<OptionalWatch<PartialHpa, RequestFollower>>,
}

impl Default for RequestFollowers {
    fn default() -> Self {
        let stored = |hpa: PartialHpa| hpa::request_follower(&hpa.metadata, &hpa.spec);
        let watch = OptionalWatch::new("autoscaling", "horizontalpodautoscalers", stored);
        Self { watch: Arc::new(watch) }
    }
}

impl RequestFollowers {
    /// What the autoscalers of a target mean for the requests of its pods.
    pub fn shared_requests(
        &self,
        namespace: &str,
        (kind, name): (&str, &str),
        template: Option<&TemplateRequests>,
    ) -> Vec<SharedRequest> {
        let shared = self.watch.read(|followers| {
            let followers = followers.in_namespace(namespace);
            let of_target = followers.filter(|follower| follower.scales(kind, name));
            of_target.flat_map(|follower| follower.shared_requests(template)).collect()
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
        let shared = followers.shared_requests("shop", ("Deployment", "web"), Some(&template));
        let shared: Vec<_> = shared.iter().map(|one| (&*one.hpa, one.resource)).collect();
        assert_eq!(shared, [("web", Resource::Cpu)]);
        assert!(followers.shared_requests("shop", ("StatefulSet", "web"), None).is_empty());
    }
}
