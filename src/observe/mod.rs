//! Reads the cluster: what is watched and fetched becomes plain data for those who decide.

pub mod answers;
pub mod controllers;
pub mod scale;
pub mod selector;
pub mod target;
