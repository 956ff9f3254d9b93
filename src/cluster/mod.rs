//! All I/O with Kubernetes. Makes no decisions.
//!
//! - [`watch`] runs watches; [`cache`] stores what they deliver, each object reduced to the fields that are used.
//! - [`snapshot`] reads objects once, for commands; [`survey`] reduces all workloads to what they request.
//! - `diagnosis` reads what `plimsoll doctor --cluster` checks.
//! - [`target`] resolves the target of an autoscaler to its pods and its `/scale`.
//! - [`container_usage`] reads the usage of containers; [`metric_sources`] reads the values that replicas follow.
//! - [`service_proxy`] sends requests to a Service through the API server; [`prometheus_discovery`] finds the Prometheus of
//!   the cluster.
//! - [`leader`] holds Leases and the fence; [`mod@write`] is the only module that writes, under a permit.
//! - [`server`] serves metrics, probes and webhooks.

pub mod cache;
pub mod clock;
pub mod container_usage;
pub(crate) mod diagnosis;
pub mod leader;
pub(crate) mod list_stream;
pub mod metric_sources;
pub(crate) mod paged_requests;
mod path_segment;
pub mod prometheus_discovery;
pub mod server;
pub(crate) mod server_time;
pub mod service_proxy;
pub(crate) mod snapshot;
pub mod survey;
pub mod target;
pub mod watch;
pub mod write;
