//! Renders a scrape page by page on blocking threads. Rendering takes locks of the controllers and time in proportion
//! to the number of objects, and the thread that serves the pages also serves probes.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, stream};
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::routes::Exposition;

/// Maximum number of pages rendered at once, over all clients.
const MAX_CONCURRENT_RENDERS: usize = 2;

/// Renders scrapes for one listener. Clones share the limit.
#[derive(Clone)]
pub(super) struct ScrapeRenderer {
    exposition: Exposition,
    slots: Arc<Semaphore>,
}

impl ScrapeRenderer {
    pub fn new(exposition: Exposition) -> Self {
        Self { exposition, slots: Arc::new(Semaphore::new(MAX_CONCURRENT_RENDERS)) }
    }

    /// The pages of a new scrape, each rendered when it is polled for.
    pub fn pages(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(None, move |rest| {
            let Self { exposition, slots } = self.clone();
            async move {
                // Held by the thread, because a client that disconnects does not stop it. The semaphore is never closed.
                let slot = slots.acquire_owned().await.ok();
                let rendered = spawn_blocking(move || {
                    let _slot = slot;
                    let mut rest = rest.unwrap_or_else(|| exposition());
                    rest.next().map(|page| (page, Some(rest)))
                });
                match rendered.await {
                    Ok(page) => page,
                    Err(error) => match error.try_into_panic() {
                        // Propagate the panic, so that the client does not take a truncated response for a complete one.
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(_ended) => std::future::pending().await,
                    },
                }
            }
        })
    }
}
