//! What was changed in the whole cluster, as an annotation on the updater's Lease: written before the change that it pays
//! for, if nobody else did so since it was read.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use plimsoll_storage::WritePermit;
use tokio::{runtime::Handle, sync::Mutex};

use super::lease_client::LeaseClient;
use crate::cluster::write::{
    request::RequestError,
    stats::{WriteKind, WriteOutcome, WriteStats},
};

/// Whoever renews the Lease waits meanwhile, and has to do so within seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A leader renews the same Lease every other second: another version is common, and seldom twice in a row.
const TRIES: usize = 3;

/// What came of writing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseWriteResult {
    /// It is stored.
    Written,
    /// Somebody else changed it meanwhile: this is what stands there now.
    Conflict(Option<String>),
    /// It is not stored: this process may not write, or something failed.
    Failed(String),
}

/// An annotation on one Lease.
#[derive(Debug)]
pub struct LeaseAnnotationStore {
    shared: Arc<Shared>,
    /// Where requests are made.
    runtime: Option<Handle>,
}

#[derive(Clone, Debug)]
struct Shared {
    lease: LeaseClient,
    key: &'static str,
    stats: Arc<WriteStats>,
    /// Taken by whoever else of this process writes this Lease, too.
    lease_lock: Arc<Mutex<()>>,
    /// As it was read or written last.
    cached: Arc<Mutex<Option<Lease>>>,
}

impl LeaseAnnotationStore {
    /// The annotation of that key on this Lease. Nothing is read or written yet.
    pub fn new(client: Client, namespace: &str, name: &str, key: &'static str) -> Self {
        let shared = Shared {
            lease: LeaseClient::new(
                client,
                namespace,
                name,
                WriteKind::DisruptionLedger,
                REQUEST_TIMEOUT,
            ),
            key,
            stats: Arc::default(),
            lease_lock: Arc::default(),
            cached: Arc::default(),
        };
        Self { shared: Arc::new(shared), runtime: None }
    }

    /// Counts its writes into these.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        let shared = Arc::make_mut(&mut self.shared);
        shared.lease.set_stats(Arc::clone(&stats));
        shared.stats = stats;
        self
    }

    /// Makes its requests on the runtime of whoever renews the Lease, which the client has to belong to. The two wait for each
    /// other, so that one which is held up by other work would cost the Lease.
    #[must_use]
    pub fn with_runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// What whoever else writes the Lease from this process has to take, see [`crate::cluster::leader::Election::with_turn`].
    pub fn lease_lock(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.shared.lease_lock)
    }

    /// What stands there, if anything does.
    pub async fn read(&self) -> Result<Option<String>, String> {
        let shared = Arc::clone(&self.shared);
        self.run_request(async move { shared.read().await }).await.unwrap_or_else(Err)
    }

    /// Writes it in place of what was read before. Other changes of the Lease are no reason not to.
    pub async fn write(
        &self,
        permit: &dyn WritePermit,
        before: Option<&str>,
        after: &str,
    ) -> LeaseWriteResult {
        for _ in 0..TRIES {
            // Each is a write of its own: who led when the last one was made may not lead any more.
            if permit.acquire().await.is_err() {
                self.shared.stats.count(
                    WriteKind::DisruptionLedger,
                    WriteOutcome::NotLeader,
                    Duration::ZERO,
                );
                return LeaseWriteResult::Failed("this process may not write".to_owned());
            }
            let shared = Arc::clone(&self.shared);
            let (before, after) = (before.map(str::to_owned), after.to_owned());
            let tried =
                self.run_request(async move { shared.attempt(before.as_deref(), &after).await });
            match tried.await {
                Ok(Some(kept)) => return kept,
                // It is another one by now, and is read again.
                Ok(None) => {}
                Err(why) => return LeaseWriteResult::Failed(why),
            }
        }
        LeaseWriteResult::Failed(format!("Lease {} changes all the time", self.shared.lease))
    }

    async fn run_request<T: Send + 'static>(
        &self,
        requests: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let Some(runtime) = &self.runtime else { return Ok(requests.await) };
        runtime.spawn(requests).await.map_err(|why| self.shared.error_line(&why.to_string()))
    }
}

impl Shared {
    async fn read(&self) -> Result<Option<String>, String> {
        let mut known = self.cached.lock().await;
        *known = self.get().await?;
        Ok(known.as_ref().and_then(|lease| self.annotation(lease)).map(str::to_owned))
    }

    /// One try to write it. `None` when the Lease changed since it was read.
    async fn attempt(&self, before: Option<&str>, after: &str) -> Option<LeaseWriteResult> {
        let _turn = self.lease_lock.lock().await;
        let mut known = self.cached.lock().await;
        let lease = match known.take() {
            Some(lease) => Some(lease),
            None => match self.get().await {
                Ok(lease) => lease,
                Err(why) => return Some(LeaseWriteResult::Failed(why)),
            },
        };
        let stands = lease.as_ref().and_then(|lease| self.annotation(lease));
        if stands != before {
            let stands = stands.map(str::to_owned);
            *known = lease;
            return Some(LeaseWriteResult::Conflict(stands));
        }
        match self.write_lease(lease, after).await {
            Ok(Some(stored)) => {
                *known = Some(stored);
                Some(LeaseWriteResult::Written)
            }
            Ok(None) => None,
            Err(why) => Some(LeaseWriteResult::Failed(why)),
        }
    }

    fn annotation<'a>(&self, lease: &'a Lease) -> Option<&'a str> {
        lease.metadata.annotations.as_ref()?.get(self.key).map(String::as_str)
    }

    async fn get(&self) -> Result<Option<Lease>, String> {
        self.lease.get().await.map_err(|why| self.error_line(&why.to_string()))
    }

    /// `None` if the Lease changed since it was read.
    async fn write_lease(&self, read: Option<Lease>, after: &str) -> Result<Option<Lease>, String> {
        let is_new = read.is_none();
        let mut lease = read.unwrap_or_else(|| self.lease.empty());
        let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(self.key.to_owned(), after.to_owned());
        let written = match is_new {
            true => self.lease.create(&lease).await,
            false => self.lease.replace(&lease).await,
        };
        match written {
            Ok(stored) => Ok(Some(stored)),
            Err(RequestError::Rejected { code: 404 | 409, .. }) => Ok(None),
            Err(why) => Err(self.error_line(&why.to_string())),
        }
    }

    fn error_line(&self, why: &str) -> String {
        format!("annotation {} of Lease {}: {why}", self.key, self.lease)
    }
}
