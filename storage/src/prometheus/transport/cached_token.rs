//! Fetches tokens, and caches each until shortly before it expires. Concurrent requests share one fetch.

use std::{
    fmt,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::{Secret, TransportError, reloading_file::Reload};

/// How long before it expires a token is renewed, or a fifth of its lifetime if that is less.
const MARGIN: Duration = Duration::from_mins(5);
/// Longest accepted lifetime. No issuer grants more, and a bogus number must not overflow.
const LONGEST: Duration = Duration::from_hours(24);
/// Assumed lifetime of a token without one.
const UNKNOWN: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(super) struct FetchedToken<T> {
    pub(super) value: T,
    /// Time until it expires, if known.
    pub(super) expires_in: Option<Duration>,
}

pub(super) trait TokenSource {
    type Token: Clone + fmt::Debug;

    /// Returns the secrets that a token is fetched with. If they change, so does the token.
    async fn secrets(&self, reload: Reload) -> Result<Vec<Secret>, TransportError>;

    async fn fetch(&self, secrets: &[Secret]) -> Result<FetchedToken<Self::Token>, TransportError>;
}

/// A source of tokens with the token that was fetched last.
#[derive(Debug)]
pub(super) struct CachedToken<S: TokenSource> {
    source: S,
    /// Minimum age at which a rejected token is refetched: right after a fetch, a new one would be no better.
    min_refetch_interval: Duration,
    state: Mutex<CacheState<S::Token>>,
}

#[derive(Debug)]
struct CacheState<T> {
    token: Option<Token<T>>,
    failed: Option<FailedFetch>,
}

#[derive(Debug)]
struct Token<T> {
    value: T,
    /// The secrets that it was fetched with.
    secrets: Vec<Secret>,
    fetched_at: Instant,
    renew_at: Instant,
    expires_at: Instant,
}

#[derive(Debug)]
struct FailedFetch {
    error: TransportError,
    secrets: Vec<Secret>,
    at: Instant,
}

impl<S: TokenSource> CachedToken<S> {
    pub(super) fn new(source: S, min_refetch_interval: Duration) -> Self {
        let state = Mutex::new(CacheState { token: None, failed: None });
        Self { source, min_refetch_interval, state }
    }

    /// Returns the token. Concurrent callers wait for the same fetch.
    pub(super) async fn get(&self, reload: Reload) -> Result<S::Token, TransportError> {
        let secrets = self.source.secrets(reload).await?;
        let mut state = self.state.lock().await;
        let now = Instant::now();
        if let Some(token) = state.token.as_ref().filter(|token| token.secrets == secrets) {
            let refused = reload == Reload::Now
                && now.duration_since(token.fetched_at) >= self.min_refetch_interval;
            if now < token.renew_at && !refused {
                return Ok(token.value.clone());
            }
        }
        // If the endpoint has just failed, the callers that waited do not query it again.
        let usable = |state: &CacheState<S::Token>| {
            let token = state.token.as_ref().filter(|token| now < token.expires_at);
            token.filter(|_| reload == Reload::IfDue).map(|token| token.value.clone())
        };
        if let Some(failed) = &state.failed
            && failed.secrets == secrets
            && now.duration_since(failed.at) < self.min_refetch_interval
        {
            return usable(&state).ok_or_else(|| failed.error.clone());
        }
        match self.source.fetch(&secrets).await {
            Ok(FetchedToken { value, expires_in }) => {
                let now = Instant::now();
                let lifetime = expires_in.unwrap_or(UNKNOWN).min(LONGEST);
                state.token = Some(Token {
                    value: value.clone(),
                    secrets,
                    fetched_at: now,
                    renew_at: now + lifetime.saturating_sub(MARGIN.min(lifetime / 5)),
                    expires_at: now + lifetime,
                });
                state.failed = None;
                Ok(value)
            }
            Err(error) => {
                let value = usable(&state).ok_or_else(|| error.clone());
                if value.is_ok() {
                    tracing::warn!(%error, "failed to renew token; using the previous one until it expires");
                }
                state.failed = Some(FailedFetch { error, secrets, at: Instant::now() });
                value
            }
        }
    }
}
