//! The objects that users write and read: their Rust types, and the CustomResourceDefinitions made from
//! them.

pub mod annotation;
pub mod checkpoint;
pub mod crds;
mod foreign;
pub mod message;
pub mod resources;
pub mod scaled;
mod schema;
pub mod trace;
pub mod vitals;
pub mod vpa;
pub mod wpa;

pub use crds::{crds, crds_yaml};
pub use resources::{ResourceList, ResourceName};
pub use vpa::{VerticalPodAutoscaler, VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus};
