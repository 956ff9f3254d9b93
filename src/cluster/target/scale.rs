//! Kinds that are not well known: whether they are scalable, and the selector, replicas and owner of an object from its
//! scale subresource.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::{Client, core::ObjectMeta};
use serde::Deserialize;
use serde_json::Value;

mod discovery;
mod owner_chain;
mod scale_cache;
mod scale_subresource;

use self::discovery::{ApiError, DiscoveryClient};
pub(crate) use self::owner_chain::OwnerChains;
pub(crate) use self::scale_cache::ScaleCache;
pub use self::scale_subresource::ScaleReadError;
use self::scale_subresource::parse_scale;
pub(crate) use self::scale_subresource::{ScaleState, ScaleSubresource};
use crate::cluster::{
    cache::{
        controllers::Owner,
        selector::Selector,
        ttl_cache::{Cached, Fetch, FetchReason, TtlCache},
    },
    write::RateLimiter,
};

/// Waits until one more request may be sent for this reason.
pub type RequestGate = Arc<dyn Fn(FetchReason) -> BoxFuture<'static, ()> + Send + Sync>;

pub fn request_gate(limiter: RateLimiter) -> RequestGate {
    Arc::new(move |_| {
        let limiter = limiter.clone();
        Box::pin(async move { limiter.acquire().await })
    })
}

/// Like [`request_gate`], but a refresh, which no caller waits for, lets all other requests of the rate limiter go first.
pub fn low_priority_refresh_gate(limiter: RateLimiter) -> RequestGate {
    Arc::new(move |reason| {
        let limiter = limiter.clone();
        Box::pin(async move {
            match reason {
                FetchReason::Missing => limiter.acquire().await,
                FetchReason::Refresh => limiter.acquire_low_priority().await,
            }
        })
    })
}

#[derive(Clone, Copy, Debug)]
pub struct CacheLifetimes {
    pub found: Duration,
    /// Lifetime of the result that an object or its scale does not exist.
    pub missing: Duration,
    /// Lifetime of a temporary error.
    pub failed: Duration,
    pub kinds: Duration,
    pub request_timeout: Duration,
    pub capacity: u64,
    /// Lifetimes of unchanged objects grow up to this factor.
    pub max_lifetime_factor: u32,
}

/// A reference to an object of any kind, as in an owner reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectReference {
    pub namespace: Box<str>,
    /// Group and version, or only the version for the core group. May be empty.
    pub api_version: Box<str>,
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// The scale of an object. Errors are messages, because they end up in a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// The object is scalable.
    Found {
        /// Selects its pods; an error if the scale has no valid selector.
        selector: Result<Selector, String>,
        owner: Option<Owner>,
        replicas: Option<u32>,
    },
    /// The object does not exist, or its kind has no scale subresource.
    Missing(String),
    UnknownKind(String),
    Unavailable(String),
}

/// Caches scales by object, and kinds by group.
#[derive(Clone)]
pub struct ScaleClient {
    discovery: DiscoveryClient,
    scales: TtlCache<ObjectReference, Arc<Scale>>,
    pub(crate) owners: OwnerChains,
    lifetimes: CacheLifetimes,
}

/// A scale in any API version: older ones have a map as selector, and a separate `targetSelector`.
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

impl ObjectReference {
    pub fn from_owner(namespace: &str, owner: Owner) -> Self {
        let Owner { api_version, kind, name } = owner;
        Self { namespace: namespace.into(), api_version, kind, name }
    }

    /// The group, empty for the core group; an error if the API version has more than one '/'.
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

impl ScaleClient {
    /// The client must not retry on its own: a failed request is repeated later anyway.
    pub fn new(client: Client, gate: RequestGate, lifetimes: CacheLifetimes) -> Self {
        let discovery = DiscoveryClient::new(client, gate, lifetimes);
        let scales = TtlCache::new(lifetimes.capacity, lifetimes.max_lifetime_factor);
        let owners = OwnerChains::new(discovery.clone(), lifetimes);
        Self { discovery, scales, owners, lifetimes }
    }

    pub async fn get(&self, key: &ObjectReference) -> Arc<Scale> {
        self.scales.get(key, self.scale_fetcher(key)).await
    }

    /// Refetches the scale of an object although the cached one may be valid: when it has no pods although it should, for
    /// example. Does nothing if it was fetched very recently, or recently and has been unchanged repeatedly.
    pub async fn revalidate(&self, key: &ObjectReference) {
        self.scales.revalidate(key, self.lifetimes.missing, self.scale_fetcher(key)).await;
    }

    /// Fetches the scale of an object. The discovery of its kind is cached.
    pub async fn fetch(&self, key: &ObjectReference) -> Result<ScaleSubresource, ScaleReadError> {
        let discovery = &self.discovery;
        let group = key.group().map_err(ScaleReadError::InvalidVersion)?;
        let kinds = discovery.kinds(group, &key.kind).await;
        let kinds =
            kinds.as_ref().as_ref().map_err(|why| ScaleReadError::UnknownKind(why.clone()))?;
        let mut failures = Vec::new();
        let mut is_known = false;
        let mut is_temporary = false;
        for kind in kinds.iter().filter(|kind| kind.name == key.kind) {
            is_known = true;
            let version = kind.root.trim_start_matches("/apis/").trim_start_matches("/api/");
            let path = kind.scale_path(key).map_err(ScaleReadError::NotFound)?;
            let error = match discovery.get::<Value>(&path).await {
                Ok(body) => match parse_scale(key, path, body) {
                    Ok(scale) => return Ok(scale),
                    Err(why) => why,
                },
                Err(ApiError::NotFound(why)) => why,
                Err(ApiError::Transient(why)) => {
                    is_temporary = true;
                    why
                }
            };
            failures.push(format!("could not get scale for the GV {version}, error: {error}"));
        }
        if !is_known {
            let why = format!("no matches for kind {:?} in group {group:?}", key.kind);
            return Err(ScaleReadError::UnknownKind(why));
        }
        let failures = failures.join(", ");
        Err(if is_temporary {
            ScaleReadError::Unavailable(failures)
        } else {
            ScaleReadError::NotFound(failures)
        })
    }

    /// The resource of a kind, with its group unless that is the core group: `ingresses.networking.k8s.io`. The discovery is
    /// cached. The error has upstream's message.
    pub async fn resource(&self, group: &str, kind: &str) -> Result<String, String> {
        let suffix = if group.is_empty() { String::new() } else { format!(".{group}") };
        let found = self.discovery.plural(group, kind).await;
        found
            .map(|plural| format!("{plural}{suffix}"))
            .map_err(|why| format!("unable to map kind {kind}{suffix} to resource: {why}"))
    }

    fn scale_fetcher(&self, key: &ObjectReference) -> Fetch<Arc<Scale>> {
        let (discovery, lifetimes, key) = (self.discovery.clone(), self.lifetimes, key.clone());
        Box::new(move |reason| {
            let discovery = discovery.for_reason(reason);
            Box::pin(async move {
                let scale = discovery.scale(&key).await;
                let lifetime = match &scale {
                    Scale::Found { selector: Ok(_), .. } => lifetimes.found,
                    Scale::Found { .. } | Scale::Missing(_) | Scale::UnknownKind(_) => {
                        lifetimes.missing
                    }
                    Scale::Unavailable(_) => lifetimes.failed,
                };
                let is_definite = !matches!(scale, Scale::Unavailable(_));
                Cached { value: Arc::new(scale), lifetime, is_definite }
            })
        })
    }
}

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
