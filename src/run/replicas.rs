//! What a role stands on that sets replicas, whatever kind of object asks for it: which pods are a workload's, and its
//! scale, read and written.

mod pods;
mod scales;
mod scopes;

use std::{fmt, sync::Arc};

use kube::Client;

pub(super) use self::{
    pods::Belonging,
    scales::Sight,
    scopes::{Scope, Scopes},
};
use crate::observe::{scale::Scales, watch::Reader};
use plimsoll_core::types::compat::Compat;

/// The workloads of a role.
pub(super) struct Workloads {
    /// What is watched of them.
    pub scopes: Scopes,
    /// What is asked for.
    pub scales: Scales,
    client: Client,
    reader: Reader,
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
        scales: Scales,
        client: Client,
        reader: Reader,
        compat: Compat,
    ) -> Arc<Self> {
        Arc::new(Self { scopes: Scopes::new(namespaces), scales, client, reader, compat })
    }
}
