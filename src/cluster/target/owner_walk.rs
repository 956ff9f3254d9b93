//! Walks from a target up to its topmost controller, with cached objects and fetched scales. Sends no requests.
//!
//! The messages are upstream's, to the letter.

use std::{collections::HashMap, sync::Arc};

use super::{TargetResolution, TopOwner};
use crate::cluster::{
    cache::{
        controllers::{ControllerCache, Lookup, WellKnown},
        selector::Selector,
    },
    target::scale::{ObjectReference, Scale},
};

pub(super) type KnownScales = HashMap<ObjectReference, Arc<Scale>>;

#[derive(Debug)]
enum WalkError {
    NeedsScale(ObjectReference),
    Invalid(String),
    /// May be temporary.
    Unknown(String),
}

/// Resolves a target; an error is the object whose scale must be fetched first.
pub(super) fn resolve_target(
    controllers: &ControllerCache,
    scales: &KnownScales,
    target: &ObjectReference,
) -> Result<TargetResolution, ObjectReference> {
    let selected = match selector(controllers, scales, target) {
        Ok(selected) => selected,
        Err(error) => {
            return error.into_resolution(|why| format!("Cannot read targetRef. Reason: {why}"));
        }
    };
    let ObjectReference { api_version, kind, name, .. } = target;
    let describe_target = || format!("{api_version}.{kind}/{name}");
    let requirement = "a topmost well-known or scalable controller";
    match topmost(controllers, scales, target) {
        Ok(Some(top)) if top == *target => {
            Ok(TargetResolution::Found { selector: selected, owner: owner_identity(target) })
        }
        Ok(Some(_)) => Ok(TargetResolution::Unsupported {
            message: format!(
                "The target {} has a parent controller but it should point to {requirement}",
                describe_target()
            ),
        }),
        Ok(None) => Ok(TargetResolution::Unsupported {
            message: format!(
                "Unknown error during checking if target {} is {requirement}",
                describe_target()
            ),
        }),
        Err(error) => error.into_resolution(|why| {
            format!("Error checking if target {} is {requirement}: {why}", describe_target())
        }),
    }
}

/// The end of the chain that begins with this owner; an error is the object whose scale must be fetched first.
pub(super) fn find_top_owner(
    controllers: &ControllerCache,
    scales: &KnownScales,
    owner: &ObjectReference,
) -> Result<TopOwner, ObjectReference> {
    match topmost(controllers, scales, owner) {
        Ok(Some(top)) => Ok(TopOwner::Found(top)),
        Ok(None) => Ok(TopOwner::None),
        Err(WalkError::NeedsScale(next)) => Err(next),
        Err(WalkError::Invalid(why)) => Ok(TopOwner::Invalid(why)),
        Err(WalkError::Unknown(why)) => Ok(TopOwner::Unavailable(why)),
    }
}

fn selector(
    controllers: &ControllerCache,
    scales: &KnownScales,
    key: &ObjectReference,
) -> Result<Selector, WalkError> {
    if let Some(kind) = WellKnown::from_kind(&key.kind) {
        let selector =
            found_or_error(controllers.find(kind, &key.namespace, &key.name), key)?.selector;
        return selector
            .ok_or_else(|| WalkError::Invalid(format!("{} has no valid selector", describe(key))));
    }
    key.group().map_err(WalkError::Invalid)?;
    match scale(scales, key)? {
        Scale::Found { selector: Ok(selector), .. } => Ok(selector.clone()),
        Scale::Found { selector: Err(why), .. } | Scale::Missing(why) | Scale::UnknownKind(why) => {
            Err(WalkError::Invalid(unhandled(key, why)))
        }
        Scale::Unavailable(why) => Err(WalkError::Unknown(unhandled(key, why))),
    }
}

