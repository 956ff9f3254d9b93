//! HorizontalPodAutoscalers that follow requests, as far as they may be read: upstream's RBAC does not include them.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, HorizontalPodAutoscalerStatus,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Client;
use serde::Deserialize;
use tokio::sync::watch::Sender;

use super::{hpa_replacement::HpaReplacement, shutdown::ShutdownToken};
use crate::cluster::{
    cache::object_store::ObjectStore,
    watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus, watch},
    write::{AccessReview, AccessRule, check_access},
};
use plimsoll_core::{
    coordination::{RequestFollower, SharedRequest, TemplateRequests},
    hpa,
    types::ObjectKey,
};

/// A HorizontalPodAutoscaler as it is read; less of it is stored.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "HorizontalPodAutoscaler")]
struct PartialHpa {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: HorizontalPodAutoscalerSpec,
    #[serde(default)]
    status: Option<HorizontalPodAutoscalerStatus>,
}

/// Whether the objects are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Access {
    /// Not checked yet, or the watch is not needed.
    #[default]
    Unknown,
    /// They are watched.
    Watched,
    /// RBAC does not allow it, so there are none.
    Denied,
}

/// Cached HorizontalPodAutoscalers. Nothing may be decided before they are known: one that is not known yet might follow
/// the request that changes.
#[derive(Debug)]
pub(crate) struct RequestFollowers {
    watch_status: Arc<WatchStatus>,
    access: Sender<Access>,
    store: Mutex<ObjectStore<ObjectKey, RequestFollower>>,
    /// Whether Plimsoll replaces the HPA controller of the cluster.
    pub hpa_replacement: HpaReplacement,
}

impl Default for RequestFollowers {
    fn default() -> Self {
        Self {
            watch_status: Arc::new(WatchStatus::new("horizontalpodautoscalers")),
            access: Sender::default(),
            store: Mutex::default(),
            hpa_replacement: HpaReplacement::default(),
        }
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
        let followers = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let followers = followers.in_namespace(namespace);
        let of_target = followers.filter(|follower| follower.scales(kind, name));
        let is_replaced = self.hpa_replacement.is_active();
        of_target.flat_map(|follower| follower.shared_requests(template, is_replaced)).collect()
    }

    /// The status of the watch, if there is one.
    pub fn watch_status(&self) -> Option<&Arc<WatchStatus>> {
        (*self.access.borrow() == Access::Watched).then_some(&self.watch_status)
    }

    /// Whether they are known, or may not be read.
    pub fn are_known(&self) -> bool {
        match *self.access.borrow() {
            Access::Unknown => false,
            Access::Watched => {
                self.store.lock().unwrap_or_else(PoisonError::into_inner).is_synced()
            }
            Access::Denied => true,
        }
    }

    /// Waits until they are known, or may not be read.
    pub async fn wait_until_known(&self) {
        let mut access = self.access.subscribe();
        let checked = access.wait_for(|access| *access != Access::Unknown).await;
        // Fails only when the sender is gone, which lives as long as `self`.
        let is_watched = checked.is_ok_and(|access| *access == Access::Watched);
        if is_watched {
            self.watch_status.wait_until_synced().await;
        }
    }

    /// Watches them in one namespace, or in all, until shutdown, if RBAC allows it. Otherwise logs `consequence`.
    pub async fn run_watch(
        &self,
        client: &Client,
        factory: &WatchFactory,
        namespace: Option<&str>,
        consequence: &str,
        stop: ShutdownToken,
    ) {
        let rules = ["list", "watch"].map(|verb| {
            let rule = AccessRule::new(verb, "autoscaling", "horizontalpodautoscalers");
            namespace.map_or(rule.clone(), |namespace| rule.in_namespace(namespace))
        });
        let reviews = tokio::select! {
            () = stop.cancelled() => return,
            reviews = check_access(client, &rules) => reviews,
        };
        if reviews.contains(&AccessReview::Denied) {
            let rules = rules.map(|rule| rule.to_string()).join(", ");
            tracing::warn!(
                "cannot watch HorizontalPodAutoscalers, so {consequence}; RBAC rules are missing: {rules}"
            );
            self.access.send_replace(Access::Denied);
            return;
        }
        self.access.send_replace(Access::Watched);
        let objects = factory.objects::<PartialHpa>(namespace);
        let apply = |change| self.apply_change(change);
        watch(objects, WatchOptions::default(), &self.watch_status, apply, stop.cancelled()).await;
    }

    fn apply_change(&self, change: ObjectChange<PartialHpa>) {
        let mut followers = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        followers.apply_object(change, |hpa| {
            hpa::request_follower(&hpa.metadata, &hpa.spec, hpa.status.as_ref())
        });
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
        for hpa in [hpa("shop", "web", "web"), hpa("shop", "db", "db"), hpa("bank", "web", "web")] {
            followers.apply_change(ObjectChange::Applied(hpa));
        }
        let container = ContainerRequests { name: "app".into(), cpu: Some(500), memory: None };
        let template = TemplateRequests::from_iter([container]);
        let shared = followers.shared_requests("shop", ("Deployment", "web"), Some(&template));
        let shared: Vec<_> = shared.iter().map(|one| (&*one.hpa, one.resource)).collect();
        assert_eq!(shared, [("web", Resource::Cpu)]);
        assert!(followers.shared_requests("shop", ("StatefulSet", "web"), None).is_empty());
    }

    #[test]
    fn they_are_known_once_listed_or_if_they_may_not_be_read() {
        let followers = RequestFollowers::default();
        assert!(!followers.are_known(), "the right is not checked yet");
        followers.access.send_replace(Access::Watched);
        assert!(!followers.are_known(), "the list is not complete");
        followers.apply_change(ObjectChange::Synced);
        assert!(followers.are_known());
        followers.access.send_replace(Access::Denied);
        assert!(followers.are_known());
    }
}
