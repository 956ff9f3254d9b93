//! From a recommendation to the resources of one pod: capping, limits, quality of service, quota, patches. Pure:
//! plain data in, amounts with their reasons out.
//!
//! ```text
//! Pod, Plan (a VPA), Ranges ─ processed ─▶ Recommendation that this pod can have
//!                                 │
//!                              sizes ─▶ Sizes: requests and limits, each with its Reasons
//!                                 │
//!                              patch ─▶ Operations
//! ```

pub mod annotations;
pub mod boost;
mod cap;
pub mod capacity;
pub mod check;
pub mod claim;
pub mod demand;
pub mod limits;
mod lookup;
pub mod patch;
pub mod plan;
pub mod pod;
mod pod_range;
mod processed;
pub mod quota;
pub mod range;
pub mod reason;
mod scale;
mod settle;
mod sizes;
mod wishes;

pub use patch::Operation;
pub use plan::{LimitPolicy, Plan, Rules};
pub use pod::{Container, Controller, Part, Place, Pod, QosClass, Resources, Young};
pub use processed::{Processed, processed};
pub use range::{LimitRangeItem, Range, RangeKind, Ranges};
pub use reason::{Reason, Refusal, Rule};
pub use sizes::{Size, qos_with, sizes};
pub use wishes::Wishes;
