//! Owns what is asked about everything that is not well known: whether its kind can be scaled, and what the
//! scale of one object says of its pods and its owner.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use kube::core::ObjectMeta;
use serde::Deserialize;

mod discovery;
mod owner_chain;
mod scale_cache;
mod scale_subresource;

use self::discovery::{ApiError, DiscoveryClient};
pub use self::scale_cache::ScaleCache;
pub use self::scale_subresource::{ScaleReadError, ScaleState, ScaleSubresource};
use crate::cluster::cache::controllers::Owner;
use crate::cluster::cache::selector::Selector;
use crate::cluster::cache::ttl_cache::{Cached, FetchReason, TtlCache};
use crate::cluster::write::RateLimiter;

/// Waits until one more request may be sent.
pub type RequestGate = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A gate that waits for a rate limiter.
pub fn request_gate(limiter: RateLimiter) -> RequestGate {
    Arc::new(move || {
        let limiter = limiter.clone();
        Box::pin(async move { limiter.acquire().await })
    })
}

/// A gate that also lets all other requests of the rate limiter go first.
pub fn low_priority_gate(limiter: RateLimiter) -> RequestGate {
    Arc::new(move || {
        let limiter = limiter.clone();
        Box::pin(async move { limiter.acquire_low_priority().await })
    })
}

/// How much is kept for how long, and how long an answer may take.
#[derive(Clone, Copy, Debug)]
pub struct CacheLifetimes {
    /// Of the scale of an object.
    pub found: Duration,
    /// Of the answer that there is no such thing.
    pub missing: Duration,
    /// Of an error that may pass.
    pub failed: Duration,
    /// Of the kinds of a group.
    pub kinds: Duration,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How many objects are remembered.
    pub capacity: u64,
    /// So many times as long at most an answer about an object is good for that has stayed the same.
    pub max_lifetime_factor: u32,
}

/// One object of any kind, as an owner reference names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Group and version, or only the version for the core group. May be empty.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// What the scale of an object says. Errors are texts, because they end in a condition that a user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// It can be scaled.
    Found {
        /// Its pods; or why it does not tell.
        selector: Result<Selector, String>,
        /// Its controller.
        owner: Option<Owner>,
        /// How many pods it is to have, if it says so.
        replicas: Option<u32>,
    },
    /// There is no such object, or its kind cannot be scaled.
    Missing(String),
    /// There is no such kind.
    UnknownKind(String),
    /// Nobody knows at the moment.
    Unavailable(String),
}

/// Scales by object, and kinds by group, as the API server last told.
#[derive(Clone)]
pub struct ScaleClient {
    discovery: DiscoveryClient,
    scales: TtlCache<ObjectReference, Arc<Scale>>,
    /// By uid.
    owners: TtlCache<Box<str>, Arc<owner_chain::OwnerStep>>,
    lifetimes: CacheLifetimes,
}

/// A scale in any of its versions: older ones have a map as selector, and its text beside it.
#[derive(Deserialize)]
struct RawScale {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: ScaleSpec,
    #[serde(default)]
    status: ScaleStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleSpec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ScaleStatus {
    replicas: Option<i32>,
    selector: Option<ScaleSelector>,
    target_selector: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ScaleSelector {
    Text(String),
    Labels(BTreeMap<String, String>),
}

// === impl Lifetimes ===

impl Default for CacheLifetimes {
    fn default() -> Self {
        Self {
            found: Duration::from_mins(10),
            missing: Duration::from_mins(1),
            failed: Duration::from_secs(15),
            kinds: Duration::from_mins(5),
            request_timeout: Duration::from_secs(10),
            capacity: 100_000,
            max_lifetime_factor: 1,
        }
    }
}

// === impl ObjectKey ===

impl ObjectReference {
    /// Of an object that controls others in that namespace.
    pub fn from_owner(namespace: &str, owner: Owner) -> Self {
        let Owner { api_version, kind, name } = owner;
        Self { namespace: namespace.into(), api_version, kind, name }
    }

    /// The group, which is empty for the core group; an error when there is more than one '/'.
    pub fn group(&self) -> Result<&str, String> {
        match self.api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => {
                Err(format!("unexpected GroupVersion string: {}", self.api_version))
            }
            Some((group, _)) => Ok(group),
            None => Ok(""),
        }
    }
}

// === impl Scales ===

impl fmt::Debug for ScaleClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scales").field("lifetimes", &self.lifetimes).finish_non_exhaustive()
    }
}

impl ScaleClient {
    /// Asks with that client, which must not retry by itself: a refused request is asked again later anyway.
    pub fn new(client: Client, gate: RequestGate, lifetimes: CacheLifetimes) -> Self {
        let asker = DiscoveryClient::new(client, gate, lifetimes);
        let known =
            TtlCache::new(lifetimes.capacity).with_lifetime_growth(lifetimes.max_lifetime_factor);
        Self {
            discovery: asker,
            scales: known,
            owners: TtlCache::new(lifetimes.capacity),
            lifetimes,
        }
    }

    /// Passes this gate instead before requests that nobody waits for.
    #[must_use]
    pub fn with_low_priority_gate(mut self, spare: RequestGate) -> Self {
        self.discovery = self.discovery.with_low_priority_gate(spare);
        self
    }

    /// The scale of that object.
    pub async fn get(&self, key: &ObjectReference) -> Arc<Scale> {
        self.scales.get(key, self.scale_fetcher(key)).await
    }

    /// Has that object asked for again, although its answer may still be good: when there are no pods where
    /// there should be some. Does nothing when it was asked for a moment ago, or not long ago and has given the same answer
    /// again and again.
    pub async fn revalidate(&self, key: &ObjectReference) {
        self.scales.revalidate(key, self.lifetimes.missing, self.scale_fetcher(key)).await;
    }

    fn scale_fetcher(
        &self,
        key: &ObjectReference,
    ) -> impl FnOnce(FetchReason) -> BoxFuture<'static, Cached<Arc<Scale>>> + Send + use<> {
        let (asker, lifetimes, key) = (self.discovery.clone(), self.lifetimes, key.clone());
        move |asks| {
            let asker = asker.for_reason(asks);
            Box::pin(async move {
                let scale = asker.scale(&key).await;
                let lifetime = match &scale {
                    Scale::Found { selector: Ok(_), .. } => lifetimes.found,
                    Scale::Found { .. } | Scale::Missing(_) | Scale::UnknownKind(_) => {
                        lifetimes.missing
                    }
                    Scale::Unavailable(_) => lifetimes.failed,
                };
                let definite = !matches!(scale, Scale::Unavailable(_));
                Cached { value: Arc::new(scale), lifetime, is_definite: definite }
            })
        }
    }
}

// === impl ScaleObject ===

impl RawScale {
    fn into_scale(self, key: &ObjectReference) -> Scale {
        let owner =
            Owner::controller_of(self.metadata.owner_references.as_deref().unwrap_or_default());
        let text = match (self.status.target_selector, &self.status.selector) {
            (Some(text), _) if !text.is_empty() => text,
            (_, Some(ScaleSelector::Text(text))) => text.clone(),
            (_, Some(ScaleSelector::Labels(labels))) => Selector::from_labels(labels).to_string(),
            (_, None) => String::new(),
        };
        let selector = if text.is_empty() {
            let ObjectReference { namespace, name, .. } = key;
            Err(format!("resource {namespace}/{name} has an empty selector for scale sub-resource"))
        } else {
            Selector::parse(&text).map_err(|why| why.to_string())
        };
        let replicas = self.spec.replicas.and_then(|replicas| u32::try_from(replicas).ok());
        Scale::Found { selector, owner, replicas }
    }
}
