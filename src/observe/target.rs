//! Owns the way from a VPA's target to its pods: the selector, if the target is the topmost of its controllers.
//!
//! The messages are those that users of VPAs know, to the letter.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kube::Client;

use super::controllers::{Controllers, Lookup, WellKnown};
use super::scale::{Gate, Lifetimes, ObjectKey, Scale, Scales};
use super::selector::Selector;
use crate::api::vpa::TargetRef;

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

/// Follows targets, by what is watched of the well-known kinds and by what is asked about all others.
#[derive(Clone)]
pub struct Targets {
    controllers: Arc<Controllers>,
    scales: Scales,
}

/// Answers that were needed so far.
type Asked = HashMap<ObjectKey, Arc<Scale>>;

/// Why a walk did not come to its end.
#[derive(Debug)]
enum Halt {
    /// The scale of this object is not known yet.
    Ask(ObjectKey),
    /// Certain.
    Wrong(String),
    /// May pass.
    Unknown(String),
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

    /// Where that target of a VPA leads, if that can be told without asking anybody.
    pub fn resolve_known(&self, namespace: &str, target: &TargetRef) -> Option<Outcome> {
        judge(&self.controllers, &Asked::new(), &key(namespace, target)).ok()
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

    /// Says that the outcome may be out of date: that no pods were found, for example. What was not asked lately
    /// is asked again, for the next who resolves this target.
    pub async fn doubt(&self, namespace: &str, target: &TargetRef) {
        if WellKnown::of(&target.kind).is_none() {
            self.scales.doubt(&key(namespace, target)).await;
        }
    }
}

fn key(namespace: &str, target: &TargetRef) -> ObjectKey {
    ObjectKey {
        namespace: namespace.into(),
        api_version: target.api_version.as_deref().unwrap_or_default().into(),
        kind: target.kind.as_str().into(),
        name: target.name.as_str().into(),
    }
}

/// The outcome for that target, or the object whose scale it takes to say.
fn judge(
    controllers: &Controllers,
    asked: &Asked,
    target: &ObjectKey,
) -> Result<Outcome, ObjectKey> {
    let found = match selector(controllers, asked, target) {
        Ok(found) => found,
        Err(halt) => return halt.outcome(|why| format!("Cannot read targetRef. Reason: {why}")),
    };
    let ObjectKey { api_version, kind, name, .. } = target;
    let described = format!("{api_version}.{kind}/{name}");
    let checked = "a topmost well-known or scalable controller";
    match topmost(controllers, asked, target) {
        Ok(Some(top)) if top == *target => {
            Ok(Outcome::Found { selector: found, owner: owner(target) })
        }
        Ok(Some(_)) => Ok(Outcome::Unsupported {
            message: format!(
                "The target {described} has a parent controller but it should point to {checked}"
            ),
        }),
        Ok(None) => Ok(Outcome::Unsupported {
            message: format!("Unknown error during checking if target {described} is {checked}"),
        }),
        Err(halt) => {
            halt.outcome(|why| format!("Error checking if target {described} is {checked}: {why}"))
        }
    }
}

/// The pods of one object.
fn selector(controllers: &Controllers, asked: &Asked, key: &ObjectKey) -> Result<Selector, Halt> {
    if let Some(kind) = WellKnown::of(&key.kind) {
        let found = known(controllers, kind, key)?.selector;
        return found.ok_or_else(|| Halt::Wrong(format!("{} has no valid selector", place(key))));
    }
    key.group().map_err(Halt::Wrong)?;
    match scale(asked, key)? {
        Scale::Found { selector: Ok(selector), .. } => Ok(selector.clone()),
        Scale::Found { selector: Err(why), .. } | Scale::Missing(why) | Scale::NoKind(why) => {
            Err(Halt::Wrong(unhandled(key, why)))
        }
        Scale::Unavailable(why) => Err(Halt::Unknown(unhandled(key, why))),
    }
}

/// The last of its chain of controllers that is well known or can be scaled.
fn topmost(
    controllers: &Controllers,
    asked: &Asked,
    target: &ObjectKey,
) -> Result<Option<ObjectKey>, Halt> {
    let (mut best, mut seen, mut key) = (None, Vec::new(), target.clone());
    loop {
        let (counts, owner) = owner_of(controllers, asked, &key)?;
        if counts {
            best = Some(key.clone());
        }
        seen.push(key);
        let Some(owner) = owner else { return Ok(best) };
        if seen.contains(&owner) {
            return Err(Halt::Wrong("cycle detected in ownership chain".to_owned()));
        }
        key = owner;
    }
}

/// Whether the object is well known or can be scaled, and what controls it.
fn owner_of(
    controllers: &Controllers,
    asked: &Asked,
    key: &ObjectKey,
) -> Result<(bool, Option<ObjectKey>), Halt> {
    if let Some(kind) = WellKnown::of(&key.kind) {
        let owner = known(controllers, kind, key)?.owner;
        return Ok((true, owner.map(|owner| ObjectKey::of_owner(&key.namespace, owner))));
    }
    key.group().map_err(Halt::Wrong)?;
    if &*key.kind == "Node" {
        // Mirror pods are owned by nodes, and nobody scales those.
        return Err(Halt::Wrong(unhandled(key, "node is not a valid owner")));
    }
    match scale(asked, key)? {
        Scale::Found { owner, .. } => {
            let owner = owner.clone().map(|owner| ObjectKey::of_owner(&key.namespace, owner));
            Ok((true, owner))
        }
        // What cannot be scaled is not asked for its own owner either.
        Scale::Missing(_) => Ok((false, None)),
        Scale::NoKind(why) => Err(Halt::Wrong(unhandled(key, why))),
        Scale::Unavailable(why) => Err(Halt::Unknown(unhandled(key, why))),
    }
}

fn known(
    controllers: &Controllers,
    kind: WellKnown,
    key: &ObjectKey,
) -> Result<super::controllers::Known, Halt> {
    match controllers.find(kind, &key.namespace, &key.name) {
        Lookup::Found(known) => Ok(known),
        Lookup::Missing => Err(Halt::Wrong(format!("{} does not exist", place(key)))),
        Lookup::Unread => {
            Err(Halt::Unknown(format!("{} is not known yet: its kind is still read", place(key))))
        }
    }
}

fn scale<'a>(asked: &'a Asked, key: &ObjectKey) -> Result<&'a Scale, Halt> {
    asked.get(key).map(Arc::as_ref).ok_or_else(|| Halt::Ask(key.clone()))
}

fn place(key: &ObjectKey) -> String {
    format!("{} {}/{}", key.kind, key.namespace, key.name)
}

fn unhandled(key: &ObjectKey, why: &str) -> String {
    let ObjectKey { api_version, kind, name, .. } = key;
    format!("unhandled targetRef {api_version} / {kind} / {name}, last error {why}")
}

fn owner(key: &ObjectKey) -> Box<str> {
    let group = WellKnown::of(&key.kind).map(WellKnown::group);
    let group = group.or(key.group().ok()).filter(|group| !group.is_empty()).unwrap_or("core");
    format!("{group}/{}/{}", key.kind, key.name).into()
}

// === impl Halt ===

impl Halt {
    fn outcome(self, message: impl FnOnce(String) -> String) -> Result<Outcome, ObjectKey> {
        match self {
            Self::Ask(key) => Err(key),
            Self::Wrong(why) => Ok(Outcome::Unsupported { message: message(why) }),
            Self::Unknown(why) => Ok(Outcome::Unavailable { message: message(why) }),
        }
    }
}
