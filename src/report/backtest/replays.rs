//! Replays recordings on other threads while the next ones are read.

use std::{
    num::NonZero,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use plimsoll_core::backtest::{
    WorkloadScaling,
    account::WorkloadAccount,
    recording::{Evaluation, WorkloadRecording},
};
use tokio::task::JoinHandle;

use super::run::BacktestError;

/// Makes the account of a recording.
pub type Replay = Arc<dyn Fn(&WorkloadRecording, Evaluation) -> WorkloadAccount + Send + Sync>;

/// Makes the account of a recording of a workload whose autoscaler answers to requests like this.
pub type ScaledReplay =
    Arc<dyn Fn(&WorkloadRecording, &WorkloadScaling, Evaluation) -> WorkloadAccount + Send + Sync>;

/// The maximum of threads. More than that wait for what is read.
const MAX_THREADS: usize = 8;

/// Replays groups, one at a time, while the next one is read. The workloads of a group are shared by all cores.
pub(super) struct Replays {
    replay: ScaledReplay,
    evaluation: Evaluation,
    threads: usize,
    running: Vec<JoinHandle<Vec<WorkloadAccount>>>,
    accounts: Vec<WorkloadAccount>,
}

impl Replays {
    pub(super) fn new(replay: ScaledReplay, evaluation: Evaluation) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        Self { replay, evaluation, threads, running: Vec::new(), accounts: Vec::new() }
    }

    /// Replays these recordings, once those before are replayed. The order of the accounts is not that of the recordings.
    pub(super) async fn start(
        &mut self,
        recordings: Vec<(WorkloadRecording, WorkloadScaling)>,
    ) -> Result<(), BacktestError> {
        self.wait().await?;
        let threads = self.threads.min(recordings.len());
        let queue = Arc::new(Mutex::new(recordings.into_iter()));
        for _ in 0..threads {
            let (replay, evaluation) = (Arc::clone(&self.replay), self.evaluation);
            let queue = Arc::clone(&queue);
            self.running.push(tokio::task::spawn_blocking(move || {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                // Each recording is dropped as soon as it is replayed.
                let replayed = std::iter::from_fn(next)
                    .map(|(recording, scaling)| replay(&recording, &scaling, evaluation));
                replayed.collect()
            }));
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), BacktestError> {
        for running in self.running.drain(..) {
            match running.await {
                Ok(accounts) => self.accounts.extend(accounts),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(error) => return Err(BacktestError::Incomplete(error.to_string())),
            }
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<Vec<WorkloadAccount>, BacktestError> {
        self.wait().await?;
        Ok(self.accounts)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{
        backtest::{ReplicaRule, ReplicaSource},
        types::{ObjectKey, Time},
    };

    use super::*;

    fn recording(name: String) -> WorkloadRecording {
        WorkloadRecording {
            cluster: None,
            kind: "Deployment".into(),
            key: ObjectKey::new("shop", name),
            from: Time::from_secs(0),
            containers: Vec::new(),
            pods: Vec::new(),
        }
    }

    fn account(
        recording: &WorkloadRecording,
        scaling: &WorkloadScaling,
        _: Evaluation,
    ) -> WorkloadAccount {
        WorkloadAccount {
            cluster: None,
            namespace: recording.key.namespace.as_ref().into(),
            kind: recording.kind.clone(),
            name: recording.key.name.as_ref().into(),
            containers: Vec::new(),
            elastic_containers: 0,
            unknown_requests: 0,
            missing_minutes: 0,
            sampled_minutes: 1,
            replicas: scaling.source(ReplicaRule::Model),
            policies: Vec::new(),
        }
    }

    #[tokio::test]
    async fn every_recording_of_every_group_is_replayed_once() {
        let at = Time::from_secs(0);
        let evaluation = Evaluation { warm_up_from: at, from: at, until: at };
        let mut replays = Replays::new(Arc::new(account), evaluation);
        for group in [0..0, 0..1, 1..40, 40..43] {
            let recordings = group
                .map(|index| (recording(format!("web-{index:02}")), WorkloadScaling::NotModelled));
            replays.start(recordings.collect()).await.expect("replayed");
        }
        let accounts = replays.finish().await.expect("replayed");
        let is_scaled = |of: &WorkloadAccount| of.replicas == ReplicaSource::RecordedWithAutoscaler;
        assert!(accounts.iter().all(is_scaled), "each with its own autoscaler");
        let mut names: Vec<&str> = accounts.iter().map(|account| &*account.name).collect();
        names.sort_unstable();
        let expected: Vec<String> = (0..43).map(|index| format!("web-{index:02}")).collect();
        assert_eq!(names, expected);
    }
}
