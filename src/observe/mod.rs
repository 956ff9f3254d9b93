//! Reads the cluster: what is watched and fetched becomes plain data for those who decide.

pub mod selector;
