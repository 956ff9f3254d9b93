//! Follows the chain of controllers above an object. Each step is cached by UID.

use std::sync::Arc;

use kube::core::ObjectMeta;
use serde::Deserialize;

use super::{ApiError, CacheLifetimes, DiscoveryClient, ObjectReference};
use crate::cluster::cache::{
    replica_pod::OwnerRef,
    ttl_cache::{Cached, Fetch, TtlCache},
};

/// Maximum length of an owner chain; a longer one is a cycle.
const MAX_OWNER_CHAIN: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnerStep {
    Owner(OwnerRef),
    /// The object has no controller, or does not exist.
    Top,
    Unknown,
}

#[derive(Deserialize)]
struct OwnedObject {
    #[serde(default)]
    metadata: ObjectMeta,
}

#[derive(Clone)]
pub(crate) struct OwnerChains {
    discovery: DiscoveryClient,
    /// The next owner, by UID.
    owners: TtlCache<Box<str>, Arc<OwnerStep>>,
    lifetimes: CacheLifetimes,
}

impl OwnerChains {
    pub(super) fn new(discovery: DiscoveryClient, lifetimes: CacheLifetimes) -> Self {
        Self { discovery, owners: TtlCache::new(lifetimes.capacity, 1), lifetimes }
    }

    /// Whether the object with this UID is `from` or one of the controllers above it. `None` if that is not known: a request
    /// was forbidden or failed.
    pub async fn contains(&self, uid: &str, namespace: &str, from: &OwnerRef) -> Option<bool> {
        let mut current = from.clone();
        for _ in 0..MAX_OWNER_CHAIN {
            if *current.uid == *uid {
                return Some(true);
            }
            let step = self.owners.get(&current.uid, self.owner_fetcher(namespace, &current)).await;
            match &*step {
                OwnerStep::Owner(next) => current = next.clone(),
                OwnerStep::Top => return Some(false),
                OwnerStep::Unknown => return None,
            }
        }
        Some(false)
    }

    fn owner_fetcher(&self, namespace: &str, owner: &OwnerRef) -> Fetch<Arc<OwnerStep>> {
        let (discovery, lifetimes) = (self.discovery.clone(), self.lifetimes);
        let key = ObjectReference {
            namespace: namespace.into(),
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
        };
        let uid = owner.uid.clone();
        Box::new(move |reason| {
            let discovery = discovery.for_reason(reason);
            Box::pin(async move {
                let step = next_owner(&discovery, &key, &uid).await;
                let lifetime = match step {
                    OwnerStep::Owner(_) => lifetimes.found,
                    // A controller may still adopt the object.
                    OwnerStep::Top => lifetimes.missing,
                    OwnerStep::Unknown => lifetimes.failed,
                };
                let is_definite = step != OwnerStep::Unknown;
                Cached { value: Arc::new(step), lifetime, is_definite }
            })
        })
    }
}

async fn next_owner(discovery: &DiscoveryClient, key: &ObjectReference, uid: &str) -> OwnerStep {
    let Ok(group) = key.group() else { return OwnerStep::Top };
    let kinds = discovery.kinds(group, &key.kind).await;
    let Ok(kinds) = &*kinds else { return OwnerStep::Unknown };
    let Some(kind) = kinds.iter().find(|kind| kind.name == key.kind) else {
        return OwnerStep::Top;
    };
    // An invalid name: no such object exists.
    let Ok(path) = kind.path(key) else { return OwnerStep::Top };
    let metadata = match discovery.get::<OwnedObject>(&path).await {
        Ok(object) => object.metadata,
        Err(ApiError::NotFound(_)) => return OwnerStep::Top,
        Err(ApiError::Transient(_)) => return OwnerStep::Unknown,
    };
    // Another object with the same name does not own the pods of the deleted one.
    if metadata.uid.as_deref() != Some(uid) {
        return OwnerStep::Top;
    }
    let mut owners = metadata.owner_references.unwrap_or_default();
    owners.retain(|owner| owner.controller == Some(true));
    owners.first().map_or(OwnerStep::Top, |owner| OwnerStep::Owner(OwnerRef::from(owner)))
}
