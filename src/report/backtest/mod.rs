//! `plimsoll backtest`: what policies would have requested, saved and broken in the last weeks.
//!
//! ```text
//!   Prometheus ─▶ recording ─▶ plimsoll_core::backtest: policies, replay ─▶ accounts ─▶ report ─▶ forms
//!   trace files ───────────────┘                              shard: files ──┘ merge
//! ```
//!
//! [`run`] records and replays; the forms only render a
//! [`BacktestReport`](plimsoll_core::backtest::report::BacktestReport) and decide nothing.

mod csv;
pub mod forms;
pub mod html;
mod markdown;
mod ndjson;
pub mod recording;
mod replays;
pub mod retention;
pub mod run;
pub mod shard;
mod table;
#[cfg(test)]
mod test_reports;
pub mod traces;
mod wide;
mod words;

pub use forms::{BacktestForm, BacktestOutput, render, write_ndjson};
