//! The real parts that tests stand on: see docs/testing.md.
//!
//! ```text
//!   Bed ─┬─ control plane ── keeper ── etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//!        └─ nodes: run the pods that the scheduler binds to them
//!  Usage ── metrics APIs and series of those pods, from values and curves of the test
//!  Prometheus ── releases 2 and 3, with days of history
//!  Upstream ── the three programs that this project replaces
//!  Ours ── the roles of this project, as processes; Peers has recommenders of both side by side
//!  Proxy ── a way to the API server that can be meddled with
//!  MemoryApi ── a server without sockets, for timing on virtual time
//!  Network ── the way from the API server to what is behind a Service
//!  fleet ── thousands of workloads of every kind, without controllers
//! ```

pub mod api_proxy;
pub mod bulk_objects;
pub mod captured_log;
pub mod certificates;
pub mod clock;
pub mod control_plane;
pub mod cpu_time;
pub mod hollow_nodes;
pub mod http_get;
pub mod in_memory_api;
pub mod inventory;
pub mod manifests;
pub mod metrics_server;
pub mod plimsoll_process;
pub mod ports;
pub mod process_guard;
pub mod prometheus_server;
pub mod random;
pub mod recommender_pair;
pub mod service_network;
pub mod skipped;
pub mod testbed;
pub mod testbed_events;
pub mod testbed_lock;
pub mod tier;
pub mod upstream_process;
pub mod upstream_recording;
pub mod wait;

pub use clock::Clock;
pub use metrics_server::MetricsServer;
pub use testbed::{Account, Testbed};
