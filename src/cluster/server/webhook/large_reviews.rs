//! Reviews of large bodies run on blocking threads. They take time in proportion to their size: on the threads of
//! connections they would block all other reviews, and a timeout cannot interrupt code that never awaits.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{runtime::Handle, sync::Semaphore, task::spawn_blocking};

use super::{
    body_budget::BodyReservation,
    review::{self, AdmissionDecision, Reviewer},
};

/// Bodies above this size are reviewed on a blocking thread. Most objects have a few kilobytes.
pub(super) const LARGE_BODY_BYTES: usize = 256 << 10;

const MAX_CONCURRENT_REVIEWS: usize = 2;

/// Maximum number of running and queued reviews. They hold the memory of their bodies.
const MAX_QUEUED_REVIEWS: usize = 8;

#[derive(Debug)]
pub(super) struct LargeReviews {
    threads: Arc<Semaphore>,
    slots: Arc<Semaphore>,
}

impl Default for LargeReviews {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { threads: semaphore(MAX_CONCURRENT_REVIEWS), slots: semaphore(MAX_QUEUED_REVIEWS) }
    }
}

impl LargeReviews {
    /// Decides a review on a blocking thread. If the caller times out, the thread still finishes, and the memory of
    /// the body stays reserved until then.
    pub async fn review(
        &self,
        reviewer: Arc<dyn Reviewer>,
        body: Bytes,
        reservation: BodyReservation,
    ) -> AdmissionDecision {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            return AdmissionDecision::allow("crowded");
        };
        let Ok(thread) = Arc::clone(&self.threads).acquire_owned().await else {
            return AdmissionDecision::allow("crowded");
        };
        let runtime = Handle::current();
        let decided = spawn_blocking(move || {
            let _guards = (slot, thread, reservation);
            let request = review::parse_review(&body).ok()?;
            Some(runtime.block_on(reviewer.review(&request)))
        });
        match decided.await {
            Ok(decided) => decided.unwrap_or_else(|| AdmissionDecision::allow("unreadable_review")),
            Err(error) => {
                tracing::error!(%error, "large review panicked; allowing the request");
                AdmissionDecision::allow("failed")
            }
        }
    }
}
