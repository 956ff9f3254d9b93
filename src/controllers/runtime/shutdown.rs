//! Task groups and signals.

use anyhow::Result;
use futures::FutureExt as _;
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub struct TaskGroup {
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl TaskGroup {
    /// Starts a task on the current runtime. It has to end once the token is cancelled.
    pub fn spawn<F>(&mut self, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task(self.shutdown.clone()));
    }

    pub fn spawn_on<F>(&mut self, runtime: &Handle, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn_on(task(self.shutdown.clone()), runtime);
    }

    /// Starts a task on the current runtime, which shutdown drops wherever it waits.
    pub fn spawn_cancellable(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(|stop| stop.run_until_cancelled_owned(task).map(drop));
    }

    /// Starts a task on another runtime, which shutdown drops wherever it waits.
    pub fn spawn_cancellable_on(
        &mut self,
        runtime: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn_on(runtime, |stop| stop.run_until_cancelled_owned(task).map(drop));
    }

    /// Requests shutdown, and waits until all tasks have ended.
    pub async fn shut_down(&mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts a controller, runs it until SIGTERM or SIGINT, and shuts it down gracefully. A signal during startup aborts
/// the startup, which has not written anything.
pub(crate) async fn run_until_signal<R, F: Future<Output = ()>>(
    mut signals: Signals,
    starting: impl Future<Output = Result<R>>,
    stop: impl FnOnce(R) -> F,
) -> Result<()> {
    let role = tokio::select! {
        biased;
        () = signals.received() => {
            tracing::info!("received shutdown signal during startup; stopped");
            return Ok(());
        }
        started = starting => started?,
    };
    signals.received().await;
    tracing::info!("received shutdown signal");
    stop(role).await;
    tracing::info!("stopped");
    Ok(())
}

/// Handlers of SIGTERM and SIGINT. Without handlers the kernel drops these signals for process 1.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers. Requires a runtime.
    pub fn listen() -> std::io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
