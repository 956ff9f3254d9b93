//! Owns waiting: a condition is looked at again and again until it holds or its time is over, and nothing ever just sleeps.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a condition may take before the test fails; generous, because other tests use the same cores.
pub const PATIENCE: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Looks until there is an answer. Panics with `what` when there is none in time.
pub async fn until<T, F>(what: &str, look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    within(PATIENCE, what, look).await
}

/// As [`until`], with another patience. It also ends a look that does not come back.
pub async fn within<T, F>(patience: Duration, what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let start = Instant::now();
    loop {
        let left = patience.saturating_sub(start.elapsed());
        if let Ok(Some(answer)) = tokio::time::timeout(left, look()).await {
            return answer;
        }
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// As [`until`], with a look that says what is not so yet; the panic ends with the last of it.
pub async fn until_ok<T, F>(what: &str, look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    often(POLL_INTERVAL, PATIENCE, what, look).await
}

/// As [`until_ok`], with a pause between looks and a patience of its own.
pub async fn often<T, F>(
    pause: Duration,
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let start = Instant::now();
    let mut why = "no look came back".to_owned();
    loop {
        let left = patience.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(not_yet)) => why = not_yet,
            Err(_) => {}
        }
        assert!(start.elapsed() < patience, "not within {patience:?}: {what}: {why}");
        tokio::time::sleep(pause).await;
    }
}
