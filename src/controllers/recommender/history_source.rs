//! A Prometheus server that has the history of VPAs, and what it has to know of their pods.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, compat::Compat};
use plimsoll_storage::{
    Error,
    prometheus::history::{KnownPods, LivePods, PodOwnership, PrometheusHistory},
};

use super::{Shared, label_selection::SelectorIndex};

pub(super) type VpaOwners = HashMap<ObjectKey, Option<Box<str>>>;

/// A Prometheus server to read history from.
pub(super) struct HistorySource {
    pub shared: Arc<Shared>,
    pub history: Arc<PrometheusHistory>,
}

/// What is known about the pods of some VPAs.
pub(super) struct VpaPods {
    by_label: Option<PodOwnership>,
    live: LivePods,
}

impl HistorySource {
    pub fn unavailable_error(&self, error: &impl ToString) -> Error {
        Error::Unavailable { place: self.history.server.clone(), why: error.to_string() }
    }

    /// The pods of these VPAs: those that exist, and past ones within this time, or in the whole history, if pod labels are
    /// configured as their source.
    pub async fn pods_of(
        &self,
        owners: &VpaOwners,
        within: Option<Duration>,
    ) -> Result<VpaPods, Error> {
        let Shared { config, state, .. } = &*self.shared;
        let mut by_label = None;
        if config.prometheus.pod_labels.is_some() {
            let namespaces: BTreeSet<&str> = owners.keys().map(|key| &*key.namespace).collect();
            let namespaces = Vec::from_iter(namespaces);
            let exact = config.compat == Compat::Upstream;
            let selectors = SelectorIndex::from_index(&state.lock().index, owners.keys(), exact);
            let ownership = self.history.pod_ownership(&namespaces, within, &selectors).await;
            by_label = ownership.map_err(|error| self.unavailable_error(&error))?;
        }
        Ok(VpaPods { by_label, live: self.live_pods(owners) })
    }

    /// The existing pods, listed by name: it is then rare that a VPA without history has series.
    fn live_pods(&self, owners: &VpaOwners) -> LivePods {
        let mut live = LivePods::new();
        for (key, owner) in owners {
            let Some(owner) = owner else { continue };
            // One lock each: a VPA may have thousands of pods.
            let pods: Vec<Arc<str>> = self
                .shared
                .state
                .lock()
                .index
                .pods_of(key)
                .map(|(name, _)| Arc::clone(name))
                .collect();
            live.add(key, owner, pods.iter().map(|name| &**name));
        }
        live
    }
}

impl VpaPods {
    pub const fn known(&self) -> KnownPods<'_> {
        KnownPods { by_label: self.by_label.as_ref(), live: Some(&self.live) }
    }
}
