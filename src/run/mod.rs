//! The roles: what each is configured by, and how its parts are put together and kept running.

pub mod admission;
mod annotations;
mod calls;
mod client;
pub mod cluster;
pub mod config;
mod controllers;
mod desk;
pub mod doctor;
pub mod explain;
mod liveness;
pub mod prometheus;
mod pulse;
mod quotas;
pub mod recommender;
mod replicas;
pub mod several;
mod shown;
pub mod status;
mod tasks;
pub mod updater;
mod vitals;
pub mod watermark;

pub use admission::config::AdmissionConfig;
pub use config::RecommenderConfig;
pub use liveness::Clients;
pub use tasks::Signals;
pub use updater::config::UpdaterConfig;
pub use watermark::config::WatermarkConfig;
