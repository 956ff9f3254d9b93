//! LimitRanges of a namespace, merged into what holds for each container and for a whole pod.

use serde::Deserialize;

use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// One entry of a LimitRange, as the API writes it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeItem {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: LimitType,
    /// No limit, and no request, above this.
    pub max: Option<ResourceList>,
    /// No request, and no limit, below this.
    pub min: Option<ResourceList>,
    /// Limits of containers that name none.
    pub default: Option<ResourceList>,
    /// Requests of containers that name none.
    pub default_request: Option<ResourceList>,
    /// No limit more than this many times the request.
    pub max_limit_request_ratio: Option<ResourceList>,
}

/// What an entry of a LimitRange is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum LimitType {
    /// Each container.
    Container,
    /// All containers of a pod together.
    Pod,
    /// Anything else, such as claims of volumes.
    #[default]
    #[serde(other)]
    Other,
}

/// What all entries of one kind say together. What is absent, or 0, limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedLimitRange {
    /// The lowest of all maxima.
    pub max: ResourceList,
    /// The highest of all minima.
    pub min: ResourceList,
    /// The default limits of the last entry that has any.
    pub default: ResourceList,
    /// The lowest of all ratios. Upstream does not look at it.
    pub max_limit_request_ratio: ResourceList,
}

/// What the LimitRanges of a namespace say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLimitRanges {
    /// For each container.
    pub container: Option<MergedLimitRange>,
    /// For a whole pod.
    pub pod: Option<MergedLimitRange>,
}

impl MergedLimitRange {
    /// What the entries of one kind say together, if they say anything. Which default wins depends on their order: give
    /// them by the name of their object, so that it is the same one each time.
    pub fn merge(kind: LimitType, items: &[LimitRangeItem]) -> Option<Self> {
        let mut merged = Self::default();
        for item in items.iter().filter(|item| item.kind == kind) {
            if let Some(default) = &item.default {
                merged.default.clone_from(default);
            }
            merge_lists(&mut merged.max, item.max.as_ref(), smaller);
            merge_lists(&mut merged.min, item.min.as_ref(), larger);
            merge_lists(
                &mut merged.max_limit_request_ratio,
                item.max_limit_request_ratio.as_ref(),
                smaller,
            );
        }
        Some(merged).filter(|merged| *merged != Self::default())
    }

    /// Whether it says anything that upstream looks at.
    pub fn is_used_upstream(&self) -> bool {
        !(self.max.is_empty() && self.min.is_empty() && self.default.is_empty())
    }

    /// The maximum of a resource, if there is one.
    pub fn max(&self, resource: &ResourceName) -> Option<Quantity> {
        self.max.get(resource).filter(|amount| !amount.is_zero())
    }

    /// The minimum of a resource, if there is one.
    pub fn min(&self, resource: &ResourceName) -> Option<Quantity> {
        self.min.get(resource).filter(|amount| !amount.is_zero())
    }

    /// How many times the request a limit may be, if that is limited.
    pub fn max_limit_request_ratio(&self, resource: &ResourceName) -> Option<Quantity> {
        self.max_limit_request_ratio.get(resource).filter(|amount| !amount.is_zero())
    }
}

fn merge_lists(
    into: &mut ResourceList,
    from: Option<&ResourceList>,
    pick: fn(Quantity, Quantity) -> Quantity,
) {
    for (resource, amount) in from.into_iter().flat_map(ResourceList::iter) {
        let amount = into.get(resource).map_or(amount, |known| pick(known, amount));
        into.insert(resource.clone(), amount);
    }
}

/// The later one where both are equal: it may be written otherwise.
fn smaller(known: Quantity, other: Quantity) -> Quantity {
    if known < other { known } else { other }
}

fn larger(known: Quantity, other: Quantity) -> Quantity {
    if known > other { known } else { other }
}

impl NamespaceLimitRanges {
    /// Merges the entries of all LimitRanges of a namespace.
    pub fn merge(items: &[LimitRangeItem]) -> Self {
        Self {
            container: MergedLimitRange::merge(LimitType::Container, items),
            pod: MergedLimitRange::merge(LimitType::Pod, items),
        }
    }
}
