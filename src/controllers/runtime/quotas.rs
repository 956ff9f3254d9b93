//! ResourceQuotas, as far as they may be read: upstream's RBAC does not include them.

use std::sync::{Arc, Mutex, PoisonError};

use kube::Client;

use super::shutdown::ShutdownToken;
use crate::cluster::{
    cache::{object_store::ObjectStore, resource_quota::PartialResourceQuota},
    watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus, watch},
    write::{AccessReview, AccessRule, check_access},
};
use plimsoll_core::{sizing::quota::Quota, types::ObjectKey};

/// Cached ResourceQuotas. Nothing waits for them: without quotas nothing is restricted.
#[derive(Debug)]
pub(crate) struct Quotas {
    watch_status: Arc<WatchStatus>,
    store: Mutex<ObjectStore<ObjectKey, Quota>>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { watch_status: Arc::new(WatchStatus::new("resourcequotas")), store: Mutex::default() }
    }
}

impl Quotas {
    pub fn in_namespace(&self, namespace: &str) -> Vec<Quota> {
        let quotas = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        quotas.in_namespace(namespace).cloned().collect()
    }

    /// The status of the watch, once it has been started.
    pub fn watch_status(&self) -> Option<&Arc<WatchStatus>> {
        let status = self.watch_status.stats();
        (status.lists + status.errors > 0).then_some(&self.watch_status)
    }

    /// Watches quotas in one namespace, or in all, until shutdown, if RBAC allows it. Otherwise logs `consequence`.
    pub async fn run_watch(
        &self,
        client: &Client,
        factory: &WatchFactory,
        namespace: Option<&str>,
        consequence: &str,
        stop: ShutdownToken,
    ) {
        let rules = ["list", "watch"].map(|verb| {
            let rule = AccessRule::new(verb, "", "resourcequotas");
            namespace.map_or(rule.clone(), |namespace| rule.in_namespace(namespace))
        });
        let reviews = tokio::select! {
            () = stop.cancelled() => return,
            reviews = check_access(client, &rules) => reviews,
        };
        if reviews.contains(&AccessReview::Denied) {
            let rules = rules.map(|rule| rule.to_string()).join(", ");
            tracing::warn!(
                "cannot watch ResourceQuotas, so {consequence}; RBAC rules are missing: {rules}"
            );
            return;
        }
        let quotas = factory.objects::<PartialResourceQuota>(namespace);
        let apply = |change| self.apply_change(change);
        watch(quotas, WatchOptions::default(), &self.watch_status, apply, stop.cancelled()).await;
    }

    fn apply_change(&self, change: ObjectChange<PartialResourceQuota>) {
        let mut quotas = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        quotas.apply_object(change, PartialResourceQuota::quota);
    }
}
