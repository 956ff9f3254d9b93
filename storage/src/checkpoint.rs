//! History in VerticalPodAutoscalerCheckpoint objects (`autoscaling.k8s.io/v1`), which upstream's recommender can read
//! too.

pub mod annotation;
mod api_error;
mod backend;
mod cache;
mod client;
mod desired;
mod fingerprint;
mod load;
mod object;
mod object_names;
mod save;

pub use backend::{CheckpointOptions, CheckpointStorage};
