//! Real parts for tests to run against: see docs/testing.md.
//!
//! ```text
//!   Testbed ─┬─ ControlPlane ── ProcessGuard ── etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//!            └─ HollowNodes: run the pods that the scheduler binds to them
//!   MetricsServer ── metrics APIs and series of those pods, from values and curves of the test
//!   PrometheusServer ── releases 2 and 3, with days of history
//!   UpstreamProcesses ── the three programs that this project replaces
//!   PlimsollProcesses ── this project's controllers; RecommenderPair runs recommenders of both sides
//!   RoleProcess ── one of them, to kill, freeze and restart
//!   ApiProxy ── a proxy in front of the API server that injects faults; HoldingProxy holds the writes of a role
//!   in_memory_api ── an API server without sockets, for tests on virtual time
//!   ServiceNetwork ── the network from the API server to Services
//!   bulk_objects ── thousands of workloads of every kind, without controllers
//! ```

pub mod api_proxy;
pub mod browser;
pub mod bulk_objects;
pub mod captured_log;
pub mod certificates;
pub mod clock;
pub mod control_plane;
pub mod cpu_time;
pub mod flags;
pub mod holding_proxy;
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
pub mod role_process;
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
