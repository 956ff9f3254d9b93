//! ResourceQuotas, as far as they may be read: upstream's RBAC does not include them.

use std::sync::Arc;

use super::optional_watch::OptionalWatch;
use crate::cluster::cache::resource_quota::PartialResourceQuota;
use plimsoll_core::sizing::quota::Quota;

/// Cached ResourceQuotas. Nothing waits for them: without quotas nothing is restricted.
#[derive(Debug)]
pub(crate) struct Quotas {
    pub watch: Arc<OptionalWatch<PartialResourceQuota, Quota>>,
}

impl Default for Quotas {
    fn default() -> Self {
        let watch = OptionalWatch::new("", "resourcequotas", PartialResourceQuota::quota);
        Self { watch: Arc::new(watch) }
    }
}

impl Quotas {
    pub fn in_namespace(&self, namespace: &str) -> Vec<Quota> {
        let quotas = self.watch.read(|quotas| quotas.in_namespace(namespace).cloned().collect());
        quotas.unwrap_or_default()
    }
}
