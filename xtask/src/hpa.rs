//! HorizontalPodAutoscalers on scenarios in virtual time: our decisions against those of kube-controller-manager's own code.
//!
//! ```text
//!   scenarios (one JSON a line) ──▶ hpa-oracle run (Go: upstream's controller) ──▶ passes ─┐
//!        ▲                     └──▶ replay (ours, --compat=upstream)           ──▶ passes ─┴▶ compare, field by field
//!     generate (a seed)
//! ```

pub mod compare;
pub mod fleet;
pub mod generate;
pub mod kinds;
pub mod pass;
pub mod queue;
pub mod record;
pub mod replay;
pub mod scenario;
pub mod seconds;
pub mod world;
