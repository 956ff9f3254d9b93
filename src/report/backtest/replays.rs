//! Replays recordings on another thread while the next ones are read.

use std::sync::Arc;

use plimsoll_core::backtest::{
    account::WorkloadAccount,
    recording::{Evaluation, WorkloadRecording},
};
use tokio::task::JoinHandle;

use super::run::BacktestError;

/// Makes the account of a recording.
pub type Replay = Arc<dyn Fn(&WorkloadRecording, Evaluation) -> WorkloadAccount + Send + Sync>;

/// Replays groups, one at a time, while the next one is read.
pub(super) struct Replays {
    replay: Replay,
    evaluation: Evaluation,
    running: Option<JoinHandle<Vec<WorkloadAccount>>>,
    accounts: Vec<WorkloadAccount>,
}

impl Replays {
    pub(super) fn new(replay: Replay, evaluation: Evaluation) -> Self {
        Self { replay, evaluation, running: None, accounts: Vec::new() }
    }

    /// Replays these recordings, once those before are replayed.
    pub(super) async fn start(
        &mut self,
        recordings: Vec<WorkloadRecording>,
    ) -> Result<(), BacktestError> {
        self.wait().await?;
        let (replay, evaluation) = (Arc::clone(&self.replay), self.evaluation);
        self.running = Some(tokio::task::spawn_blocking(move || {
            // Each recording is dropped as soon as it is replayed.
            recordings.into_iter().map(|recording| replay(&recording, evaluation)).collect()
        }));
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), BacktestError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        match running.await {
            Ok(accounts) => self.accounts.extend(accounts),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => return Err(BacktestError::Incomplete(error.to_string())),
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Vec<WorkloadAccount>, BacktestError> {
        self.wait().await?;
        Ok(self.accounts)
    }
}
