//! Reads the cluster: what is watched and fetched becomes plain data for those who decide.

pub mod index;
pub mod pod;
pub mod selector;
pub mod slim;
