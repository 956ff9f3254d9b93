//! All I/O with Kubernetes. Makes no decisions.
//!
//! - [`watch`] runs watches; [`cache`] stores what they deliver, each object reduced to the fields that are used.
//! - [`snapshot`] reads objects once, for commands.
//! - [`target`] resolves the target of an autoscaler to its pods and its `/scale`.
//! - [`metrics_api`] reads usage and metric values.
//! - [`leader`] holds Leases and the fence; [`mod@write`] is the only module that writes, under a permit.
//! - [`server`] serves metrics, probes and webhooks.

pub mod cache;
pub mod clock;
pub mod leader;
pub mod metrics_api;
mod path_segment;
pub mod server;
pub mod server_time;
pub mod snapshot;
pub mod target;
pub mod watch;
pub mod write;
