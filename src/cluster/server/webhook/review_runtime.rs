//! The runtime of connections. Reviews take time in proportion to their size, so they run neither on the threads of
//! other controllers nor on the thread that answers probes.

use std::{num::NonZero, thread};

use tokio::runtime::{Builder, Handle, Runtime};

/// More threads would not answer faster than API servers send requests.
const MAX_THREADS: usize = 4;

/// A runtime that runs until this is dropped; `None` if it could not be started.
#[derive(Debug)]
pub(super) struct ReviewRuntime(Option<Runtime>);

impl ReviewRuntime {
    /// Starts a thread per core, up to the maximum. Falls back to the current runtime if that fails.
    pub fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(cores.min(MAX_THREADS)).thread_name("webhook").enable_all();
        let runtime = builder.build().inspect_err(
            |error| tracing::warn!(%error, "failed to start the webhook's runtime; its connections share a thread with probes"),
        );
        Self(runtime.ok())
    }

    pub fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for ReviewRuntime {
    fn drop(&mut self) {
        // A large review on a blocking thread may never end, so do not wait for it.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_have_threads_of_their_own_until_the_runtime_is_dropped() {
        let runtime = ReviewRuntime::start();
        let thread = runtime.handle().spawn(async { thread::current().id() });
        assert_ne!(thread.await.expect("it runs"), thread::current().id());
        let pending = runtime.handle().spawn(std::future::pending::<()>());
        drop(runtime);
        assert!(pending.await.expect_err("its runtime has stopped").is_cancelled());
    }
}
