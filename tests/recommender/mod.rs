//! The recommender as a process, on a real control plane.

mod empty;
mod faults;
mod life;
pub mod start;
