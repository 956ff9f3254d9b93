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

pub mod bed;
pub mod clock;
pub mod control_plane;
pub mod events;
pub mod fetch;
pub mod fleet;
pub mod golden;
pub mod inventory;
pub mod keeper;
pub mod keys;
pub mod log;
pub mod memory_api;
pub mod network;
pub mod nodes;
pub mod noise;
pub mod not_run;
pub mod objects;
pub mod ours;
pub mod peers;
pub mod ports;
pub mod prometheus;
pub mod proxy;
pub mod slots;
pub mod spent;
pub mod tier;
pub mod upstream;
pub mod usage;
pub mod wait;

pub use bed::{Account, Bed};
pub use clock::Clock;
pub use usage::Usage;
