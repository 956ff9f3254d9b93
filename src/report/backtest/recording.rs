//! Records workloads from a Prometheus: usage, OOM kills, throttling, requests and limits of the past, births of pods.
//!
//! ```text
//!   workloads ─▶ group: what fits into the memory of a part
//!      └▶ PrometheusHistory ─▶ RecordingSink: minutes of CPU, peaks of memory, OOM kills
//!             └▶ pods that were seen ─▶ pod_states: requests, limits, start; throttled minutes ─▶ WorkloadRecording
//! ```
//!
//! A group is complete or an error: a recording with holes would look like a workload that used less.

mod group;
mod pod_states;
mod sink;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc, time::Duration};

use plimsoll_core::{
    backtest::recording::{Evaluation, WorkloadRecording},
    rightsizing::survey::{ContainerRole, RuntimeHint, Workload},
    types::Time,
};
use plimsoll_storage::prometheus::{
    detect::DetectError,
    history::{HistoryLoad, KnownPods, PrometheusHistory},
    query_error::QueryError,
};
use tokio::sync::Notify;

pub use self::group::{MAX_PARTS, RecordingEstimate, groups};
use self::{pod_states::PodStates, sink::RecordingSink};
use crate::report::recommend::history::{HistoryWorkload, live_pods};

/// Pauses before a failed load is resumed. Each of its queries has been retried already.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// Why workloads could not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The series of the server cannot be used.
    #[error("{0}")]
    Series(#[from] DetectError),
    /// A query failed.
    #[error("failed to read the history of {workload}: {failure}")]
    Query {
        /// A workload that is concerned.
        workload: String,
        /// The cause.
        failure: QueryError,
    },
    /// The workloads need more memory than a part may.
    #[error("recording {0} exceeds the memory of a part")]
    TooLarge(String),
}

/// The name of a workload: `shop/Deployment/web`.
pub fn workload_name(workload: &Workload) -> String {
    let Workload { namespace, kind, name, .. } = workload;
    match &workload.cluster {
        Some(cluster) => format!("{cluster}/{namespace}/{kind}/{name}"),
        None => format!("{namespace}/{kind}/{name}"),
    }
}

/// Records these workloads of one cluster, in their order. A workload without series has no pods. Holds at most this many
/// bytes of values.
pub async fn record(
    history: &PrometheusHistory,
    workloads: &[&Workload],
    evaluation: Evaluation,
    max_bytes: u64,
) -> Result<Vec<WorkloadRecording>, RecordingError> {
    let wanted: Vec<HistoryWorkload> =
        workloads.iter().map(|workload| HistoryWorkload::new(workload)).collect();
    let owners: HashMap<_, _> = wanted
        .iter()
        .map(|workload| (workload.key.clone(), Some(Box::from(&*workload.key.name))))
        .collect();
    let live = live_pods(&wanted);
    let pods = KnownPods { by_label: None, live: Some(&live) };
    let (after, until) = (evaluation.warm_up_from, evaluation.until);
    let (mut load, skipped) =
        history.start_load_with_pods(&owners, Some(after), Some(until), pods).await?;
    let named =
        |index: usize| workloads.get(index).map_or_else(String::new, |of| workload_name(of));
    for record in &skipped {
        tracing::warn!(
            record = record.record,
            reason = record.reason,
            "workload cannot be recorded"
        );
    }
    let full = Arc::new(Notify::new());
    let keys = wanted.iter().map(|workload| workload.key.clone());
    let mut sink = RecordingSink::new(keys, evaluation, max_bytes, Arc::clone(&full));
    let failure = tokio::select! {
        // The sink is full: what it would receive is dropped, so do not wait for it.
        () = full.notified() => return Err(RecordingError::TooLarge(named(0))),
        failure = advance(&mut load, &mut sink) => failure,
    };
    if sink.is_full() {
        return Err(RecordingError::TooLarge(named(0)));
    }
    if let Some(failure) = failure {
        let pending = load.pending().next();
        let index = wanted.iter().position(|workload| Some(&workload.key) == pending);
        return Err(RecordingError::Query { workload: named(index.unwrap_or_default()), failure });
    }
    let mut partial = sink.into_partial();
    let states = PodStates::read(history, &partial, evaluation).await;
    let states = states.map_err(|failure| RecordingError::Query { workload: named(0), failure })?;
    let recordings = workloads.iter().zip(&wanted).map(|(workload, wanted)| {
        let pods = partial.remove(&wanted.key).unwrap_or_default();
        pods.into_recording(workload, &wanted.key, &states, evaluation)
    });
    Ok(recordings.collect())
}

/// Loads everything. Returns the failure if something is left.
async fn advance(load: &mut HistoryLoad, sink: &mut RecordingSink) -> Option<QueryError> {
    for pause in RETRY_PAUSES {
        match load.advance(sink).await {
            Ok(()) => return None,
            Err(incomplete) if !incomplete.failure.is_transient() => {
                return Some(incomplete.failure);
            }
            Err(incomplete) => {
                tracing::warn!(failure = %incomplete, "failed to read history; will retry");
                tokio::time::sleep(pause).await;
            }
        }
    }
    load.advance(sink).await.err().map(|incomplete| incomplete.failure)
}

/// Whether the memory of a container follows its limit, so that use under another limit cannot be derived from use.
fn is_memory_elastic(workload: &Workload, container: &str) -> bool {
    let known = workload.containers.iter().find(|known| *known.name == *container);
    match known.and_then(|known| known.runtime.as_deref()) {
        Some(RuntimeHint::Jvm { max_heap, .. }) => max_heap.is_none(),
        Some(RuntimeHint::Go { follows_limit, .. }) => *follows_limit,
        None => false,
    }
}

/// Whether a container runs only before the others. Its use says nothing about what the pod needs while it runs.
fn is_init(workload: &Workload, container: &str) -> bool {
    let mut known = workload.containers.iter();
    known.any(|known| *known.name == *container && known.role == ContainerRole::Init)
}

/// The number of whole steps from one time to another; 0 if it is earlier.
fn steps_between(from: Time, to: Time, seconds: i64) -> u64 {
    u64::try_from(to.nanos_since(from).max(0) / 1_000_000_000 / seconds).unwrap_or_default()
}
