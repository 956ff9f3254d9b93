//! The way from a target up to its topmost controller, with what is known and what was answered: asks nobody.
//!
//! The messages are those that users of VPAs know, to the letter.

use std::{collections::HashMap, sync::Arc};

use super::{Outcome, Top};
use crate::observe::{
    controllers::{Controllers, Lookup, WellKnown},
    scale::{ObjectKey, Scale},
    selector::Selector,
};

/// Answers that were needed so far.
pub(super) type Asked = HashMap<ObjectKey, Arc<Scale>>;

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

/// The outcome for that target, or the object whose scale it takes to say.
pub(super) fn judge(
    controllers: &Controllers,
    asked: &Asked,
    target: &ObjectKey,
) -> Result<Outcome, ObjectKey> {
    let found = match selector(controllers, asked, target) {
        Ok(found) => found,
        Err(halt) => return halt.outcome(|why| format!("Cannot read targetRef. Reason: {why}")),
    };
    let ObjectKey { api_version, kind, name, .. } = target;
    let described = || format!("{api_version}.{kind}/{name}");
    let checked = "a topmost well-known or scalable controller";
    match topmost(controllers, asked, target) {
        Ok(Some(top)) if top == *target => {
            Ok(Outcome::Found { selector: found, owner: owner(target) })
        }
        Ok(Some(_)) => Ok(Outcome::Unsupported {
            message: format!(
                "The target {} has a parent controller but it should point to {checked}",
                described()
            ),
        }),
        Ok(None) => Ok(Outcome::Unsupported {
            message: format!(
                "Unknown error during checking if target {} is {checked}",
                described()
            ),
        }),
        Err(halt) => halt
            .outcome(|why| format!("Error checking if target {} is {checked}: {why}", described())),
    }
}

/// What stands at the end of the chain that begins with this owner, or the object whose scale it takes to say.
pub(super) fn top(
    controllers: &Controllers,
    asked: &Asked,
    owner: &ObjectKey,
) -> Result<Top, ObjectKey> {
    match topmost(controllers, asked, owner) {
        Ok(Some(top)) => Ok(Top::Found(top)),
        Ok(None) => Ok(Top::None),
        Err(Halt::Ask(next)) => Err(next),
        Err(Halt::Wrong(why)) => Ok(Top::Broken(why)),
        Err(Halt::Unknown(why)) => Ok(Top::Unavailable(why)),
    }
}

/// The pods of one object.
fn selector(controllers: &Controllers, asked: &Asked, key: &ObjectKey) -> Result<Selector, Halt> {
    if let Some(kind) = WellKnown::of(&key.kind) {
        let found = known(controllers.find(kind, &key.namespace, &key.name), key)?.selector;
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
        let owner = known(controllers.owner(kind, &key.namespace, &key.name), key)?;
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

fn known<T>(found: Lookup<T>, key: &ObjectKey) -> Result<T, Halt> {
    match found {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::controllers::{SlimCronJob, SlimDeployment, SlimJob};

    const NAMESPACE: &str = "shop";

    fn at(api_version: &str, kind: &str, name: &str) -> ObjectKey {
        ObjectKey {
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

    /// A deployment of everything that the walk meets, with what is known of it.
    fn cluster(deployment_owner: &str) -> Controllers {
        let controllers = Controllers::new();
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
        for kind in WellKnown::ALL {
            controllers.complete(kind);
        }
        controllers
    }

    fn found(owner: &str) -> Arc<Scale> {
        let owner = match owner.split(' ').collect::<Vec<_>>()[..] {
            [version, kind, name] => Some(crate::observe::controllers::Owner {
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

    /// What upstream's tests of this walk expect, by their names.
    #[test]
    fn the_topmost_controller_is_found_as_upstream_finds_it() {
        let (web, job) = (at("apps/v1", "Deployment", "web"), at("batch/v1", "Job", "run"));
        let scaled = at("x.io/v1", "Scaled", "s");
        let custom = |key: &ObjectKey, scale| Asked::from([(key.clone(), scale)]);
        let missing = || Arc::new(Scale::Missing("not found".to_owned()));
        let top = |owner: &str, asked: &Asked, key: &ObjectKey| match topmost(
            &cluster(owner),
            asked,
            key,
        ) {
            Ok(Some(top)) => format!("{}/{}", top.kind, top.name),
            Ok(None) => "none".to_owned(),
            Err(Halt::Wrong(why)) => why,
            Err(Halt::Unknown(why)) => format!("unknown: {why}"),
            Err(Halt::Ask(key)) => format!("ask {}", key.name),
        };
        let none = Asked::new();
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
                    &custom(&scaled, Arc::new(Scale::NoKind("no matches".to_owned()))),
                    &web,
                ),
                "unhandled targetRef x.io/v1 / Scaled / s, last error no matches",
            ),
            (
                "deployment, parent not to be had",
                top(
                    "x.io/v1 Scaled s",
                    &custom(&scaled, Arc::new(Scale::Unavailable("away".to_owned()))),
                    &web,
                ),
                "unknown: unhandled targetRef x.io/v1 / Scaled / s, last error away",
            ),
            ("deployment, parent not asked yet", top("x.io/v1 Scaled s", &none, &web), "ask s"),
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
        let judged = |asked: &Asked, key: &ObjectKey| match judge(&cluster(""), asked, key) {
            Ok(Outcome::Found { selector, owner }) => format!("{owner} by {selector}"),
            Ok(Outcome::Unsupported { message }) => message,
            Ok(Outcome::Unavailable { message }) => format!("unknown: {message}"),
            Err(key) => format!("ask {}", key.name),
        };
        let (none, scaled) = (Asked::new(), at("x.io/v1", "Scaled", "s"));
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
            let asked = Asked::from([(scaled.clone(), found(owner))]);
            assert_eq!(judged(&asked, &scaled), expected);
        }
        let unread = judge(&Controllers::new(), &none, &at("apps/v1", "Deployment", "web"));
        assert!(matches!(unread, Ok(Outcome::Unavailable { .. })), "{unread:?}");
    }
}
