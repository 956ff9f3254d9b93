//! The watermark controller as a role on a real control plane: the controller-manager moves ReplicaSets, hollow nodes run
//! their pods, and metrics come from an aggregated API.

mod faults;
mod monitor;
mod objects;
mod options;
mod outages;
mod owners;
mod rights;
mod scales;
mod scenarios;
mod sources;
pub mod stage;
mod surge;
mod told;
