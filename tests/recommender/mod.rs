//! The recommender as a process, on a real control plane.

mod life;
mod start;
