//! How many replicas a workload gets, so that its metrics stay between two marks. Pure: plain data and `now` in, a decision
//! with its reasons out.
//!
//! ```text
//! Source (answer, or why there is none) ─ ready pods ─ band ─ propose | advised | converge ─▶ combine
//!                                                                                              │
//!                              velocity (steps, bounds) ─ gate (windows, delays) ──────────────┤
//!                                                                                              ▼
//!                                                      Decision: a change, or why not (Restriction)
//! ```

pub mod advised;
pub mod attributes;
pub mod band;
pub mod booked;
pub mod combine;
pub mod conditions;
pub mod converge;
pub mod decide;
pub mod doubts;
pub mod gate;
pub mod lifecycle;
pub mod memory;
pub mod options;
pub mod outcome;
pub mod propose;
pub mod restriction;
pub mod rules;
pub mod trace;
pub mod validation;
pub mod velocity;
pub mod whole;

pub use band::{Band, Position};
pub use combine::{Combined, Row, Setting, Source, Uncomputable};
pub use converge::{Convergence, Direction};
pub use decide::{Change, Decision, Forced, Question};
pub use gate::{Gate, Hold, Way};
pub use memory::Memory;
pub use options::Options;
pub use restriction::Restriction;
pub use rules::Rules;
pub use velocity::{Limited, Limits};