/// The last controller in the chain that is well known or scalable.
fn topmost(
    controllers: &ControllerCache,
    scales: &KnownScales,
    target: &ObjectReference,
) -> Result<Option<ObjectReference>, WalkError> {
    let (mut best, mut seen, mut key) = (None, Vec::new(), target.clone());
    loop {
        let (is_controller, owner) = owner_of(controllers, scales, &key)?;
        if is_controller {
            best = Some(key.clone());
        }
        seen.push(key);
        let Some(owner) = owner else { return Ok(best) };
        if seen.contains(&owner) {
            return Err(WalkError::Invalid("cycle detected in ownership chain".to_owned()));
        }
        key = owner;
    }
}

/// Whether the object is well known or scalable, and its controller.
fn owner_of(
    controllers: &ControllerCache,
    scales: &KnownScales,
    key: &ObjectReference,
) -> Result<(bool, Option<ObjectReference>), WalkError> {
    if let Some(kind) = WellKnown::from_kind(&key.kind) {
        let owner = found_or_error(controllers.owner(kind, &key.namespace, &key.name), key)?;
        return Ok((true, owner.map(|owner| ObjectReference::from_owner(&key.namespace, owner))));
    }
    key.group().map_err(WalkError::Invalid)?;
    if &*key.kind == "Node" {
        // Mirror pods are owned by nodes, which cannot be scaled.
        return Err(WalkError::Invalid(unhandled(key, "node is not a valid owner")));
    }
    match scale(scales, key)? {
        Scale::Found { owner, .. } => {
            let owner =
                owner.clone().map(|owner| ObjectReference::from_owner(&key.namespace, owner));
            Ok((true, owner))
        }
        // Upstream does not follow the owner of an object that cannot be scaled.
        Scale::Missing(_) => Ok((false, None)),
        Scale::UnknownKind(why) => Err(WalkError::Invalid(unhandled(key, why))),
        Scale::Unavailable(why) => Err(WalkError::Unknown(unhandled(key, why))),
    }
}

fn found_or_error<T>(lookup: Lookup<T>, key: &ObjectReference) -> Result<T, WalkError> {
    match lookup {
        Lookup::Found(value) => Ok(value),
        Lookup::Missing => Err(WalkError::Invalid(format!("{} does not exist", describe(key)))),
        Lookup::NotSynced => Err(WalkError::Unknown(format!(
            "{} is not known yet: its kind is not synced",
            describe(key)
        ))),
    }
}

fn scale<'a>(scales: &'a KnownScales, key: &ObjectReference) -> Result<&'a Scale, WalkError> {
    scales.get(key).map(Arc::as_ref).ok_or_else(|| WalkError::NeedsScale(key.clone()))
}

fn describe(key: &ObjectReference) -> String {
    format!("{} {}/{}", key.kind, key.namespace, key.name)
}

fn unhandled(key: &ObjectReference, why: &str) -> String {
    let ObjectReference { api_version, kind, name, .. } = key;
    format!("unhandled targetRef {api_version} / {kind} / {name}, last error {why}")
}

fn owner_identity(key: &ObjectReference) -> Box<str> {
    let group = WellKnown::from_kind(&key.kind).map(WellKnown::group);
    let group = group.or(key.group().ok()).filter(|group| !group.is_empty()).unwrap_or("core");
    format!("{group}/{}/{}", key.kind, key.name).into()
}

