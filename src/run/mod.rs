//! The roles: what each is configured by, and how its parts are put together and kept running.

pub mod cluster;
pub mod config;
pub mod doctor;
pub mod explain;
pub mod prometheus;
pub mod recommender;

pub use config::RecommenderConfig;
