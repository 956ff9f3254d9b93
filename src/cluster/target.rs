//! Resolves the target of a VPA to its pods: to a selector, if the target is the topmost of its controllers. Sends
//! requests about objects that are not cached.

mod owner_walk;
pub mod scale;

use std::sync::Arc;

use kube::Client;

use self::owner_walk::{KnownScales, find_top_owner, resolve_target};
use crate::cluster::cache::controllers::{ControllerCache, Lookup, WellKnown};
use crate::cluster::cache::selector::Selector;
use crate::cluster::target::scale::{
    CacheLifetimes, ObjectReference, RequestGate, Scale, ScaleClient,
};
use plimsoll_core::{api::vpa::TargetRef, updater::DesiredReplicas};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetResolution {
    Found {
        selector: Selector,
        /// `group/Kind/name`, with `core` for the core group: the same for every version that a VPA may use.
        owner: Box<str>,
    },
    /// The target has no pods that a VPA can manage, definitely.
    Unsupported { message: String },
    /// Not known at the moment: the previous result remains valid.
    Unavailable {
        /// Message of the condition `ConfigUnsupported`, for a VPA that has no previous result.
        message: String,
    },
}

/// The end of a chain of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopOwner {
    Found(ObjectReference),
    /// No controller in the chain is well known or scalable.
    None,
    /// The chain is invalid, definitely.
    Invalid(String),
    Unavailable(String),
}

/// Resolves targets, from the watches of the well-known kinds and from requests about all other kinds.
#[derive(Clone)]
pub struct TargetResolver {
    controllers: Arc<ControllerCache>,
    scales: ScaleClient,
}

impl TargetResolver {
    /// The client must not retry on its own; `gate` is awaited before each of its requests.
    pub fn new(
        client: Client,
        controllers: Arc<ControllerCache>,
        gate: RequestGate,
        lifetimes: CacheLifetimes,
    ) -> Self {
        Self { controllers, scales: ScaleClient::new(client, gate, lifetimes) }
    }

    /// Resolves a target without sending a request; an error is the object whose scale must be fetched first.
    pub fn resolve_known(
        &self,
        namespace: &str,
        target: &TargetRef,
    ) -> Result<TargetResolution, ObjectReference> {
        resolve_target(&self.controllers, &KnownScales::new(), &target_reference(namespace, target))
    }

    /// The object whose scale must be fetched first to find the topmost owner of `owner`; `None` if nothing is missing.
    pub fn unresolved_scale_above(&self, owner: &ObjectReference) -> Option<ObjectReference> {
        find_top_owner(&self.controllers, &KnownScales::new(), owner).err()
    }

    /// Resolves a target. Sends requests only about kinds that are not well known, and only if the cached response expired.
    pub async fn resolve(&self, namespace: &str, target: &TargetRef) -> TargetResolution {
        let key = target_reference(namespace, target);
        self.with_scales(|scales| resolve_target(&self.controllers, scales, &key)).await
    }

    /// The topmost controller in the chain that starts at `owner`, if any of them is well known or scalable. Sends requests
    /// about kinds that are not well known, as [`TargetResolver::resolve`] does.
    pub async fn topmost(&self, owner: &ObjectReference) -> TopOwner {
        self.with_scales(|scales| find_top_owner(&self.controllers, scales, owner)).await
    }

    /// Repeats a walk with the scale that it misses, until it misses none.
    async fn with_scales<T>(&self, walk: impl Fn(&KnownScales) -> Result<T, ObjectReference>) -> T {
        let mut scales = KnownScales::new();
        loop {
            match walk(&scales) {
                Ok(end) => return end,
                Err(next) => {
                    let scale = self.scales.get(&next).await;
                    scales.insert(next, scale);
                }
            }
        }
    }

    /// The selector of `target`, if it is the topmost controller `top` that [`Self::topmost`] found, and is well known.
    pub fn selector_of_top_owner(
        &self,
        target: &TargetRef,
        top: &ObjectReference,
    ) -> Option<Selector> {
        let is_top = target.kind == *top.kind
            && target.name == *top.name
            && target.api_version.as_deref() == Some(&top.api_version);
        let kind = WellKnown::from_kind(&top.kind).filter(|_| is_top)?;
        match self.controllers.find(kind, &top.namespace, &top.name) {
            Lookup::Found(known) => known.selector,
            Lookup::Missing | Lookup::NotSynced => None,
        }
    }

    /// The desired replicas of a controller. For kinds that are not well known, fetches the scale unless it is cached.
    pub async fn desired_replicas(&self, owner: &ObjectReference) -> DesiredReplicas {
        let known_or_unspecified = |replicas: Option<u32>| {
            replicas.map_or(DesiredReplicas::Unspecified, DesiredReplicas::Known)
        };
        if let Some(kind) = WellKnown::from_kind(&owner.kind) {
            return match self.controllers.find(kind, &owner.namespace, &owner.name) {
                Lookup::Found(controller) => known_or_unspecified(controller.replicas),
                Lookup::Missing | Lookup::NotSynced => DesiredReplicas::Unknown,
            };
        }
        match &*self.scales.get(owner).await {
            Scale::Found { replicas, .. } => known_or_unspecified(*replicas),
            Scale::Missing(_) | Scale::UnknownKind(_) => DesiredReplicas::SameAsCurrent,
            Scale::Unavailable(_) => DesiredReplicas::Unknown,
        }
    }

    /// Reports that a resolution may be out of date, because no pods matched, for example. Refetches unless the scale was
    /// fetched recently; the next resolution uses the result.
    pub async fn revalidate(&self, namespace: &str, target: &TargetRef) {
        if WellKnown::from_kind(&target.kind).is_none() {
            self.scales.revalidate(&target_reference(namespace, target)).await;
        }
    }
}

pub fn target_reference(namespace: &str, target: &TargetRef) -> ObjectReference {
    ObjectReference {
        namespace: namespace.into(),
        api_version: target.api_version.as_deref().unwrap_or_default().into(),
        kind: target.kind.as_str().into(),
        name: target.name.as_str().into(),
    }
}
