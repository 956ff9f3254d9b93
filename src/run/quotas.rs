//! What ResourceQuotas have room for, as far as they may be read: upstream's RBAC says nothing of them.

use std::sync::{Arc, Mutex, PoisonError};

use kube::{Client, ResourceExt as _};
use tokio::sync::watch;

use super::tasks::Stop;
use crate::{
    act::{Rule, Verdict, may},
    observe::{
        feed::Feed,
        mirror::{Filed, Mirror},
        resource_quota::SlimResourceQuota,
        watch::{self as watches, Change, Options, Reader},
    },
};
use plimsoll_core::sizing::quota::Quota;

/// The ResourceQuotas that are known. Nobody waits for them: where there are none, nothing is held back.
#[derive(Debug)]
pub(super) struct Quotas {
    feed: Arc<Feed>,
    seen: Mutex<Mirror<Box<str>, Quota>>,
    /// Whether they may not be read.
    denied: watch::Sender<bool>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            feed: Arc::new(Feed::new("resourcequotas")),
            seen: Mutex::default(),
            denied: watch::Sender::new(false),
        }
    }
}

impl Quotas {
    /// Those of a namespace.
    pub fn of(&self, namespace: &str) -> Vec<Quota> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&namespace.into()).map(|quota| Quota::clone(quota)).collect()
    }

    /// Their watch, once it runs.
    pub fn feed(&self) -> Option<&Arc<Feed>> {
        let status = self.feed.status();
        (status.lists + status.errors > 0).then_some(&self.feed)
    }

    /// Ready once they are known, or it is known that they may not be read.
    pub async fn known(&self) {
        let mut denied = self.denied.subscribe();
        tokio::select! {
            () = self.feed.synced() => {}
            _ = denied.wait_for(|denied| *denied) => {}
        }
    }

    /// Watches them in one namespace, or in all, if that is allowed, until told to stop. `lost` is what happens where it
    /// is not.
    pub async fn keep_watching(
        &self,
        client: &Client,
        reader: &Reader,
        only: Option<&str>,
        lost: &str,
        stop: Stop,
    ) {
        let rules = ["list", "watch"].map(|verb| {
            let rule = Rule::new(verb, "", "resourcequotas");
            only.map_or(rule.clone(), |namespace| rule.within(namespace))
        });
        let verdicts = tokio::select! {
            () = stop.stopped() => return,
            verdicts = may(client, &rules) => verdicts,
        };
        if verdicts.contains(&Verdict::Denied) {
            let rules = rules.map(|rule| rule.to_string()).join(", ");
            tracing::warn!("ResourceQuotas are not looked at, so {lost}: allow {rules}");
            self.denied.send_replace(true);
            return;
        }
        let quotas = reader.objects::<SlimResourceQuota>(only);
        let apply = |change| self.change(change);
        watches::watch(quotas, Options::default(), &self.feed, apply, stop.stopped()).await;
    }

    fn change(&self, change: Change<SlimResourceQuota>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.apply(change, |quota| {
            let namespace = quota.namespace().unwrap_or_default();
            let key = Some(namespace.as_str().into());
            Filed { name: quota.name_any(), namespace, key, object: quota.quota() }
        });
    }
}
