//! Act: the only writers of this crate, each of them under a permit.
//!
//! ```text
//!   Election ──▶ Fence ─┐
//!                       ├─▶ Permit ──▶ Outbox ──▶ statuses of VerticalPodAutoscalers
//!              Limiter ─┘         ├──▶ evictions, resizes and annotations of pods
//!                                 ├──▶ Heartbeat ──▶ a Lease that says "the recommender works"
//!                                 ├──▶ Registration, CertificateSecret, WebhookLease ──▶ what the webhook stands on
//!                                 └──▶ storage/, which knows only the trait `WritePermit`
//! ```
//!
//! - `fence` says whether this process may write now, `limiter` how fast, `permit` is both.
//! - `lease` knows the rules of a leader election, `election` runs one and moves the fence.
//! - `queue` is the order in which things are written, `status` one write, `outbox` the workers.
//! - `memory` and `ledger` are what an updater books before it acts, `event` what it says afterwards.
//! - `eviction` and `resize` are one write to a pod each, with all that the server may answer.
//! - `request` is how all of these ask: with a time limit, counted.
//! - `registration`, `certificate_secret` and `webhook_lease` are the admission controller's three writes.
//! - `dry_run` is a switch that a person turns.
//! - `access` asks beforehand what is allowed, `writes` counts what became of every write.

pub mod access_review;
pub mod election;
pub mod events;
pub mod evict;
pub mod fence;
pub mod heartbeat;
mod jitter;
pub mod lease;
pub mod lease_annotation;
pub mod permit;
pub mod pod_annotations;
pub mod rate_limit;
mod request;
pub mod resize;
pub mod stats;
pub mod status_queue;
pub mod surge;
pub mod vpa_annotation;
pub mod vpa_status;
pub mod webhook_config;
pub mod webhook_lease;
pub mod webhook_secret;
mod workqueue;
pub mod wpa;
pub mod wpa_dry_run;
pub mod write_context;

pub use access_review::{AccessReview, AccessRule, check_access};
pub use election::{Election, ElectionOptions, ElectionState, LeaderState};
pub use events::{EventDetails, EventRecorder, EventWriter, InvolvedObject, event_recorder};
pub use evict::{EvictionResult, evict};
pub use fence::{Fence, Term};
pub use heartbeat::{Heartbeat, HeartbeatResult};
pub use lease_annotation::{LeaseAnnotationStore, LeaseWriteResult};
pub use permit::Permit;
pub use pod_annotations::{AnnotateResult, PodRef, annotate_pod};
pub use rate_limit::RateLimiter;
pub use request::RequestError;
pub use resize::{ResizeResult, resize};
pub use stats::WriteStats;
pub use status_queue::StatusQueue;
pub use surge::scale_deployment;
pub use vpa_annotation::{AnnotationUpdate, AnnotationWriteResult, write_vpa_annotation};
pub use vpa_status::{StatusPatch, StatusSource, StatusWriteResult, write_status};
pub use webhook_config::WebhookConfigWriter;
pub use webhook_lease::WebhookLease;
pub use webhook_secret::CertificateSecret;
pub use wpa::{WpaPatchTarget, wpa_status_patch};
pub use wpa_dry_run::set_dry_run;
pub use write_context::{WriteContext, WriteError};
