//! What whoever sets replicas stands on, whatever kind of object asks for it: a workload's scale and pods, what its
//! sources say, and since when they say so. Pure: plain data and `now` in, plain data out.
//!
//! ```text
//!   Pod ──▶ Readiness ───────────────────┐
//!   Answer, or why there is none ────────┼─▶ a role's own rules ──▶ Memory, for the next look
//!   Wish ──▶ request … reply ──▶ Advice ─┘
//! ```

pub mod consult;
pub mod memory;
pub mod pods;
pub mod source;

pub use consult::Advice;
pub use memory::Memory;
pub use pods::{Pod, Readiness, Unready};
pub use source::{Answer, Milli, SourceKind, Unknown};

/// What a workload has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scale {
    /// Replicas that are asked for.
    pub wanted: i32,
    /// Pods that there are, those of a rolling update included.
    pub current: i32,
}
