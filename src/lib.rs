//! Plimsoll decides how much CPU and memory each workload gets and how many replicas it runs.
//!
//! ```text
//!   cluster: watches, caches, metrics ──▶ plimsoll-core: pure decisions ──▶ cluster::write: the only writers
//!                     ▲                    plain data and `now` in,                 ▲
//!                     └─────────────── controllers: a loop for each role ───────────┘
//! ```
//!
//! Dependencies point one way: `plimsoll-core` <- `plimsoll-storage` <- [`cluster`], [`telemetry`] <- [`controllers`] <-
//! [`report`] <- [`ui`] <- [`cli`].

pub mod cli;
pub mod cluster;
pub mod controllers;
pub mod report;
pub mod telemetry;
pub mod ui;

// Samples of the tests are compiled into the unit tests, too.
#[cfg(test)]
extern crate self as plimsoll;
