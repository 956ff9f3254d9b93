//! One request to the API server: its time limit, its place in the counts, and what its failure says.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::writes::{Answer, WriteKind, WriteStats};

/// A request that did not do what it was for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// The server said no.
    #[error("{code}: {why}")]
    Refused {
        /// Its status code.
        code: u16,
        /// Its words.
        why: String,
    },
    /// There was no answer, or none that can be read.
    #[error("{0}")]
    Unanswered(String),
}

impl Failed {
    /// The server's status code, if it said no.
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Unanswered(_) => None,
        }
    }

    /// Whether the same may work a moment later, by the rules of upstream's library.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 429 | 500 | 503 | 504),
            Self::Unanswered(_) => true,
        }
    }
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Refused { code: status.code, why: status.message },
            error => Self::Unanswered(error.to_string()),
        }
    }
}

/// Reads, and waits no longer than that.
pub(super) async fn read<T>(
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failed> {
    match tokio::time::timeout(limit, request).await {
        Ok(answer) => answer.map_err(Failed::from),
        Err(_) => Err(Failed::Unanswered(format!("no answer within {limit:?}"))),
    }
}

/// Writes, counts it, and waits no longer than that.
pub(super) async fn write<T>(
    stats: &WriteStats,
    kind: WriteKind,
    limit: Duration,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failed> {
    let sent = Instant::now();
    let answer = read(limit, request).await;
    let outcome = match &answer {
        Ok(_) => Answer::Code(200),
        Err(failed) => failed.code().map_or(Answer::None, Answer::Code),
    };
    stats.count(kind, outcome, sent.elapsed());
    answer
}
