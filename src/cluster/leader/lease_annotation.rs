//! The cluster-wide disruption ledger, as an annotation of the updater's Lease. It is written before the change that it
//! accounts for, and only if it is unchanged since it was read.

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, api::Api};
use plimsoll_storage::WritePermit;
use tokio::{runtime::Handle, sync::Mutex};

use super::election_rules;
use crate::cluster::write::{
    UpdateError, WriteError,
    object_client::ObjectClient,
    stats::{WriteKind, WriteOutcome, WriteStats},
};

/// The election waits for these requests, and has to renew the Lease within seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A leader renews the same Lease every other second: one conflict is common, two in a row are rare.
const TRIES: usize = 3;

/// Why the annotation was not written. A conflict has its current value, which another client has set.
type AnnotationError = UpdateError<Option<String>>;

#[derive(Debug)]
pub struct LeaseAnnotationStore {
    shared: Arc<Shared>,
    /// The runtime that sends the requests; the current one if `None`.
    runtime: Option<Handle>,
}

#[derive(Clone, Debug)]
struct Shared {
    lease: ObjectClient<Lease>,
    key: &'static str,
    stats: Arc<WriteStats>,
    /// Shared with the code of this process that renews the Lease.
    lease_lock: Arc<Mutex<()>>,
    /// The Lease as last read or written.
    cached: Arc<Mutex<Option<Lease>>>,
}

impl LeaseAnnotationStore {
    /// The annotation `key` of this Lease. Sends no request yet.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        key: &'static str,
        stats: Arc<WriteStats>,
    ) -> Self {
        let shared = Shared {
            lease: ObjectClient::new(
                Api::namespaced(client, namespace),
                name,
                WriteKind::DisruptionLedger,
                REQUEST_TIMEOUT,
                Arc::clone(&stats),
            ),
            key,
            stats,
            lease_lock: Arc::default(),
            cached: Arc::default(),
        };
        Self { shared: Arc::new(shared), runtime: None }
    }

    /// Sends its requests on this runtime, to which the client must belong: that of the election. Both wait for the same
    /// lock, so a request that is delayed by other work could cost the Lease.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The lock that other writers of the Lease in this process must take, see
    /// [`crate::cluster::leader::election::Election::with_lease_lock`].
    pub fn lease_lock(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.shared.lease_lock)
    }

    /// Reads the annotation; `None` if it is not set.
    pub async fn read(&self) -> Result<Option<String>, WriteError> {
        let shared = Arc::clone(&self.shared);
        self.run_request(async move { shared.read().await }).await?
    }

    /// Replaces the annotation, if its value is still `before`. Retries when other parts of the Lease changed.
    pub async fn write(
        &self,
        permit: &dyn WritePermit,
        before: Option<&str>,
        after: &str,
    ) -> Result<(), AnnotationError> {
        for _ in 0..TRIES {
            // Each attempt is a separate write: the process may have lost its lease since the last one.
            if permit.acquire().await.is_err() {
                self.shared.stats.count(WriteKind::DisruptionLedger, WriteOutcome::NotLeader);
                return Err(WriteError::NotLeader.into());
            }
            let shared = Arc::clone(&self.shared);
            let (before, after) = (before.map(str::to_owned), after.to_owned());
            let attempt = async move { shared.attempt(before.as_deref(), &after).await };
            // On the heap: a future that contains it would be large.
            match self.run_request(Box::pin(attempt)).await? {
                // The Lease changed: read it again.
                Err(UpdateError::Failed(WriteError::NotFound | WriteError::Conflict(_))) => {}
                result => return result,
            }
        }
        let why = format!("too many conflicts on Lease {}", self.shared.lease);
        Err(WriteError::Conflict(why).into())
    }

    async fn run_request<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, WriteError> {
        let Some(runtime) = &self.runtime else { return Ok(request.await) };
        runtime.spawn(request).await.map_err(|why| WriteError::NoResponse(why.to_string()))
    }
}

impl Shared {
    async fn read(&self) -> Result<Option<String>, WriteError> {
        let mut cached = self.cached.lock().await;
        *cached = self.lease.get().await?;
        Ok(cached.as_ref().and_then(|lease| self.annotation(lease)).map(str::to_owned))
    }

    /// One attempt to write. Not found, or a failed write with a conflict, if the Lease changed since it was read.
    async fn attempt(&self, before: Option<&str>, after: &str) -> Result<(), AnnotationError> {
        let _guard = self.lease_lock.lock().await;
        let mut cached = self.cached.lock().await;
        let read = match cached.take() {
            Some(lease) => Some(lease),
            None => self.lease.get().await?,
        };
        let current = read.as_ref().and_then(|lease| self.annotation(lease));
        if current != before {
            let current = current.map(str::to_owned);
            *cached = read;
            return Err(UpdateError::Conflict(current));
        }
        let is_new = read.is_none();
        if is_new {
            self.lease.ensure_can_create().await?;
        }
        let mut lease =
            read.unwrap_or_else(|| Lease { metadata: self.lease.metadata(), spec: None });
        election_rules::annotate(&mut lease, self.key, after.to_owned());
        let written =
            if is_new { self.lease.create(&lease).await } else { self.lease.replace(&lease).await };
        *cached = Some(written?);
        Ok(())
    }

    fn annotation<'a>(&self, lease: &'a Lease) -> Option<&'a str> {
        lease.metadata.annotations.as_ref()?.get(self.key).map(String::as_str)
    }
}
