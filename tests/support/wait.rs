//! Waiting: polls a condition until it holds or times out, instead of sleeping for a fixed time.

use std::future::Future;
use std::time::{Duration, Instant};

use plimsoll::cluster::leader::{ElectionState, LeaderState};

/// Timeout of a condition; generous, because other tests use the same cores.
pub const PATIENCE: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Polls until `poll` returns a value. Panics with `condition` on a timeout.
pub async fn until<T, F>(condition: &str, poll: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    within(PATIENCE, condition, poll).await
}

/// Like [`until`], with another timeout. It also cancels a poll that does not return.
pub async fn within<T, F>(patience: Duration, condition: &str, mut poll: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let start = Instant::now();
    loop {
        let remaining = patience.saturating_sub(start.elapsed());
        if let Ok(Some(answer)) = tokio::time::timeout(remaining, poll()).await {
            return answer;
        }
        assert!(start.elapsed() < patience, "not within {patience:?}: {condition}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Like [`until`], with a poll that returns an error until the condition holds; the panic contains the last error.
pub async fn until_ok<T, F>(condition: &str, poll: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    often(POLL_INTERVAL, PATIENCE, condition, poll).await
}

/// Like [`until_ok`], with its own poll interval and timeout.
pub async fn often<T, F>(
    pause: Duration,
    patience: Duration,
    condition: &str,
    mut poll: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    let mut why = "no poll returned".to_owned();
    loop {
        let remaining = patience.saturating_sub(start.elapsed());
        match tokio::time::timeout(remaining, poll()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(not_yet)) => why = not_yet,
            Err(_) => {}
        }
        assert!(start.elapsed() < patience, "not within {patience:?}: {condition}: {why}");
        tokio::time::sleep(pause).await;
    }
}

/// Waits for the first response or the first failure of an election, and returns its state then.
pub async fn for_election(state: &ElectionState) -> LeaderState {
    let mut state = state.clone();
    while state.leader_state() == LeaderState::Starting && state.changed().await {}
    state.leader_state()
}
