//! The roles: what each is configured by, and how its parts are put together and kept running.

pub mod admission;
mod annotations;
mod client;
pub mod cluster;
pub mod config;
mod controllers;
pub mod doctor;
pub mod explain;
pub mod prometheus;
mod pulse;
mod quotas;
pub mod recommender;
mod shown;
mod tasks;
pub mod updater;
pub mod watermark;

pub use admission::config::AdmissionConfig;
pub use config::RecommenderConfig;
pub use updater::config::UpdaterConfig;
pub use watermark::config::WatermarkConfig;
