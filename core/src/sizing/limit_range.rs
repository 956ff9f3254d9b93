//! The LimitRanges of a namespace, merged into one set of limits for containers and one for pods.

use serde::Deserialize;

use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// One item of `LimitRange.spec.limits`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeItem {
    /// What the item applies to.
    #[serde(rename = "type")]
    pub kind: LimitType,
    /// Upper bound of requests and limits.
    pub max: Option<ResourceList>,
    /// Lower bound of requests and limits.
    pub min: Option<ResourceList>,
    pub default: Option<ResourceList>,
    /// Upper bound of the ratio of limit to request.
    pub max_limit_request_ratio: Option<ResourceList>,
}

/// What an item of a LimitRange applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum LimitType {
    Container,
    /// All containers of a pod together.
    Pod,
    /// Anything else, such as a PersistentVolumeClaim.
    #[default]
    #[serde(other)]
    Other,
}

/// All items of one type, merged. An absent or zero amount sets no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedLimitRange {
    /// The lowest of all maxima.
    pub max: ResourceList,
    /// The highest of all minima.
    pub min: ResourceList,
    /// The default limits of the last item that has any.
    pub default: ResourceList,
    /// The lowest of all ratios. Upstream ignores it.
    pub max_limit_request_ratio: ResourceList,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceLimitRanges {
    /// Items of type `Container`.
    pub container: Option<MergedLimitRange>,
    /// Items of type `Pod`.
    pub pod: Option<MergedLimitRange>,
}

impl MergedLimitRange {
    /// Merges the items of one type; `None` if they set nothing. Which default wins depends on the order: sort items by
    /// the name of their LimitRange to make it deterministic.
    pub fn merge(kind: LimitType, items: &[LimitRangeItem]) -> Option<Self> {
        let mut merged = Self::default();
        // The later one if both are equal, because its format may differ.
        let smaller = |known, other: Quantity| other.min(known);
        for item in items.iter().filter(|item| item.kind == kind) {
            if let Some(default) = &item.default {
                merged.default.clone_from(default);
            }
            let list = |list: &Option<ResourceList>| list.clone().unwrap_or_default();
            merged.max.merge(&list(&item.max), smaller);
            merged.min.merge(&list(&item.min), Ord::max);
            merged.max_limit_request_ratio.merge(&list(&item.max_limit_request_ratio), smaller);
        }
        Some(merged).filter(|merged| *merged != Self::default())
    }

    /// Whether it sets anything that upstream uses.
    pub fn is_used_upstream(&self) -> bool {
        !(self.max.is_empty() && self.min.is_empty() && self.default.is_empty())
    }

    /// Returns the maximum of a resource, if set.
    pub fn max(&self, resource: &ResourceName) -> Option<Quantity> {
        self.max.get(resource).filter(|amount| !amount.is_zero())
    }

    /// Returns the minimum of a resource, if set.
    pub fn min(&self, resource: &ResourceName) -> Option<Quantity> {
        self.min.get(resource).filter(|amount| !amount.is_zero())
    }

    /// How many times the request a limit may be, if that is limited.
    pub fn max_limit_request_ratio(&self, resource: &ResourceName) -> Option<Quantity> {
        self.max_limit_request_ratio.get(resource).filter(|amount| !amount.is_zero())
    }
}

impl NamespaceLimitRanges {
    pub fn merge(items: &[LimitRangeItem]) -> Self {
        Self {
            container: MergedLimitRange::merge(LimitType::Container, items),
            pod: MergedLimitRange::merge(LimitType::Pod, items),
        }
    }
}
