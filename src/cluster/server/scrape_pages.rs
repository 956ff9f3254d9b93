//! Pages of a scrape, rendered on threads for blocking work: the thread that serves them also answers probes, and rendering
//! waits for locks of the controllers and takes as long as they have objects.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{sync::Semaphore, task::spawn_blocking};

use super::routes::Exposition;

/// So many pages are rendered at once, whoever asks for them.
const MAX_CONCURRENT_RENDERS: usize = 2;

type RemainingChunks = Box<dyn Iterator<Item = Bytes> + Send>;
type RenderedPage = Pin<Box<dyn Future<Output = Option<(Bytes, RemainingChunks)>> + Send>>;

/// What renders for one listener. Clones share its limit.
#[derive(Clone)]
pub(super) struct ScrapeRenderer {
    exposition: Arc<dyn Exposition>,
    slots: Arc<Semaphore>,
}

impl ScrapeRenderer {
    pub fn new(exposition: Arc<dyn Exposition>) -> Self {
        Self { exposition, slots: Arc::new(Semaphore::new(MAX_CONCURRENT_RENDERS)) }
    }

    /// The pages of a new scrape. None is rendered before it is polled.
    pub fn pages(&self) -> Pages {
        let (exposition, slots) = (Arc::clone(&self.exposition), Arc::clone(&self.slots));
        Pages { next: Some(render(move || exposition.scrape(), &slots)), slots }
    }
}

/// The pages that are left of a scrape.
pub(super) struct Pages {
    next: Option<RenderedPage>,
    slots: Arc<Semaphore>,
}

impl Pages {
    /// The next one, once it is rendered.
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
        // Kept by the thread: a reader that leaves does not stop it. The semaphore is never closed.
        let slot = slots.acquire_owned().await.ok();
        let rendered = spawn_blocking(move || {
            let _slot = slot;
            let mut rest = rest();
            rest.next().map(|page| (page, rest))
        });
        match rendered.await {
            Ok(page) => page,
            Err(error) => match error.try_into_panic() {
                // The reader must not take what it has for all that there is.
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_ended) => std::future::pending().await,
            },
        }
    })
}
