//! Which pods are changed, how, and in which order; and why the others are not. Pure: plain data and `now` in, a
//! decision with its reasons out.
//!
//! ```text
//! Pod (sizes, life) ─ priority ─ acceptance ─ requirement ─▶ candidates, in order
//!                                                               │
//! Groups (budgets) ─ in_place (resize conditions) ─ guard ──────┤
//!                                                               ▼
//!                             Pass: one step after another ─▶ Action, or why not (Skip)
//! ```

pub mod acceptance;
pub mod action;
pub mod group;
pub mod guard;
pub mod in_place;
pub mod life;
pub mod observed;
pub mod pass;
pub mod priority;
pub mod requirement;
pub mod resize;
pub mod rests;
pub mod settings;
pub mod sizing;
pub mod skip;
pub mod turns;

pub use acceptance::Need;
pub use action::{Action, Outcome, Step, Verdict};
pub use group::{Budget, Group, GroupRules, Groups, Wanted};
pub use guard::{GuardSettings, Ledger, Memory};
pub use in_place::InPlace;
pub use life::{Life, Owner, Phase, Readiness};
pub use observed::Observed;
pub use pass::{Decision, Next, Pass, Pod, Recall, Subject, Told, World, decide};
pub use priority::Priority;
pub use resize::{ResizePhase, ResizeStatus};
pub use rests::Rests;
pub use settings::Settings;
pub use sizing::Sizing;
pub use skip::Skip;
