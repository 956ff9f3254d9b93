//! The recommender as a process on a real control plane.

mod day;
mod empty_recommendation;
pub mod faults;
pub mod in_process;
mod inputs;
mod planned_requests;
mod prometheus_scrape;
pub mod recorded_writes;
mod reference_model;
mod scenario;
mod shards;
mod startup_boost;
pub mod upstream_rbac;