impl WalkError {
    fn into_resolution(
        self,
        message: impl FnOnce(String) -> String,
    ) -> Result<TargetResolution, ObjectReference> {
        match self {
            Self::NeedsScale(key) => Err(key),
            Self::Invalid(why) => Ok(TargetResolution::Unsupported { message: message(why) }),
            Self::Unknown(why) => Ok(TargetResolution::Unavailable { message: message(why) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::cache::controllers::{SlimCronJob, SlimDeployment, SlimJob};

    const NAMESPACE: &str = "shop";

    fn at(api_version: &str, kind: &str, name: &str) -> ObjectReference {
        ObjectReference {
            namespace: NAMESPACE.into(),
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
        }
    }

    fn owned(name: &str, owner: &str, spec: &str) -> String {
        let owners = match owner.split(' ').collect::<Vec<_>>()[..] {
            [version, kind, name] => format!(
                "{{apiVersion: {version}, kind: {kind}, name: {name}, uid: u, controller: true}}"
            ),
            _ => String::new(),
        };
        format!(
            "{{metadata: {{name: {name}, namespace: shop, ownerReferences: [{owners}]}}, spec: {{{spec}}}}}"
        )
    }

    /// Every controller that the walk visits.
    fn cluster(deployment_owner: &str) -> ControllerCache {
        let controllers = ControllerCache::new();
        let spec = "selector: {matchLabels: {app: web}}";
        let deployment: SlimDeployment =
            serde_saphyr::from_str(&owned("web", deployment_owner, spec)).expect("valid");
        let job: SlimJob =
            serde_saphyr::from_str(&owned("run", "batch/v1 CronJob nightly", spec)).expect("valid");
        let cron: SlimCronJob =
            serde_saphyr::from_str(&owned("nightly", "", "suspend: true")).expect("valid");
        controllers.put(&deployment);
        controllers.put(&job);
        controllers.put(&cron);
        for &kind in WellKnown::ALL {
            controllers.finish_list(kind);
        }
        controllers
    }

    fn found(owner: &str) -> Arc<Scale> {
        let owner = match owner.split(' ').collect::<Vec<_>>()[..] {
            [version, kind, name] => Some(crate::cluster::cache::controllers::Owner {
                api_version: version.into(),
                kind: kind.into(),
                name: name.into(),
            }),
            _ => None,
        };
        Arc::new(Scale::Found {
            selector: Selector::parse("app=custom").map_err(|_| String::new()),
            owner,
            replicas: None,
        })
    }

    /// The cases of upstream's tests of this walk, with their names.
    #[test]
    fn the_topmost_controller_is_found_as_upstream_finds_it() {
        let (web, job) = (at("apps/v1", "Deployment", "web"), at("batch/v1", "Job", "run"));
        let scaled = at("x.io/v1", "Scaled", "s");
        let custom = |key: &ObjectReference, scale| KnownScales::from([(key.clone(), scale)]);
        let missing = || Arc::new(Scale::Missing("not found".to_owned()));
        let top = |owner: &str, known: &KnownScales, key: &ObjectReference| match topmost(
            &cluster(owner),
            known,
            key,
        ) {
            Ok(Some(top)) => format!("{}/{}", top.kind, top.name),
            Ok(None) => "none".to_owned(),
            Err(WalkError::Invalid(why)) => why,
            Err(WalkError::Unknown(why)) => format!("unknown: {why}"),
            Err(WalkError::NeedsScale(key)) => format!("ask {}", key.name),
        };
        let none = KnownScales::new();
        for (case, answer, expected) in [
            (
                "deployment doesn't exist",
                top("", &none, &at("apps/v1", "Deployment", "ghost")),
                "Deployment shop/ghost does not exist",
            ),
            ("deployment no parent", top("", &none, &web), "Deployment/web"),
            (
                "deployment with parent",
                top("apps/v1 StatefulSet gone", &none, &web),
                "StatefulSet shop/gone does not exist",
            ),
            ("CronJob", top("", &none, &job), "CronJob/nightly"),
            (
                "CronJob no parent",
                top("", &none, &at("batch/v1", "CronJob", "nightly")),
                "CronJob/nightly",
            ),
            (
                "deployment cycle in ownership",
                top("apps/v1 Deployment web", &none, &web),
                "cycle detected in ownership chain",
            ),
            (
                "a cycle through a custom resource",
                top("x.io/v1 Scaled s", &custom(&scaled, found("apps/v1 Deployment web")), &web),
                "cycle detected in ownership chain",
            ),
            (
                "deployment, parent with no scale subresource",
                top("x.io/v1 Scaled s", &custom(&scaled, missing()), &web),
                "Deployment/web",
            ),
            (
                "deployment, parent not well known with scale subresource",
                top("x.io/v1 Scaled s", &custom(&scaled, found("")), &web),
                "Scaled/s",
            ),
            (
                "deployment, parent of unknown kind",
                top(
                    "x.io/v1 Scaled s",
                    &custom(&scaled, Arc::new(Scale::UnknownKind("no matches".to_owned()))),
                    &web,
                ),
                "unhandled targetRef x.io/v1 / Scaled / s, last error no matches",
            ),
            (
                "deployment, parent unavailable",
                top(
                    "x.io/v1 Scaled s",
                    &custom(&scaled, Arc::new(Scale::Unavailable("away".to_owned()))),
                    &web,
                ),
                "unknown: unhandled targetRef x.io/v1 / Scaled / s, last error away",
            ),
            ("deployment, parent not fetched yet", top("x.io/v1 Scaled s", &none, &web), "ask s"),
            (
                "pod, parent is node",
                top("v1 Node node", &none, &web),
                "unhandled targetRef v1 / Node / node, last error node is not a valid owner",
            ),
            (
                "custom resource with no scale subresource",
                top("", &custom(&scaled, missing()), &scaled),
                "none",
            ),
        ] {
            assert_eq!(answer, expected, "{case}");
        }
    }

    #[test]
    fn a_target_is_judged_in_the_words_that_users_know() {
        let judged = |known: &KnownScales, key: &ObjectReference| match resolve_target(
            &cluster(""),
            known,
            key,
        ) {
            Ok(TargetResolution::Found { selector, owner }) => format!("{owner} by {selector}"),
            Ok(TargetResolution::Unsupported { message }) => message,
            Ok(TargetResolution::Unavailable { message }) => format!("unknown: {message}"),
            Err(key) => format!("ask {}", key.name),
        };
        let (none, scaled) = (KnownScales::new(), at("x.io/v1", "Scaled", "s"));
        for (key, expected) in [
            (at("apps/v1", "Deployment", "web"), "apps/Deployment/web by app=web"),
            (at("extensions/v1beta1", "Deployment", "web"), "apps/Deployment/web by app=web"),
            (at("", "Deployment", "web"), "apps/Deployment/web by app=web"),
            (at("batch/v1", "CronJob", "nightly"), "batch/CronJob/nightly by "),
            (
                at("batch/v1", "Job", "run"),
                "The target batch/v1.Job/run has a parent controller but it should point to a topmost well-known or scalable controller",
            ),
            (
                at("apps/v1", "Deployment", "ghost"),
                "Cannot read targetRef. Reason: Deployment shop/ghost does not exist",
            ),
            (
                at("a/b/c", "Scaled", "s"),
                "Cannot read targetRef. Reason: unexpected GroupVersion string: a/b/c",
            ),
            (scaled.clone(), "ask s"),
        ] {
            assert_eq!(judged(&none, &key), expected, "{key:?}");
        }
        for (owner, expected) in [
            ("", "x.io/Scaled/s by app=custom"),
            (
                "apps/v1 Deployment ghost",
                "Error checking if target x.io/v1.Scaled/s is a topmost well-known or scalable controller: Deployment shop/ghost does not exist",
            ),
            (
                "apps/v1 Deployment web",
                "The target x.io/v1.Scaled/s has a parent controller but it should point to a topmost well-known or scalable controller",
            ),
        ] {
            let known = KnownScales::from([(scaled.clone(), found(owner))]);
            assert_eq!(judged(&known, &scaled), expected);
        }
        let unread =
            resolve_target(&ControllerCache::new(), &none, &at("apps/v1", "Deployment", "web"));
        assert!(matches!(unread, Ok(TargetResolution::Unavailable { .. })), "{unread:?}");
    }
}
