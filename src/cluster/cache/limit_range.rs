//! LimitRanges, as far as sizes of containers and pods are concerned.

use k8s_openapi::{api::core::v1::LimitRange, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use crate::cluster::watch::partial_objects::lean_metadata;
use plimsoll_core::sizing::LimitRangeItem;

/// A LimitRange.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "LimitRange")]
pub struct PartialLimitRange {
    /// Who it is.
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    /// What it says.
    #[serde(default)]
    pub spec: LimitRangeSpec,
}

/// What a LimitRange says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LimitRangeSpec {
    /// Its entries, in their order.
    pub limits: Vec<LimitRangeItem>,
}
