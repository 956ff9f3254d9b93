//! Plimsoll, the load line for Kubernetes.
//!
//! ```text
//!   observe ──▶ decide (recommend | update | admit | watermark) ──▶ act
//!   cluster     pure: plain data and `now` in,                     the only
//!   → index     decision with its reasons out                      writers
//! ```

pub mod act;
pub mod admit;
pub mod annotation;
pub mod api;
pub mod certificate;
pub mod cli;
pub mod clock;
pub mod compat;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod fit;
pub mod look;
pub mod metrics;
pub mod observe;
pub mod recommend;
pub mod replicas;
pub mod run;
pub mod serve;
pub mod sim;
pub mod update;
pub mod watermark;

pub use plimsoll_core::types::{quantity, units};
