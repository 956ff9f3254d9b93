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

use crate::act::writes::{Answer, WriteKind, WriteStats};

/// Whoever renews the Lease waits meanwhile, and has to do so within seconds.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// A leader renews the same Lease every other second: another version is common, and seldom twice in a row.
const TRIES: usize = 3;

/// What came of writing it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is stored.
    Done,
    /// Somebody else changed it meanwhile: this is what stands there now.
    Overtaken(Option<String>),
    /// It is not stored: this process may not write, or something failed.
    Unwritten(String),
}

/// An annotation on one Lease.
#[derive(Debug)]
pub struct LedgerLease {
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
    turn: Arc<Mutex<()>>,
    /// As it was read or written last.
    known: Arc<Mutex<Option<Lease>>>,
}

impl LedgerLease {
    /// The annotation of that key on this Lease. Nothing is read or written yet.
    pub fn new(client: Client, namespace: &str, name: &str, key: &'static str) -> Self {
        let shared = Shared {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key,
            stats: Arc::default(),
            turn: Arc::default(),
            known: Arc::default(),
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

    /// What whoever else writes the Lease from this process has to take, see [`crate::act::Election::with_turn`].
    pub fn turn(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.shared.turn)
    }

    /// What stands there, if anything does.
    pub async fn read(&self) -> Result<Option<String>, String> {
        let shared = Arc::clone(&self.shared);
        self.run(async move { shared.read().await }).await.unwrap_or_else(Err)
    }

    /// Writes it in place of what was read before. Other changes of the Lease are no reason not to.
    pub async fn write(&self, permit: &dyn WritePermit, before: Option<&str>, after: &str) -> Kept {
        for _ in 0..TRIES {
            // Each is a write of its own: who led when the last one was made may not lead any more.
            if permit.acquire().await.is_err() {
                self.shared.stats.count(WriteKind::Ledger, Answer::Fenced, Duration::ZERO);
                return Kept::Unwritten("this process may not write".to_owned());
            }
            let shared = Arc::clone(&self.shared);
            let (before, after) = (before.map(str::to_owned), after.to_owned());
            let tried = self.run(async move { shared.attempt(before.as_deref(), &after).await });
            match tried.await {
                Ok(Some(kept)) => return kept,
                // It is another one by now, and is read again.
                Ok(None) => {}
                Err(why) => return Kept::Unwritten(why),
            }
        }
        let Shared { namespace, name, .. } = &*self.shared;
        Kept::Unwritten(format!("Lease {namespace}/{name} changes all the time"))
    }

    async fn run<T: Send + 'static>(
        &self,
        requests: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let Some(runtime) = &self.runtime else { return Ok(requests.await) };
        runtime.spawn(requests).await.map_err(|why| self.shared.failed(&why.to_string()))
    }
}

impl Shared {
    async fn read(&self) -> Result<Option<String>, String> {
        let mut known = self.known.lock().await;
        *known = self.get().await?;
        Ok(known.as_ref().and_then(|lease| self.text(lease)).map(str::to_owned))
    }

    /// One try to write it. `None` when the Lease changed since it was read.
    async fn attempt(&self, before: Option<&str>, after: &str) -> Option<Kept> {
        let _turn = self.turn.lock().await;
        let mut known = self.known.lock().await;
        let lease = match known.take() {
            Some(lease) => Some(lease),
            None => match self.get().await {
                Ok(lease) => lease,
                Err(why) => return Some(Kept::Unwritten(why)),
            },
        };
        let stands = lease.as_ref().and_then(|lease| self.text(lease));
        if stands != before {
            let stands = stands.map(str::to_owned);
            *known = lease;
            return Some(Kept::Overtaken(stands));
        }
        match self.put(lease, after).await {
            Ok(Some(stored)) => {
                *known = Some(stored);
                Some(Kept::Done)
            }
            Ok(None) => None,
            Err(why) => Some(Kept::Unwritten(why)),
        }
    }

    fn text<'a>(&self, lease: &'a Lease) -> Option<&'a str> {
        lease.metadata.annotations.as_ref()?.get(self.key).map(String::as_str)
    }

    async fn get(&self) -> Result<Option<Lease>, String> {
        match tokio::time::timeout(REQUEST_LIMIT, self.leases.get_opt(&self.name)).await {
            Ok(read) => read.map_err(|why| self.failed(&why.to_string())),
            Err(_) => Err(self.failed("no answer in time")),
        }
    }

    /// `None` when the Lease changed since it was read.
    async fn put(&self, lease: Option<Lease>, after: &str) -> Result<Option<Lease>, String> {
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
            self.stats.count(WriteKind::Ledger, Answer::None, REQUEST_LIMIT);
            return Err(self.failed("no answer in time"));
        };
        self.stats.count(WriteKind::Ledger, Answer::of(&answer), sent.elapsed());
        match answer {
            Ok(stored) => Ok(Some(stored)),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(why) => Err(self.failed(&why.to_string())),
        }
    }

    fn failed(&self, why: &str) -> String {
        format!("the annotation {} on Lease {}/{}: {why}", self.key, self.namespace, self.name)
    }
}
