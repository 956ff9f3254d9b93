//! Proof that every part of the testbed is real: what the tests of the suite rely on is itself tested here.

mod control_plane;
pub mod nodes;
mod processes;
mod prometheus_and_upstream;
mod usage;
