//! What was exchanged for a secret: fetched by one for all, and kept until shortly before it expires.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::{DoorError, file::Fresh};

/// How long before its end a token is replaced; a fifth of its life if that is less.
const MARGIN: Duration = Duration::from_mins(5);
/// Nobody lends for longer, and a wrong number must not overflow.
const LONGEST: Duration = Duration::from_hours(24);
/// How long one is used that does not say.
const UNKNOWN: Duration = Duration::from_mins(5);

/// Something with an end.
#[derive(Debug)]
pub(super) struct Fetched<T> {
    pub(super) value: T,
    /// How long it lives from now on, if that is known.
    pub(super) lives: Option<Duration>,
}

/// What was fetched last.
#[derive(Debug)]
pub(super) struct Cache<T> {
    /// The least age at which one that was refused is thrown away: right after an exchange a new one is no better.
    rest: Duration,
    kept: Mutex<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    token: Option<Token<T>>,
    fetches: u64,
    failed: Option<Failed>,
}

#[derive(Debug)]
struct Token<T> {
    value: T,
    /// Of what it was exchanged for.
    changes: u64,
    since: Instant,
    renew: Instant,
    end: Instant,
}

#[derive(Debug)]
struct Failed {
    error: DoorError,
    changes: u64,
    at: Instant,
}

impl<T: Clone> Cache<T> {
    pub(super) fn new(rest: Duration) -> Self {
        Self { rest, kept: Mutex::new(Kept { token: None, fetches: 0, failed: None }) }
    }

    /// The token for secrets that changed so often, and how often it was fetched until now. Those who come while it
    /// is fetched wait for it.
    pub(super) async fn get<F>(
        &self,
        fresh: Fresh,
        changes: u64,
        fetch: F,
    ) -> Result<(T, u64), DoorError>
    where
        F: Future<Output = Result<Fetched<T>, DoorError>>,
    {
        let mut kept = self.kept.lock().await;
        let fetches = kept.fetches;
        let now = Instant::now();
        if let Some(token) = kept.token.as_ref().filter(|token| token.changes == changes) {
            let refused = fresh == Fresh::Now && now.duration_since(token.since) >= self.rest;
            if now < token.renew && !refused {
                return Ok((token.value.clone(), fetches));
            }
        }
        // An endpoint that just failed is not asked by everybody who waited.
        let usable = |kept: &Kept<T>| {
            let token = kept.token.as_ref().filter(|token| now < token.end);
            token.filter(|_| fresh == Fresh::Lately).map(|token| token.value.clone())
        };
        if let Some(failed) = &kept.failed
            && failed.changes == changes
            && now.duration_since(failed.at) < self.rest
        {
            let error = failed.error.clone();
            return usable(&kept).map(|value| (value, fetches)).ok_or(error);
        }
        match fetch.await {
            Ok(Fetched { value, lives }) => {
                let now = Instant::now();
                let lives = lives.unwrap_or(UNKNOWN).min(LONGEST);
                let token = Token {
                    value: value.clone(),
                    changes,
                    since: now,
                    renew: now + lives.saturating_sub(MARGIN.min(lives / 5)),
                    end: now + lives,
                };
                *kept = Kept { token: Some(token), fetches: fetches + 1, failed: None };
                Ok((value, fetches + 1))
            }
            Err(error) => {
                kept.failed = Some(Failed { error: error.clone(), changes, at: Instant::now() });
                let value = usable(&kept).ok_or_else(|| error.clone())?;
                tracing::warn!(%error, "the token from before is used until it expires");
                Ok((value, fetches))
            }
        }
    }
}
