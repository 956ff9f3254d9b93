//! The recommender as a process, on a real control plane.

mod life;
pub mod start;
