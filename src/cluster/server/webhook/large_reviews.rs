//! Reviews of large bodies. They take time in proportion, which the loop of a connection has not got: all other reviews on
//! it would wait, and no limit of time can stop what does not wait for anything.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{runtime::Handle, sync::Semaphore, task::spawn_blocking};

use super::{
    body_budget::BodyReservation,
    review::{self, AdmissionDecision, Reviewer},
    split_review::split_review,
};

/// What is longer is reviewed apart. Objects have some kilobytes.
pub(super) const LARGE_BODY_BYTES: usize = 256 << 10;

/// How many are reviewed at once.
const MAX_CONCURRENT_REVIEWS: usize = 2;

/// How many are reviewed, or wait for that. They hold memory meanwhile.
const MAX_QUEUED_REVIEWS: usize = 8;

/// Threads for large reviews.
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
    /// Decides about a body on a thread of its own. When nobody waits for that any more, the thread still ends as it does,
    /// and the memory of the body stays taken until then.
    pub async fn review(
        &self,
        reviewer: Arc<dyn Reviewer>,
        body: Bytes,
        lease: BodyReservation,
    ) -> AdmissionDecision {
        let Ok(place) = Arc::clone(&self.slots).try_acquire_owned() else {
            return AdmissionDecision::allow("crowded");
        };
        let Ok(thread) = Arc::clone(&self.threads).acquire_owned().await else {
            return AdmissionDecision::allow("crowded");
        };
        let here = Handle::current();
        let decided = spawn_blocking(move || {
            let _held = (place, thread, lease);
            let parts = split_review(&body);
            let asked = review::parse_review(&body, parts.as_ref()).ok()?;
            Some(here.block_on(reviewer.review(&asked)))
        });
        match decided.await {
            Ok(decided) => decided.unwrap_or_else(|| AdmissionDecision::allow("unreadable_review")),
            Err(error) => {
                tracing::error!(%error, "a large review failed; let through");
                AdmissionDecision::allow("failed")
            }
        }
    }
}
