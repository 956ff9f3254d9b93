//! Single-threaded runtimes for connections. A connection stays on its thread, so that a review wakes no other
//! thread, and memory is freed by the thread that allocated it.

use std::{io, num::NonZero, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// More threads would not answer faster than API servers send requests.
const MAX_RUNTIMES: usize = 4;

/// Runtimes that run until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionRuntimes {
    handles: Vec<Handle>,
    next: usize,
    /// Dropping a sender stops its runtime.
    _shutdown_senders: Vec<oneshot::Sender<()>>,
}

impl ConnectionRuntimes {
    /// Starts one runtime per core, up to the maximum. Falls back to the current runtime if threads cannot be
    /// started.
    pub fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let started =
            (0..cores.min(MAX_RUNTIMES)).map(|_| start_runtime()).collect::<io::Result<Vec<_>>>();
        let (handles, shutdown_senders) = match started {
            Ok(started) => started.into_iter().unzip(),
            Err(error) => {
                tracing::warn!(%error, "failed to start connection threads; all connections share one thread");
                (vec![Handle::current()], Vec::new())
            }
        };
        Self { handles, next: 0, _shutdown_senders: shutdown_senders }
    }

    /// The next runtime, in round-robin order.
    pub fn next(&mut self) -> &Handle {
        self.next = (self.next + 1) % self.handles.len();
        &self.handles[self.next]
    }
}

fn start_runtime() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (shutdown_sender, shutdown) = oneshot::channel();
    thread::Builder::new().name("webhook".to_owned()).spawn(move || {
        // A dropped sender stops the runtime as well.
        let _ = runtime.block_on(shutdown);
        // A large review on a blocking thread may never end, so do not wait for it.
        runtime.shutdown_background();
    })?;
    Ok((handle, shutdown_sender))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_are_distributed_over_dedicated_runtimes_until_these_stop() {
        let mut runtimes = ConnectionRuntimes::start();
        let count = runtimes.handles.len();
        let mut threads = Vec::new();
        for _ in 0..2 * count {
            let task = runtimes.next().spawn(async { thread::current().id() });
            threads.push(task.await.expect("it runs"));
        }
        assert_eq!(threads[..count], threads[count..], "round robin");
        assert!(!threads.contains(&thread::current().id()));
        let pending = runtimes.next().spawn(std::future::pending::<()>());
        drop(runtimes);
        assert!(pending.await.expect_err("its runtime has stopped").is_cancelled());
    }
}
