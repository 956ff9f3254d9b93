//! Owns the way from a VPA's target to its pods: the selector, if the target is the topmost of its controllers.
//! Asks about what is not known on that way.

mod walk;

use std::fmt;
use std::sync::Arc;

use kube::Client;

use self::walk::{Asked, judge};
use super::controllers::{Controllers, Lookup, WellKnown};
use super::scale::{Gate, Lifetimes, ObjectKey, Scale, Scales};
use super::selector::Selector;
use plimsoll_core::{api::vpa::TargetRef, updater::Wanted};

/// What a target leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
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
pub enum Top {
    /// This object.
    Found(ObjectKey),
    /// Nothing that is well known or can be scaled.
    None,
    /// The chain is broken, and this is certain.
    Broken(String),
    /// Nobody knows at the moment.
    Unavailable(String),
}

/// Follows targets, by what is watched of the well-known kinds and by what is asked about all others.
#[derive(Clone)]
pub struct Targets {
    controllers: Arc<Controllers>,
    scales: Scales,
}

// === impl Targets ===

impl fmt::Debug for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Targets").field("scales", &self.scales).finish_non_exhaustive()
    }
}

impl Targets {
    /// The client must not retry by itself; the gate is passed before each of its requests.
    pub fn new(
        client: Client,
        controllers: Arc<Controllers>,
        gate: Gate,
        lifetimes: Lifetimes,
    ) -> Self {
        Self { controllers, scales: Scales::new(client, gate, lifetimes) }
    }

    /// Passes this gate instead before requests that nobody waits for: answers that are asked for ahead of time or in doubt.
    #[must_use]
    pub fn with_spare(mut self, spare: Gate) -> Self {
        self.scales = self.scales.with_spare(spare);
        self
    }

    /// Where that target of a VPA leads, if that can be told without asking anybody.
    pub fn resolve_known(&self, namespace: &str, target: &TargetRef) -> Option<Outcome> {
        judge(&self.controllers, &Asked::new(), &key(namespace, target)).ok()
    }

    /// What has to be asked about first to tell where that target of a VPA leads, if anything has.
    pub fn question_about(&self, namespace: &str, target: &TargetRef) -> Option<ObjectKey> {
        judge(&self.controllers, &Asked::new(), &key(namespace, target)).err()
    }

    /// What has to be asked about first to tell the topmost of the controllers above this one, if anything has.
    pub fn question_above(&self, owner: &ObjectKey) -> Option<ObjectKey> {
        walk::top(&self.controllers, &Asked::new(), owner).err()
    }

    /// Where that target of a VPA leads. Asks the API server only about kinds that are not well known, and only
    /// if it was not asked lately.
    pub async fn resolve(&self, namespace: &str, target: &TargetRef) -> Outcome {
        let (key, mut asked) = (key(namespace, target), Asked::new());
        loop {
            match judge(&self.controllers, &asked, &key) {
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
    pub async fn topmost(&self, owner: &ObjectKey) -> Top {
        let mut asked = Asked::new();
        loop {
            match walk::top(&self.controllers, &asked, owner) {
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
    pub fn selector_of_top(&self, target: &TargetRef, top: &ObjectKey) -> Option<Selector> {
        let is_top = target.kind == *top.kind
            && target.name == *top.name
            && target.api_version.as_deref() == Some(&top.api_version);
        let kind = WellKnown::of(&top.kind).filter(|_| is_top)?;
        match self.controllers.find(kind, &top.namespace, &top.name) {
            Lookup::Found(known) => known.selector,
            Lookup::Missing | Lookup::Unread => None,
        }
    }

    /// How many pods that controller is to have. Of what is not well known, its scale is asked for, if it was not lately.
    pub async fn wanted(&self, owner: &ObjectKey) -> Wanted {
        let said = |replicas: Option<u32>| replicas.map_or(Wanted::Unsaid, Wanted::Pods);
        if let Some(kind) = WellKnown::of(&owner.kind) {
            return match self.controllers.find(kind, &owner.namespace, &owner.name) {
                Lookup::Found(known) => said(known.replicas),
                Lookup::Missing | Lookup::Unread => Wanted::Unknown,
            };
        }
        match &*self.scales.get(owner).await {
            Scale::Found { replicas, .. } => said(*replicas),
            Scale::Missing(_) | Scale::NoKind(_) => Wanted::AsThereAre,
            Scale::Unavailable(_) => Wanted::Unknown,
        }
    }

    /// Says that the outcome may be out of date: that no pods were found, for example. What was not asked lately
    /// is asked again, for the next who resolves this target.
    pub async fn doubt(&self, namespace: &str, target: &TargetRef) {
        if WellKnown::of(&target.kind).is_none() {
            self.scales.doubt(&key(namespace, target)).await;
        }
    }
}

/// Where that target of a VPA is.
pub fn key(namespace: &str, target: &TargetRef) -> ObjectKey {
    ObjectKey {
        namespace: namespace.into(),
        api_version: target.api_version.as_deref().unwrap_or_default().into(),
        kind: target.kind.as_str().into(),
        name: target.name.as_str().into(),
    }
}
