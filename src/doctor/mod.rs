//! `plimsoll doctor`: what a Prometheus is good for as the source of history, as data and as text for people.
//!
//! ```text
//!   Facts (what was asked, what came) ──▶ diagnose ──▶ Report ─┬─▶ text
//!                                                             └─▶ JSON
//! ```
//!
//! Nothing is asked here: `run` does that.

pub mod cluster;
pub mod diagnose;
pub mod facts;
pub mod flags;
mod history;
pub mod kind;
mod recorded;
pub mod report;
mod series;
pub mod text;

pub use self::{diagnose::diagnose, facts::Facts, report::Report};
