//! Servers with the Prometheus API: authentication, queries, and decoding of responses.

mod auth;
mod backtest_command;
mod backtest_recording;
mod client;
mod detect;
mod discovery;
mod doctor;
mod faults;
mod history;
pub mod label_flavors;
mod live_usage;
mod memory_bound;
mod proxy;
pub mod recommend;
mod recommender;
mod releases;
mod replayed_history;
mod response_decoding;
mod selector;
mod series_collector;
