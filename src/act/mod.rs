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

pub mod access;
pub mod certificate_secret;
pub mod dry_run;
pub mod election;
pub mod event;
pub mod eviction;
pub mod fence;
pub mod heartbeat;
mod jitter;
pub mod lease;
pub mod ledger;
pub mod limiter;
pub mod memory;
pub mod outbox;
pub mod pen;
pub mod permit;
pub mod pod;
mod queue;
pub mod registration;
pub mod replicas;
mod request;
pub mod resize;
pub mod status;
pub mod watermark;
pub mod webhook_lease;
pub mod writes;

pub use access::{Rule, Verdict, may};
pub use certificate_secret::CertificateSecret;
pub use dry_run::set_dry_run;
pub use election::{Election, ElectionOptions, ElectionState, Standing};
pub use event::{About, EventWriter, Events, Happening, events};
pub use eviction::{Evicted, evict};
pub use fence::{Fence, Term};
pub use heartbeat::{Beat, Heartbeat};
pub use ledger::{Kept, LedgerLease};
pub use limiter::Limiter;
pub use memory::{Note, Noted, note};
pub use outbox::Outbox;
pub use pen::{Pen, Unwritten};
pub use permit::Permit;
pub use pod::{Annotated, PodRef, annotate};
pub use registration::Registration;
pub use replicas::scale;
pub use request::Failed;
pub use resize::{Resized, resize};
pub use status::{Outcome, Source, StatusPatch, write_status};
pub use watermark::{Part, status_patch};
pub use webhook_lease::WebhookLease;
pub use writes::WriteStats;
