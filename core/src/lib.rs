//! The decisions of Plimsoll as pure functions: plain data and `now` in, a decision with its reasons out.
//!
//! Nothing in this crate talks to a cluster, reads a clock or is `async`; the compiler sees to it, because the crates for
//! that are not among its dependencies.

pub mod admission;
pub mod api;
pub mod backtest;
pub mod coordination;
pub mod diagnosis;
pub mod history;
pub mod hpa;
pub mod manifests;
pub mod recommender;
pub mod rightsizing;
pub mod scaling;
pub mod sim;
pub mod sizing;
pub mod types;
pub mod updater;
pub mod vpa_match;
pub mod watermark;
