//! The names of controllers while a survey is read.

use std::sync::Arc;

use super::pod_groups::SharedValues;
use crate::cluster::cache::controllers::{Owner, WellKnown};

/// Identifies a controller. The version of its API does not matter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ControllerId {
    pub namespace: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    group: Arc<str>,
}

/// A kind that is not built in, by group and name.
pub(super) type CustomKind = (Arc<str>, Arc<str>);

impl ControllerId {
    pub fn new(
        shared: &mut SharedValues,
        namespace: &str,
        (api_version, kind): (&str, &str),
        name: &str,
    ) -> Self {
        let group = group_of_kind(api_version, kind);
        let [namespace, kind, name, group] =
            [namespace, kind, name, group].map(|text| shared.texts.intern(text));
        Self { namespace, kind, name, group }
    }

    pub fn of_owner(shared: &mut SharedValues, namespace: &str, owner: &Owner) -> Self {
        Self::new(shared, namespace, (&owner.api_version, &owner.kind), &owner.name)
    }

    pub fn well_known(&self) -> Option<WellKnown> {
        WellKnown::from_kind(&self.kind).filter(|known| known.group() == &*self.group)
    }

    pub fn custom_kind(&self) -> CustomKind {
        (Arc::clone(&self.group), Arc::clone(&self.kind))
    }
}

/// The group of a kind. Objects may name built-in kinds by a former group, or without one.
fn group_of_kind<'a>(api_version: &'a str, kind: &str) -> &'a str {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    well_known(group, api_version, kind).map_or(group, |known| known.group())
}

/// The built-in kind. A Job of another group, such as Volcano's, is none.
fn well_known(group: &str, api_version: &str, kind: &str) -> Option<WellKnown> {
    let known = WellKnown::from_kind(kind)?;
    let is_former_group = group == "extensions" || api_version.is_empty();
    (known.group() == group || is_former_group).then_some(known)
}
