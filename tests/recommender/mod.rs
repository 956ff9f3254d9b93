//! The recommender as a process, on a real control plane.

pub mod clients;
mod day;
mod empty;
mod faults;
mod feeds;
mod golden;
mod life;
mod scraped;
mod shards;
pub mod start;
mod startup;
pub mod upstream_rights;
