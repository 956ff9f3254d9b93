//! LimitRanges, reduced to the limits of containers and pods.

use k8s_openapi::{api::core::v1::LimitRange, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;

use crate::cluster::watch::partial_objects::lean_metadata;
use plimsoll_core::sizing::LimitRangeItem;

#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "LimitRange")]
pub struct PartialLimitRange {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: LimitRangeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LimitRangeSpec {
    /// The entries, in the order of the object.
    pub limits: Vec<LimitRangeItem>,
}
