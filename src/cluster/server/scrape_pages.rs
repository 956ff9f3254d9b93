//! Renders a scrape page by page on blocking threads. Rendering takes locks of the controllers and time in proportion
//! to the number of objects, and the thread that serves the pages also serves probes.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::routes::Exposition;

/// Maximum number of pages rendered at once, over all clients.
const MAX_CONCURRENT_RENDERS: usize = 2;

type RemainingChunks = Box<dyn Iterator<Item = Bytes> + Send>;
type RenderedPage = Pin<Box<dyn Future<Output = Option<(Bytes, RemainingChunks)>> + Send>>;

/// Renders scrapes for one listener. Clones share the limit.
#[derive(Clone)]
pub(super) struct ScrapeRenderer {
    exposition: Arc<dyn Exposition>,
    slots: Arc<Semaphore>,
}

impl ScrapeRenderer {
    pub fn new(exposition: Arc<dyn Exposition>) -> Self {
        Self { exposition, slots: Arc::new(Semaphore::new(MAX_CONCURRENT_RENDERS)) }
    }

    /// The pages of a new scrape. Nothing is rendered before the first poll.
    pub fn pages(&self) -> Pages {
        let (exposition, slots) = (Arc::clone(&self.exposition), Arc::clone(&self.slots));
        Pages { next: Some(render(move || exposition.scrape(), &slots)), slots }
    }
}

/// The remaining pages of a scrape.
pub(super) struct Pages {
    next: Option<RenderedPage>,
    slots: Arc<Semaphore>,
}

impl Pages {
    /// Polls for the next page.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let page = ready!(next.as_mut().poll(context));
        let (page, rest) = page.unzip();
        self.next = rest.map(|rest| render(move || rest, &self.slots));
        Poll::Ready(page)
    }
}

fn render(
    rest: impl FnOnce() -> RemainingChunks + Send + 'static,
    slots: &Arc<Semaphore>,
) -> RenderedPage {
    let slots = Arc::clone(slots);
    Box::pin(async move {
        // Held by the thread, because a client that disconnects does not stop it. The semaphore is never closed.
        let slot = slots.acquire_owned().await.ok();
        let rendered = spawn_blocking(move || {
            let _slot = slot;
            let mut rest = rest();
            rest.next().map(|page| (page, rest))
        });
        match rendered.await {
            Ok(page) => page,
            Err(error) => match error.try_into_panic() {
                // Propagate the panic, so that the client does not take a truncated response for a complete one.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_ended) => std::future::pending().await,
            },
        }
    })
}
