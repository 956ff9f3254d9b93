//! What was exchanged for a secret: fetched by one for all, and kept until shortly before it expires.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{TransportError, reloading_file::Reload};

/// How long before its end a token is replaced; a fifth of its life if that is less.
const MARGIN: Duration = Duration::from_mins(5);
/// Nobody lends for longer, and a wrong number must not overflow.
const LONGEST: Duration = Duration::from_hours(24);
/// How long one is used that does not say.
const UNKNOWN: Duration = Duration::from_mins(5);

/// Something with an end.
#[derive(Debug)]
pub(super) struct FetchedToken<T> {
    pub(super) value: T,
    /// How long it lives from now on, if that is known.
    pub(super) expires_in: Option<Duration>,
}

/// What was fetched last.
#[derive(Debug)]
pub(super) struct TokenCache<T> {
    /// The least age at which one that was refused is thrown away: right after an exchange a new one is no better.
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
    /// Of what it was exchanged for.
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
    pub(super) fn new(rest: Duration) -> Self {
        Self {
            min_refetch_interval: rest,
            state: Mutex::new(CacheState { token: None, fetches: 0, failed: None }),
        }
    }

    /// The token for secrets that changed so often, and how often it was fetched until now. Those who come while it
    /// is fetched wait for it.
    pub(super) async fn get<F>(
        &self,
        fresh: Reload,
        changes: u64,
        fetch: F,
    ) -> Result<(T, u64), TransportError>
    where
        F: Future<Output = Result<FetchedToken<T>, TransportError>>,
    {
        let mut kept = self.state.lock().await;
        let fetches = kept.fetches;
        let now = Instant::now();
        if let Some(token) = kept.token.as_ref().filter(|token| token.secrets_version == changes) {
            let refused = fresh == Reload::Now
                && now.duration_since(token.fetched_at) >= self.min_refetch_interval;
            if now < token.renew_at && !refused {
                return Ok((token.value.clone(), fetches));
            }
        }
        // An endpoint that just failed is not asked by everybody who waited.
        let usable = |kept: &CacheState<T>| {
            let token = kept.token.as_ref().filter(|token| now < token.expires_at);
            token.filter(|_| fresh == Reload::IfDue).map(|token| token.value.clone())
        };
        if let Some(failed) = &kept.failed
            && failed.secrets_version == changes
            && now.duration_since(failed.at) < self.min_refetch_interval
        {
            let error = failed.error.clone();
            return usable(&kept).map(|value| (value, fetches)).ok_or(error);
        }
        match fetch.await {
            Ok(FetchedToken { value, expires_in: lives }) => {
                let now = Instant::now();
                let lives = lives.unwrap_or(UNKNOWN).min(LONGEST);
                let token = CachedToken {
                    value: value.clone(),
                    secrets_version: changes,
                    fetched_at: now,
                    renew_at: now + lives.saturating_sub(MARGIN.min(lives / 5)),
                    expires_at: now + lives,
                };
                *kept = CacheState { token: Some(token), fetches: fetches + 1, failed: None };
                Ok((value, fetches + 1))
            }
            Err(error) => {
                kept.failed = Some(FailedFetch {
                    error: error.clone(),
                    secrets_version: changes,
                    at: Instant::now(),
                });
                let value = usable(&kept).ok_or_else(|| error.clone())?;
                tracing::warn!(%error, "the token from before is used until it expires");
                Ok((value, fetches))
            }
        }
    }
}
