//! The threads that connections live on. Each has a loop of its own: a connection stays where it is, so that a review wakes
//! nobody but who answers it, and what it takes from memory is given back where it came from.

use std::{io, num::NonZero, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

/// More would not answer faster than API servers ask.
const MAX_RUNTIMES: usize = 4;

/// Loops that run until this is dropped.
#[derive(Debug)]
pub(super) struct ConnectionRuntimes {
    handles: Vec<Handle>,
    next: usize,
    /// Each ends its loop when it goes.
    _shutdown_senders: Vec<oneshot::Sender<()>>,
}

impl ConnectionRuntimes {
    /// As many as there are cores, and not too many. Where no thread can be had, the caller's own runtime has to do.
    pub fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let started =
            (0..cores.min(MAX_RUNTIMES)).map(|_| start_runtime()).collect::<io::Result<Vec<_>>>();
        let (handles, ends) = match started {
            Ok(started) => started.into_iter().unzip(),
            Err(error) => {
                tracing::warn!(%error, "no thread can be started for connections; they share one");
                (vec![Handle::current()], Vec::new())
            }
        };
        Self { handles, next: 0, _shutdown_senders: ends }
    }

    /// The one whose turn it is.
    pub fn next(&mut self) -> &Handle {
        self.next = (self.next + 1) % self.handles.len();
        &self.handles[self.next]
    }
}

fn start_runtime() -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (end, ended) = oneshot::channel();
    thread::Builder::new().name("webhook".to_owned()).spawn(move || {
        // A sender that is gone is as good as a word.
        let _ = runtime.block_on(ended);
        // A review on a thread of its own may never end.
        runtime.shutdown_background();
    })?;
    Ok((handle, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_take_turns_on_threads_of_their_own_until_these_end() {
        let mut loops = ConnectionRuntimes::start();
        let count = loops.handles.len();
        let mut threads = Vec::new();
        for _ in 0..2 * count {
            let task = loops.next().spawn(async { thread::current().id() });
            threads.push(task.await.expect("it runs"));
        }
        assert_eq!(threads[..count], threads[count..], "they take turns");
        assert!(!threads.contains(&thread::current().id()));
        let pending = loops.next().spawn(std::future::pending::<()>());
        drop(loops);
        assert!(pending.await.expect_err("its loop has ended").is_cancelled());
    }
}
