//! The roles: what each is configured by, and how its parts are put together and kept running.

pub mod admission;
pub mod all_in_one;
mod annotation_checks;
mod client;
mod client_calls;
pub mod cluster;
pub mod config;
mod context;
mod controller_watches;
pub mod doctor;
pub mod explain;
mod liveness;
mod loop_watchdog;
pub mod prometheus;
mod quotas;
pub mod recommender;
mod replicas;
mod role_health;
mod shutdown;
pub mod status;
mod traffic_metrics;
pub mod updater;
pub mod watermark;

pub use admission::config::AdmissionConfig;
pub use config::RecommenderConfig;
pub use liveness::Clients;
pub use shutdown::Signals;
pub use updater::config::UpdaterConfig;
pub use watermark::config::WatermarkConfig;
