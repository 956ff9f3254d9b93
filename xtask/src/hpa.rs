//! HorizontalPodAutoscalers on scenarios in virtual time: our decisions against those of kube-controller-manager's own code.
//!
//! ```text
//!   scenarios (one JSON a line) ──▶ hpa-oracle run (Go: upstream's controller) ──▶ passes ─┐
//!        ▲                     └──▶ replay (ours, --compat=upstream)           ──▶ passes ─┴▶ compare, field by field
//!     generate (a seed)
//! ```

pub mod compare;
pub mod delaying_queue;
pub mod generate;
pub mod go_duration;
pub mod pass;
pub mod replay;
pub mod rest_mapping;
pub mod scenario;
pub mod simulated_cluster;
pub mod simulated_workload;
pub mod upstream_recording;
