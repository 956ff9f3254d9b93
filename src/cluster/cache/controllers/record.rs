//! The cached fields of one controller, in one allocation.

use std::{borrow::Borrow, cmp::Ordering};

use super::{Controller, ControllerInfo, Owner};
use crate::cluster::cache::selector::Selector;
use plimsoll_core::coordination::TemplateRequests;

/// Separates the fields of a record: no name, version or selector of the API contains it.
const SEPARATOR: char = '\0';

/// One controller in one allocation, because a cluster stores ten old ReplicaSets for each Deployment: `namespace/name`,
/// the owner's version, kind and name, the replicas, the requests of the pod template, and the selector. The first field is the key of the record.
#[derive(Debug)]
pub(super) struct Record(Box<str>);

impl Record {
    pub fn from_key(namespace: &str, name: &str) -> Self {
        Self(key(namespace, name).into())
    }

    pub fn from_controller<K: Controller>(controller: &K) -> Self {
        let meta = controller.meta();
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let mut text = key(namespace, meta.name.as_deref().unwrap_or_default());
        let owner = Owner::controller_of(meta.owner_references.as_deref().unwrap_or_default());
        for part in owner.map_or_else(Default::default, |o| [o.api_version, o.kind, o.name]) {
            text.push(SEPARATOR);
            text.push_str(&part);
        }
        text.push(SEPARATOR);
        if let Some(replicas) = controller.replicas() {
            text.push_str(&replicas.to_string());
        }
        text.push(SEPARATOR);
        if let Some(template) = controller.template() {
            text.push_str(&template.to_text());
        }
        match controller.selector() {
            Ok(selector) => text.extend(["\0", selector.as_str()]),
            Err(why) => {
                let kind = K::KIND.name();
                tracing::warn!(kind, namespace, name = meta.name, %why, "failed to parse selector");
            }
        }
        Self(text.into())
    }

    /// The key of the record: `namespace/name`.
    pub fn key(&self) -> &str {
        self.0.split(SEPARATOR).next().unwrap_or_default()
    }

    pub fn owner(&self) -> Option<Owner> {
        owner(&mut self.0.split(SEPARATOR).skip(1))
    }

    pub fn template(&self) -> Option<TemplateRequests> {
        TemplateRequests::parse(self.0.split(SEPARATOR).nth(5)?)
    }

    pub fn info(&self) -> ControllerInfo {
        let mut parts = self.0.split(SEPARATOR).skip(1);
        let owner = owner(&mut parts);
        let replicas = parts.next().and_then(|number| number.parse().ok());
        let selector = parts.nth(1).map(Selector::from_canonical);
        ControllerInfo { selector, owner, replicas }
    }
}

fn owner<'a>(parts: &mut impl Iterator<Item = &'a str>) -> Option<Owner> {
    let [api_version, kind, name] =
        [parts.next(), parts.next(), parts.next()].map(Option::unwrap_or_default);
    let [api_version, kind, name] =
        (!name.is_empty()).then(|| [api_version, kind, name].map(Box::from))?;
    Some(Owner { api_version, kind, name })
}

pub(super) fn key(namespace: &str, name: &str) -> String {
    [namespace, "/", name].concat()
}

impl Borrow<str> for Record {
    fn borrow(&self) -> &str {
        self.key()
    }
}

impl Ord for Record {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl PartialOrd for Record {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Record {}
