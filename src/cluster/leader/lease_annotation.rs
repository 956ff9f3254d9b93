//! What was changed in the whole cluster, as an annotation on the updater's Lease: written before the change that it pays
//! for, if nobody else did so since it was read.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client,
    api::{Api, ObjectMeta, PostParams},
};
use plimsoll_storage::WritePermit;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::cluster::write::stats::{WriteKind, WriteOutcome, WriteStats};

/// Whoever renews the Lease waits meanwhile, and has to do so within seconds.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

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
    leases: Api<Lease>,
    namespace: String,
    name: String,
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
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
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
        Arc::make_mut(&mut self.shared).stats = stats;
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
        let Shared { namespace, name, .. } = &*self.shared;
        LeaseWriteResult::Failed(format!("Lease {namespace}/{name} changes all the time"))
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
        match tokio::time::timeout(REQUEST_LIMIT, self.leases.get_opt(&self.name)).await {
            Ok(read) => read.map_err(|why| self.error_line(&why.to_string())),
            Err(_) => Err(self.error_line("no answer in time")),
        }
    }

    /// `None` when the Lease changed since it was read.
    async fn write_lease(
        &self,
        lease: Option<Lease>,
        after: &str,
    ) -> Result<Option<Lease>, String> {
        let is_new = lease.is_none();
        let mut lease = lease.unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(self.key.to_owned(), after.to_owned());
        let parameters = PostParams::default();
        let sent = Instant::now();
        let asked = async {
            if is_new {
                self.leases.create(&parameters, &lease).await
            } else {
                self.leases.replace(&self.name, &parameters, &lease).await
            }
        };
        let Ok(answer) = tokio::time::timeout(REQUEST_LIMIT, asked).await else {
            self.stats.count(WriteKind::DisruptionLedger, WriteOutcome::NoResponse, REQUEST_LIMIT);
            return Err(self.error_line("no answer in time"));
        };
        self.stats.count(
            WriteKind::DisruptionLedger,
            WriteOutcome::from_result(&answer),
            sent.elapsed(),
        );
        match answer {
            Ok(stored) => Ok(Some(stored)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(why) => Err(self.error_line(&why.to_string())),
        }
    }

    fn error_line(&self, why: &str) -> String {
        format!("the annotation {} on Lease {}/{}: {why}", self.key, self.namespace, self.name)
    }
}
