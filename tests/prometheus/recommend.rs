//! `plimsoll recommend` on a real API server and a real Prometheus.

mod faults;
mod manifests;
pub mod process;
pub mod states;
