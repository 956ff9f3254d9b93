//! A recommender with its history in Prometheus, on a real cluster.

mod cpu_throttling;
mod fallback;
mod first_recommendation;
pub mod fixture;
mod live_usage;
mod missing_series;
mod outage;
mod pod_labels;
mod recommend_report;
mod upstream_differential;
