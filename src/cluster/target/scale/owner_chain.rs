//! What stands above an object: its chain of controllers, each known by its uid and asked for once in a while.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::{ApiError, DiscoveryClient, ObjectReference, ScaleClient};
use crate::cluster::cache::{
    replica_pod::OwnerRef,
    ttl_cache::{Cached, FetchReason},
};

/// Nobody has longer chains, and one that goes in a circle has no end.
const MAX_OWNER_CHAIN: usize = 8;

/// What stands right above an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OwnerStep {
    /// This one.
    Owner(OwnerRef),
    /// Nothing: it is the topmost, or gone.
    Top,
    /// Nobody can tell.
    Unknown,
}

#[derive(Deserialize)]
struct OwnedObject {
    #[serde(default)]
    metadata: ObjectMeta,
}

impl ScaleClient {
    /// Whether the object of this uid is `from`, or controls it, or what controls it. Nothing where nobody can tell: it may
    /// not be read, or the server is away.
    pub async fn is_in_owner_chain(
        &self,
        uid: &str,
        namespace: &str,
        from: &OwnerRef,
    ) -> Option<bool> {
        let mut at = from.clone();
        for _ in 0..MAX_OWNER_CHAIN {
            if *at.uid == *uid {
                return Some(true);
            }
            let step = self.owners.get(&at.uid, self.owner_fetcher(namespace, &at)).await;
            match &*step {
                OwnerStep::Owner(next) => at = next.clone(),
                OwnerStep::Top => return Some(false),
                OwnerStep::Unknown => return None,
            }
        }
        Some(false)
    }

    fn owner_fetcher(
        &self,
        namespace: &str,
        of: &OwnerRef,
    ) -> impl FnOnce(FetchReason) -> BoxFuture<'static, Cached<Arc<OwnerStep>>> + Send + use<> {
        let (asker, lifetimes) = (self.discovery.clone(), self.lifetimes);
        let key = ObjectReference {
            namespace: namespace.into(),
            api_version: of.api_version.clone(),
            kind: of.kind.clone(),
            name: of.name.clone(),
        };
        let uid = of.uid.clone();
        move |asks| {
            let asker = asker.for_reason(asks);
            Box::pin(async move {
                let step = asker.owner(&key, &uid).await;
                let lifetime = match step {
                    OwnerStep::Owner(_) => lifetimes.found,
                    // Something may still take it on.
                    OwnerStep::Top => lifetimes.missing,
                    OwnerStep::Unknown => lifetimes.failed,
                };
                let definite = step != OwnerStep::Unknown;
                Cached { value: Arc::new(step), lifetime, is_definite: definite }
            })
        }
    }
}

impl DiscoveryClient {
    async fn owner(&self, key: &ObjectReference, uid: &str) -> OwnerStep {
        let Ok(group) = key.group() else { return OwnerStep::Top };
        let kinds = self.kinds(group, &key.kind).await;
        let Ok(kinds) = &*kinds else { return OwnerStep::Unknown };
        let Some(kind) = kinds.iter().find(|kind| kind.name == key.kind) else {
            return OwnerStep::Top;
        };
        // No object has such a name.
        let Ok(path) = kind.path(key) else { return OwnerStep::Top };
        let found = match self.get::<OwnedObject>(&path).await {
            Ok(found) => found.metadata,
            Err(ApiError::NotFound(_)) => return OwnerStep::Top,
            Err(ApiError::Transient(_)) => return OwnerStep::Unknown,
        };
        // Another one of the same name owns nothing of what the first one left.
        if found.uid.as_deref() != Some(uid) {
            return OwnerStep::Top;
        }
        let mut owners = found.owner_references.unwrap_or_default();
        owners.retain(|owner| owner.controller == Some(true));
        owners.first().map_or(OwnerStep::Top, |owner| OwnerStep::Owner(OwnerRef::from(owner)))
    }
}
