//! Plimsoll, the load line for Kubernetes.
//!
//! ```text
//!   observe ──▶ decide (recommend | update | admit | watermark) ──▶ act
//!   cluster     pure: plain data and `now` in,                     the only
//!   → index     decision with its reasons out                      writers
//! ```

pub mod act;
pub mod certificate;
pub mod cli;
pub mod clock;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod metrics;
pub mod observe;
pub mod run;
pub mod serve;
pub mod style;
