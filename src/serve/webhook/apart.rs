//! Reviews of large bodies. They take time in proportion, which the loop of a connection has not got: all other reviews on
//! it would wait, and no limit of time can stop what does not wait for anything.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{runtime::Handle, sync::Semaphore, task::spawn_blocking};

use super::{
    budget::Lease,
    parts::part,
    review::{self, Reviewer, Verdict},
};

/// What is longer is reviewed apart. Objects have some kilobytes.
pub(super) const LARGE: usize = 256 << 10;

/// How many are reviewed at once.
const AT_ONCE: usize = 2;

/// How many are reviewed, or wait for that. They hold memory meanwhile.
const IN_ALL: usize = 8;

/// Threads for large reviews.
#[derive(Debug)]
pub(super) struct Apart {
    threads: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Apart {
    fn default() -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { threads: semaphore(AT_ONCE), places: semaphore(IN_ALL) }
    }
}

impl Apart {
    /// Decides about a body on a thread of its own. When nobody waits for that any more, the thread still ends as it does,
    /// and the memory of the body stays taken until then.
    pub async fn review(&self, reviewer: Arc<dyn Reviewer>, body: Bytes, lease: Lease) -> Verdict {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Verdict::allow("crowded");
        };
        let Ok(thread) = Arc::clone(&self.threads).acquire_owned().await else {
            return Verdict::allow("crowded");
        };
        let here = Handle::current();
        let decided = spawn_blocking(move || {
            let _held = (place, thread, lease);
            let parts = part(&body);
            let asked = review::read(&body, parts.as_ref()).ok()?;
            Some(here.block_on(reviewer.review(&asked)))
        });
        match decided.await {
            Ok(decided) => decided.unwrap_or_else(|| Verdict::allow("unreadable_review")),
            Err(error) => {
                tracing::error!(%error, "a large review failed; let through");
                Verdict::allow("failed")
            }
        }
    }
}
