//! The tasks of a role: how they are told to end, and how the process is.

use anyhow::Result;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

/// What runs.
pub(super) type Tasks = JoinSet<()>;

/// Tells tasks to end.
#[derive(Clone, Debug)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Told through the sender of this.
    pub fn new(told: watch::Receiver<bool>) -> Self {
        Self(told)
    }

    /// Whether it was told.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Ready once it is told.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut told = self.0.clone();
        async move {
            // A sender that is gone is as good as a word.
            let _ = told.wait_for(|told| *told).await;
        }
    }
}

/// Returns on SIGTERM or SIGINT.
pub(super) async fn stop_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
