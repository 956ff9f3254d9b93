//! What ResourceQuotas have room for, as far as they may be read: upstream's RBAC says nothing of them.

use std::sync::{Arc, Mutex, PoisonError};

use kube::{Client, ResourceExt as _};
use tokio::sync::watch;

use super::shutdown::ShutdownToken;
use crate::cluster::{
    cache::{
        object_store::{ObjectStore, StoredObject},
        resource_quota::PartialResourceQuota,
    },
    watch as watches,
    watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus},
    write::{AccessReview, AccessRule, check_access},
};
use plimsoll_core::sizing::quota::Quota;

/// The ResourceQuotas that are known. Nobody waits for them: where there are none, nothing is held back.
#[derive(Debug)]
pub(crate) struct Quotas {
    watch_status: Arc<WatchStatus>,
    store: Mutex<ObjectStore<Box<str>, Quota>>,
    /// Whether they may not be read.
    forbidden: watch::Sender<bool>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            watch_status: Arc::new(WatchStatus::new("resourcequotas")),
            store: Mutex::default(),
            forbidden: watch::Sender::new(false),
        }
    }
}

impl Quotas {
    /// Those of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Quota> {
        let seen = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&namespace.into()).map(|quota| Quota::clone(quota)).collect()
    }

    /// Their watch, once it runs.
    pub fn watch_status(&self) -> Option<&Arc<WatchStatus>> {
        let status = self.watch_status.stats();
        (status.lists + status.errors > 0).then_some(&self.watch_status)
    }

    /// Ready once they are known, or it is known that they may not be read.
    pub async fn ready(&self) {
        let mut denied = self.forbidden.subscribe();
        tokio::select! {
            () = self.watch_status.wait_until_synced() => {}
            _ = denied.wait_for(|denied| *denied) => {}
        }
    }

    /// Watches them in one namespace, or in all, if that is allowed, until told to stop. `lost` is what happens where it
    /// is not.
    pub async fn run_watch(
        &self,
        client: &Client,
        reader: &WatchFactory,
        only: Option<&str>,
        lost: &str,
        stop: ShutdownToken,
    ) {
        let rules = ["list", "watch"].map(|verb| {
            let rule = AccessRule::new(verb, "", "resourcequotas");
            only.map_or(rule.clone(), |namespace| rule.in_namespace(namespace))
        });
        let verdicts = tokio::select! {
            () = stop.cancelled() => return,
            verdicts = check_access(client, &rules) => verdicts,
        };
        if verdicts.contains(&AccessReview::Denied) {
            let rules = rules.map(|rule| rule.to_string()).join(", ");
            tracing::warn!("ResourceQuotas are not looked at, so {lost}: allow {rules}");
            self.forbidden.send_replace(true);
            return;
        }
        let quotas = reader.objects::<PartialResourceQuota>(only);
        let apply = |change| self.apply_change(change);
        watches::watch(
            quotas,
            WatchOptions::default(),
            &self.watch_status,
            apply,
            stop.cancelled(),
        )
        .await;
    }

    fn apply_change(&self, change: ObjectChange<PartialResourceQuota>) {
        let mut seen = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        seen.apply(change, |quota| {
            let namespace = quota.namespace().unwrap_or_default();
            let key = Some(namespace.as_str().into());
            StoredObject { name: quota.name_any(), namespace, key, object: quota.quota() }
        });
    }
}
