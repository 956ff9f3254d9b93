//! Owns the way from a VPA's target to its pods: the selector, if the target is the topmost of its controllers.
//! Asks about what is not known on that way.

pub mod one_shot;
mod owner_walk;
pub mod scale;

use std::fmt;
use std::sync::Arc;

use kube::Client;

use self::owner_walk::{KnownScales, resolve_target};
use crate::cluster::cache::controllers::{ControllerCache, Lookup, WellKnown};
use crate::cluster::cache::selector::Selector;
use crate::cluster::target::scale::{
    CacheLifetimes, ObjectReference, RequestGate, Scale, ScaleClient,
};
use plimsoll_core::{api::vpa::TargetRef, updater::DesiredReplicas};

/// What a target leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetResolution {
    /// To its pods.
    Found {
        /// The pods.
        selector: Selector,
        /// `group/Kind/name`, with `core` for the core group: the same for every version that a VPA may name.
        owner: Box<str>,
    },
    /// Nowhere, and this is certain.
    Unsupported {
        /// For the condition `ConfigUnsupported`.
        message: String,
    },
    /// Nobody knows at the moment: what was known before still holds.
    Unavailable {
        /// For the condition `ConfigUnsupported`, of a VPA of which nothing was known before.
        message: String,
    },
}

/// What stands at the end of a chain of controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopOwner {
    /// This object.
    Found(ObjectReference),
    /// Nothing that is well known or can be scaled.
    None,
    /// The chain is broken, and this is certain.
    Invalid(String),
    /// Nobody knows at the moment.
    Unavailable(String),
}

/// Follows targets, by what is watched of the well-known kinds and by what is asked about all others.
#[derive(Clone)]
pub struct TargetResolver {
    controllers: Arc<ControllerCache>,
    scales: ScaleClient,
}

// === impl Targets ===

impl fmt::Debug for TargetResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").field("scales", &self.scales).finish_non_exhaustive()
    }
}

impl TargetResolver {
    /// The client must not retry by itself; the gate is passed before each of its requests.
    pub fn new(
        client: Client,
        controllers: Arc<ControllerCache>,
        gate: RequestGate,
        lifetimes: CacheLifetimes,
    ) -> Self {
        Self { controllers, scales: ScaleClient::new(client, gate, lifetimes) }
    }

    /// Passes this gate instead before requests that nobody waits for: answers that are asked for ahead of time or in doubt.
    #[must_use]
    pub fn with_low_priority_gate(mut self, spare: RequestGate) -> Self {
        self.scales = self.scales.with_low_priority_gate(spare);
        self
    }

    /// Where that target of a VPA leads, if that can be told without asking anybody.
    pub fn resolve_known(&self, namespace: &str, target: &TargetRef) -> Option<TargetResolution> {
        resolve_target(&self.controllers, &KnownScales::new(), &target_reference(namespace, target))
            .ok()
    }

    /// What has to be asked about first to tell where that target of a VPA leads, if anything has.
    pub fn unresolved_scale_of(
        &self,
        namespace: &str,
        target: &TargetRef,
    ) -> Option<ObjectReference> {
        resolve_target(&self.controllers, &KnownScales::new(), &target_reference(namespace, target))
            .err()
    }

    /// What has to be asked about first to tell the topmost of the controllers above this one, if anything has.
    pub fn unresolved_scale_above(&self, owner: &ObjectReference) -> Option<ObjectReference> {
        owner_walk::find_top_owner(&self.controllers, &KnownScales::new(), owner).err()
    }

    /// Where that target of a VPA leads. Asks the API server only about kinds that are not well known, and only
    /// if it was not asked lately.
    pub async fn resolve(&self, namespace: &str, target: &TargetRef) -> TargetResolution {
        let (key, mut asked) = (target_reference(namespace, target), KnownScales::new());
        loop {
            match resolve_target(&self.controllers, &asked, &key) {
                Ok(outcome) => return outcome,
                Err(next) => {
                    let scale = self.scales.get(&next).await;
                    asked.insert(next, scale);
                }
            }
        }
    }

    /// The topmost of the controllers of something that this one owns, if any of them is well known or can be scaled.
    /// Asks about what is not well known, as [`Targets::resolve`] does.
    pub async fn topmost(&self, owner: &ObjectReference) -> TopOwner {
        let mut asked = KnownScales::new();
        loop {
            match owner_walk::find_top_owner(&self.controllers, &asked, owner) {
                Ok(top) => return top,
                Err(next) => {
                    let scale = self.scales.get(&next).await;
                    asked.insert(next, scale);
                }
            }
        }
    }

    /// The selector of a target that stands at the end of its chain, as [`Self::topmost`] has found; nothing where it does
    /// not, or where more must be known to tell.
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

    /// How many pods that controller is to have. Of what is not well known, its scale is asked for, if it was not lately.
    pub async fn desired_replicas(&self, owner: &ObjectReference) -> DesiredReplicas {
        let said = |replicas: Option<u32>| {
            replicas.map_or(DesiredReplicas::Unspecified, DesiredReplicas::Known)
        };
        if let Some(kind) = WellKnown::from_kind(&owner.kind) {
            return match self.controllers.find(kind, &owner.namespace, &owner.name) {
                Lookup::Found(known) => said(known.replicas),
                Lookup::Missing | Lookup::NotSynced => DesiredReplicas::Unknown,
            };
        }
        match &*self.scales.get(owner).await {
            Scale::Found { replicas, .. } => said(*replicas),
            Scale::Missing(_) | Scale::UnknownKind(_) => DesiredReplicas::SameAsCurrent,
            Scale::Unavailable(_) => DesiredReplicas::Unknown,
        }
    }

    /// Says that the outcome may be out of date: that no pods were found, for example. What was not asked lately
    /// is asked again, for the next who resolves this target.
    pub async fn revalidate(&self, namespace: &str, target: &TargetRef) {
        if WellKnown::from_kind(&target.kind).is_none() {
            self.scales.revalidate(&target_reference(namespace, target)).await;
        }
    }
}

/// Where that target of a VPA is.
pub fn target_reference(namespace: &str, target: &TargetRef) -> ObjectReference {
    ObjectReference {
        namespace: namespace.into(),
        api_version: target.api_version.as_deref().unwrap_or_default().into(),
        kind: target.kind.as_str().into(),
        name: target.name.as_str().into(),
    }
}
