//! What a role stands on that sets replicas, whatever kind of object asks for it: which pods are a workload's, and its
//! scale, read and written.

mod pods;
mod scale_client;
mod watch_scopes;

use std::{fmt, sync::Arc};

use kube::Client;

pub(super) use self::{
    pods::OwnershipRule,
    scale_client::ObservedScale,
    watch_scopes::{WatchScope, WatchScopes},
};
use crate::cluster::{target::scale::ScaleClient, watch::WatchFactory};
use plimsoll_core::types::compat::Compat;

/// The workloads of a role.
pub(super) struct Workloads {
    /// What is watched of them.
    pub scopes: WatchScopes,
    /// What is asked for.
    pub scales: ScaleClient,
    client: Client,
    watch_factory: WatchFactory,
    compat: Compat,
}

impl fmt::Debug for Workloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workloads").field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl Workloads {
    /// Those of these namespaces, or of all; nothing is watched yet. Whoever wants upstream's habits asks each time.
    pub fn new(
        namespaces: &[String],
        scales: ScaleClient,
        client: Client,
        reader: WatchFactory,
        compat: Compat,
    ) -> Arc<Self> {
        Arc::new(Self {
            scopes: WatchScopes::new(namespaces),
            scales,
            client,
            watch_factory: reader,
            compat,
        })
    }
}
