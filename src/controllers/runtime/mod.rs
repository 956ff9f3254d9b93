//! Shared by all controllers: clients, configuration, startup and shutdown, probes, health, and watches of common
//! kinds.

pub(crate) mod annotation_checks;
pub(crate) mod client;
pub(crate) mod client_calls;
pub mod command_client;
pub mod config;
pub(crate) mod context;
pub mod controller;
pub(crate) mod hpa_replacement;
pub(crate) mod liveness_thread;
pub(crate) mod loop_watchdog;
pub(crate) mod optional_watch;
pub mod prometheus;
pub mod prometheus_queries;
pub(crate) mod request_followers;
pub(crate) mod role_health;
pub(crate) mod shutdown;
pub(crate) mod sizing_stores;
pub(crate) mod target_vpas;
pub(crate) mod traffic_metrics;
pub(crate) mod watch_set;

pub use liveness_thread::Clients;
pub use shutdown::Signals;
