//! The only module that writes to the cluster besides the storage backends. Each write needs a permit.
//!
//! ```text
//!   leader::Election ──▶ Fence ─┐
//!                               ├─▶ Permit ──▶ StatusQueue ──▶ statuses of VerticalPodAutoscalers
//!                 RateLimiter ──┘         ├──▶ evictions, resizes and annotations of pods
//!                                         ├──▶ scales and statuses of autoscalers of replicas
//!                                         ├──▶ webhook configurations, the Secret with certificates
//!                                         └──▶ storage backends, which know only the trait `WritePermit`
//! ```
//!
//! The fence says whether this process may write now, the rate limiter how fast. [`request`] sends each write with a time
//! limit and counts its result in [`stats`].

pub mod access_review;
pub mod events;
pub mod evict;
pub(crate) mod object_client;
pub mod object_patch;
pub mod permit;
pub mod pod_annotations;
pub mod rate_limit;
pub mod request;
pub mod resize;
pub mod stats;
pub mod status_queue;
pub mod vpa_status;
pub mod webhook_config;
pub mod webhook_secret;
pub mod workload_state;
mod workqueue;
pub mod wpa_dry_run;
pub mod write_context;

pub use access_review::{AccessReview, AccessRule, check_access};
pub use events::{
    EventDetails, EventRecorder, EventSender, EventWriter, InvolvedObject, event_recorder,
};
pub use evict::evict;
pub use object_patch::{ObjectPatchTarget, status_patch};
pub use permit::{Permit, PrepaidPermit};
pub use pod_annotations::{PodRef, annotate_pod};
pub use rate_limit::RateLimiter;
pub use resize::resize;
pub use stats::WriteStats;
pub use status_queue::StatusQueue;
pub use vpa_status::{StatusPatch, StatusSource, VpaWriteResult, write_status};
pub use webhook_config::WebhookConfigWriter;
pub use webhook_secret::CertificateSecret;
pub use workload_state::{AnnotationUpdate, write_vpa_annotation};
pub use wpa_dry_run::set_dry_run;
pub use write_context::{ErrorResponse, UpdateError, WriteContext, WriteError};
