//! VerticalPodAutoscalerCheckpoint, `autoscaling.k8s.io/v1`: the form of history that every
//! VerticalPodAutoscaler in a cluster can read.

pub mod annotation;
mod calls;
mod failure;
mod fingerprint;
mod garbage;
mod load;
mod names;
mod object;
mod plan;
mod save;
mod store;
mod table;

pub use store::{Checkpoints, Options};
