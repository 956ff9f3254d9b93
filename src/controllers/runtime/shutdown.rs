//! Task groups, shutdown tokens and signals.

use anyhow::Result;
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

pub type Tasks = JoinSet<()>;

#[derive(Debug, Default)]
pub struct TaskGroup {
    shutdown: watch::Sender<bool>,
    tasks: Tasks,
}

impl TaskGroup {
    pub fn shutdown_token(&self) -> ShutdownToken {
        ShutdownToken::new(self.shutdown.subscribe())
    }

    /// The set to spawn tasks on. Each task must return once the token is cancelled.
    pub const fn tasks(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    /// Starts a task on the current runtime. It has to end once the token is cancelled.
    pub fn spawn<F>(&mut self, task: impl FnOnce(ShutdownToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task(self.shutdown_token()));
    }

    pub fn spawn_on<F>(&mut self, runtime: &Handle, task: impl FnOnce(ShutdownToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn_on(task(self.shutdown_token()), runtime);
    }

    /// Starts a task on the current runtime, which shutdown drops wherever it waits.
    pub fn spawn_cancellable(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(|stop| stop.drop_when_cancelled(task));
    }

    /// Starts a task on another runtime, which shutdown drops wherever it waits.
    pub fn spawn_cancellable_on(
        &mut self,
        runtime: &Handle,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn_on(runtime, |stop| stop.drop_when_cancelled(task));
    }

    /// Requests shutdown, and waits until all tasks have ended.
    pub async fn shut_down(&mut self) {
        self.shutdown.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

#[derive(Clone, Debug)]
pub struct ShutdownToken(watch::Receiver<bool>);

impl ShutdownToken {
    /// A token that is cancelled when the channel holds true, or its sender is dropped.
    pub fn new(receiver: watch::Receiver<bool>) -> Self {
        Self(receiver)
    }

    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Ready once shutdown is requested.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut receiver = self.0.clone();
        async move {
            // A dropped sender requests shutdown as well.
            let _ = receiver.wait_for(|cancelled| *cancelled).await;
        }
    }

    async fn drop_when_cancelled(self, task: impl Future<Output = ()>) {
        tokio::select! {
            () = self.cancelled() => {}
            () = task => {}
        }
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
