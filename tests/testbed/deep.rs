//! Every part of the testbed is real: tests of the behavior that the suite relies on.

mod control_plane;
pub mod nodes;
mod processes;
mod prometheus_and_upstream;
mod usage;
