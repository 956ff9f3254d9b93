//! What keeps surprises away: nothing is changed on stale numbers, too often, at the wrong time, everywhere at once,
//! or again after it went wrong.
//!
//! ```text
//! Freshness ─ Windows ─ Memory of the workload ─ Ledger of the cluster ─▶ may it be changed? ─▶ book ─▶ act
//! ```
//!
//! What has to be remembered is booked before the action that it pays for, so that it survives whoever acts.

mod charged;
pub mod freshness;
pub mod harm;
pub mod ledger;
pub mod memory;
pub mod refusals;
pub mod rollout;
pub mod settings;
mod trials;
pub mod window;

pub use freshness::{Admission, Heartbeat, HeartbeatRule};
pub use harm::{Condition as Health, Harm};
pub use ledger::{Charge, Ledger};
pub use memory::{Memory, Touch, Touched};
pub use refusals::{Refusals, RefusedBy};
pub use rollout::Rollout;
pub use settings::{Allowance, BreakerSettings, CanarySettings, CoolDown, GuardSettings};
pub use trials::Trials;
pub use window::{WindowState, Windows};
