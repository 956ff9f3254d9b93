//! The watermark controller as a role on a real control plane: the controller-manager moves ReplicaSets, hollow nodes run
//! their pods, and metrics come from an aggregated API.

mod objects;
mod outages;
mod scales;
mod scenarios;
mod stage;
