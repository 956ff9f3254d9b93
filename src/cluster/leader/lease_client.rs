//! Requests for one Lease, each with a time limit, writes counted.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client,
    api::{Api, ObjectMeta, PostParams},
};

use crate::cluster::write::{
    AccessRule, WriteError, WriteStats,
    access_review::ensure_can_create,
    request::{read_with_timeout, write_counted},
    stats::WriteKind,
};

/// One Lease.
#[derive(Clone, Debug)]
pub(crate) struct LeaseClient {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    kind: WriteKind,
    timeout: Duration,
    stats: Arc<WriteStats>,
}

impl LeaseClient {
    /// Creates a client for the Lease of this name, whose writes are counted under this kind.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        kind: WriteKind,
        timeout: Duration,
    ) -> Self {
        let leases = Api::namespaced(client, namespace);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { leases, namespace, name, kind, timeout, stats: Arc::default() }
    }

    /// Counts writes in `stats`.
    pub fn set_stats(&mut self, stats: Arc<WriteStats>) {
        self.stats = stats;
    }

    /// The client that sends the requests.
    pub fn client(&self) -> Client {
        self.leases.clone().into_client()
    }

    /// Name of the Lease.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rule that allows this verb on this Lease.
    pub fn rule(&self, verb: &'static str) -> AccessRule {
        let rule = AccessRule::new(verb, "coordination.k8s.io", "leases");
        let rule = rule.in_namespace(&self.namespace);
        // RBAC cannot restrict `create` by name.
        if verb == "create" { rule } else { rule.for_name(&self.name) }
    }

    /// A Lease of this name without a spec.
    pub fn empty(&self) -> Lease {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: None }
    }

    /// The stored Lease, if there is one.
    pub async fn get(&self) -> Result<Option<Lease>, WriteError> {
        read_with_timeout(self.timeout, self.leases.get_opt(&self.name)).await
    }

    /// Creates the Lease. A conflict if it exists by now.
    pub async fn create(&self, lease: &Lease) -> Result<Lease, WriteError> {
        Box::pin(ensure_can_create(&self.leases, self.rule("create"))).await?;
        let parameters = PostParams::default();
        self.write(self.leases.create(&parameters, lease)).await
    }

    /// Replaces the version of the Lease that was read. Not found, or a conflict, if it was deleted or changed since.
    pub async fn replace(&self, lease: &Lease) -> Result<Lease, WriteError> {
        let parameters = PostParams::default();
        self.write(self.leases.replace(&self.name, &parameters, lease)).await
    }

    async fn write(
        &self,
        request: impl Future<Output = kube::Result<Lease>>,
    ) -> Result<Lease, WriteError> {
        write_counted(&self.stats, self.kind, self.timeout, request).await
    }
}

impl fmt::Display for LeaseClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
