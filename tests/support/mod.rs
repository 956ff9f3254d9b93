//! The real parts that tests stand on: see docs/testing.md.
//!
//! ```text
//!   Bed ── control plane ── keeper ── etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//! ```

pub mod bed;
pub mod control_plane;
pub mod keeper;
pub mod keys;
pub mod not_run;
pub mod ports;
pub mod slots;
pub mod wait;

pub use bed::{Account, Bed};
