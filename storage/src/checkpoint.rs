//! VerticalPodAutoscalerCheckpoint, `autoscaling.k8s.io/v1`: the form of history that every
//! VerticalPodAutoscaler in a cluster can read.

pub mod annotation;
mod api_error;
mod backend;
mod cache;
mod client;
mod desired;
mod fingerprint;
mod garbage_collection;
mod load;
mod object;
mod object_names;
mod save;

pub use backend::{CheckpointOptions, CheckpointStorage};
