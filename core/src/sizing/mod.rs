//! Turns a recommendation into the resources of one pod: capping, limits, QoS class, quotas, JSON patches. Pure: plain
//! data in, amounts with their reasons out.
//!
//! ```text
//! Pod, SizingSpec (a VPA), NamespaceLimitRanges ─ cap_recommendation ─▶ CappedRecommendation of each container
//!                                                          │
//!                                                   size_containers ─▶ SizedContainer: requests, limits, SizingReasons
//!                                                          │
//!                                                  resize_operations ─▶ Operations
//! ```

pub mod api_validation;
pub mod boost;
pub mod json_patch;
pub mod limit_policy;
pub mod limit_range;
mod lookup;
pub mod pod;
pub mod pod_annotations;
mod pod_constraints;
mod pod_limit_range;
pub mod pod_totals;
mod post_process;
mod proportional;
pub mod quota;
pub mod reason;
mod resource_bounds;
mod shared_requests;
pub mod size_limits;
mod sized_container;
pub mod sizing_spec;
mod vpa_options;

pub use json_patch::Operation;
pub use limit_range::{LimitRangeItem, LimitType, MergedLimitRange, NamespaceLimitRanges};
pub use pod::{
    AdmissionPod, Container, ContainerRef, ContainerType, Controller, Pod, QosClass, Resources,
};
pub use post_process::{CappedRecommendation, cap_recommendation};
pub use reason::{CapRule, SizingError, SizingReason};
pub use sized_container::{SizedContainer, qos_with, size_containers};
pub use sizing_spec::{LimitPolicy, SizingRules, SizingSpec};
pub use vpa_options::VpaOptions;
