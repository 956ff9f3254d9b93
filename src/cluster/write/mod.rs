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

pub(crate) mod access_review;
pub(crate) mod dry_run_pod;
pub(crate) mod events;
pub(crate) mod hpa_sentinel;
pub(crate) mod hpa_target;
pub(crate) mod object_client;
pub(crate) mod object_patch;
pub(crate) mod permit;
pub(crate) mod pod_writes;
pub(crate) mod rate_limit;
pub(crate) mod request;
pub mod stats;
pub(crate) mod status_queue;
pub mod user_access;
mod user_patches;
pub mod vpa_status;
pub mod webhook_config;
pub(crate) mod webhook_secret;
pub mod workload_state;
mod workqueue;
pub(crate) mod write_context;

pub use access_review::{AccessReview, AccessRule, check_access};
pub(crate) use access_review::{ServiceAccount, check_access_as};
pub(crate) use dry_run_pod::create_pod_dry_run;
pub(crate) use events::{EventDetails, EventRecorder, EventSender, event_recorder};
pub(crate) use hpa_target::{patch_hpa_target, read_hpa};
pub(crate) use object_patch::{ObjectPatchTarget, status_patch};
pub use permit::Permit;
pub(crate) use permit::PrepaidPermit;
pub use pod_writes::{ContainerResize, PodRef, annotate_pod, evict, resize};
pub use rate_limit::RateLimiter;
pub use stats::WriteStats;
pub use status_queue::StatusQueue;
pub(crate) use user_patches::{patch_hpa, set_dry_run};
pub use vpa_status::{StatusPatch, StatusSource, VpaWriteResult};
pub use webhook_config::WebhookConfigWriter;
pub(crate) use webhook_secret::CertificateSecret;
pub(crate) use workload_state::{AnnotationUpdate, write_vpa_annotation};
pub use write_context::{UpdateError, WriteContext, WriteError};
