//! The recommender as a process, on a real control plane.

mod empty;
mod life;
mod start;
