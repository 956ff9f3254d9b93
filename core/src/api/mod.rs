//! The custom resources: their Rust types, and the CustomResourceDefinitions generated from them.

pub mod annotations;
pub mod checkpoint;
pub mod condition_message;
pub mod crdgen;
pub mod hpa_annotations;
mod passthrough;
pub mod resource_list;
pub mod role_health;
pub mod scale_decision;
pub mod scale_target;
mod schema;
pub mod state;
pub mod vpa;
pub mod wpa;

pub use crdgen::{crds, crds_yaml};
pub use resource_list::{ResourceList, ResourceName};
pub use vpa::{VerticalPodAutoscaler, VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus};
