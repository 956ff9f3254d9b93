//! The tasks of a role: how they are told to end, and how the process is.

use anyhow::Result;
use tokio::{
    runtime::Handle,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

/// What runs.
pub type Tasks = JoinSet<()>;

/// Tasks that are told to end together.
#[derive(Debug, Default)]
pub struct TaskGroup {
    shutdown: watch::Sender<bool>,
    tasks: Tasks,
}

impl TaskGroup {
    /// By which they are told.
    pub fn shutdown_token(&self) -> ShutdownToken {
        ShutdownToken::new(self.shutdown.subscribe())
    }

    /// Where they are started. Each of them ends once it is told.
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

    /// Starts a task on another runtime.
    pub fn spawn_on<F>(&mut self, runtime: &Handle, task: impl FnOnce(ShutdownToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn_on(task(self.shutdown_token()), runtime);
    }

    /// Tells them, and waits until they have ended.
    pub async fn shut_down(&mut self) {
        self.shutdown.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Tells tasks to end.
#[derive(Clone, Debug)]
pub struct ShutdownToken(watch::Receiver<bool>);

impl ShutdownToken {
    /// Told through the sender of this.
    pub fn new(told: watch::Receiver<bool>) -> Self {
        Self(told)
    }

    /// Whether it was told.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }

    /// Ready once it is told.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut told = self.0.clone();
        async move {
            // A sender that is gone is as good as a word.
            let _ = told.wait_for(|told| *told).await;
        }
    }
}

/// Starts a role, runs it until SIGTERM or SIGINT, and ends it in order. A signal that comes earlier ends the start: it has
/// written nothing yet.
pub(crate) async fn run_until_signal<R, F: Future<Output = ()>>(
    mut signals: Signals,
    starting: impl Future<Output = Result<R>>,
    stop: impl FnOnce(R) -> F,
) -> Result<()> {
    let role = tokio::select! {
        biased;
        () = signals.received() => {
            tracing::info!("told to stop before the start was complete; stopped");
            return Ok(());
        }
        started = starting => started?,
    };
    signals.received().await;
    tracing::info!("told to stop");
    stop(role).await;
    tracing::info!("stopped");
    Ok(())
}

/// SIGTERM and SIGINT, from the moment on at which this was made. Until then the kernel drops them where this is process 1.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers. Needs a runtime.
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
