//! Caches a fetched token until shortly before it expires. Concurrent requests share one fetch.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{TransportError, reloading_file::Reload};

/// How long before it expires a token is renewed, or a fifth of its lifetime if that is less.
const MARGIN: Duration = Duration::from_mins(5);
/// Longest accepted lifetime. No issuer grants more, and a bogus number must not overflow.
const LONGEST: Duration = Duration::from_hours(24);
/// Assumed lifetime of a token without one.
const UNKNOWN: Duration = Duration::from_mins(5);

/// A token and its lifetime.
#[derive(Debug)]
pub(super) struct FetchedToken<T> {
    pub(super) value: T,
    /// Time until it expires, if known.
    pub(super) expires_in: Option<Duration>,
}

/// The token that was fetched last.
#[derive(Debug)]
pub(super) struct TokenCache<T> {
    /// Minimum age at which a rejected token is refetched: right after a fetch, a new one would be no better.
    min_refetch_interval: Duration,
    state: Mutex<CacheState<T>>,
}

#[derive(Debug)]
struct CacheState<T> {
    token: Option<CachedToken<T>>,
    fetches: u64,
    failed: Option<FailedFetch>,
}

#[derive(Debug)]
struct CachedToken<T> {
    value: T,
    /// Version of the secrets that it was fetched with.
    secrets_version: u64,
    fetched_at: Instant,
    renew_at: Instant,
    expires_at: Instant,
}

#[derive(Debug)]
struct FailedFetch {
    error: TransportError,
    secrets_version: u64,
    at: Instant,
}

impl<T: Clone> TokenCache<T> {
    pub(super) fn new(min_refetch_interval: Duration) -> Self {
        Self {
            min_refetch_interval,
            state: Mutex::new(CacheState { token: None, fetches: 0, failed: None }),
        }
    }

    /// Returns the token for this version of the secrets, and how often a token has been fetched so far. Concurrent
    /// callers wait for the same fetch.
    pub(super) async fn get<F>(
        &self,
        reload: Reload,
        changes: u64,
        fetch: F,
    ) -> Result<(T, u64), TransportError>
    where
        F: Future<Output = Result<FetchedToken<T>, TransportError>>,
    {
        let mut state = self.state.lock().await;
        let fetches = state.fetches;
        let now = Instant::now();
        if let Some(token) = state.token.as_ref().filter(|token| token.secrets_version == changes) {
            let refused = reload == Reload::Now
                && now.duration_since(token.fetched_at) >= self.min_refetch_interval;
            if now < token.renew_at && !refused {
                return Ok((token.value.clone(), fetches));
            }
        }
        // If the endpoint has just failed, the callers that waited do not query it again.
        let usable = |state: &CacheState<T>| {
            let token = state.token.as_ref().filter(|token| now < token.expires_at);
            token.filter(|_| reload == Reload::IfDue).map(|token| token.value.clone())
        };
        if let Some(failed) = &state.failed
            && failed.secrets_version == changes
            && now.duration_since(failed.at) < self.min_refetch_interval
        {
            let error = failed.error.clone();
            return usable(&state).map(|value| (value, fetches)).ok_or(error);
        }
        match fetch.await {
            Ok(FetchedToken { value, expires_in }) => {
                let now = Instant::now();
                let lifetime = expires_in.unwrap_or(UNKNOWN).min(LONGEST);
                let token = CachedToken {
                    value: value.clone(),
                    secrets_version: changes,
                    fetched_at: now,
                    renew_at: now + lifetime.saturating_sub(MARGIN.min(lifetime / 5)),
                    expires_at: now + lifetime,
                };
                *state = CacheState { token: Some(token), fetches: fetches + 1, failed: None };
                Ok((value, fetches + 1))
            }
            Err(error) => {
                state.failed = Some(FailedFetch {
                    error: error.clone(),
                    secrets_version: changes,
                    at: Instant::now(),
                });
                let value = usable(&state).ok_or_else(|| error.clone())?;
                tracing::warn!(%error, "failed to renew token; using the previous one until it expires");
                Ok((value, fetches))
            }
        }
    }
}
