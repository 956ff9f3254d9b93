//! The recommender as a process, on a real control plane.

mod faults;
mod life;
pub mod start;
