//! Who wants to know what a client asks: logs, metrics, reports.

use std::{fmt, time::Duration};

use crate::prometheus::{answer::Summary, failure::Failure};

/// One question to the server.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its path below the server's address.
    pub path: &'a str,
    /// What was asked: `query`, `time`, `start`, `end`, `step`.
    pub form: &'a [(&'a str, String)],
    /// The status of the answer; `None` where nobody answered.
    pub status: Option<u16>,
    /// How long it took, without waiting for a turn.
    pub time: Duration,
    /// What came; of a document that is no query's answer, its size alone.
    pub outcome: Result<&'a Summary, &'a Failure>,
}

/// Is told of each question, after it was answered or failed.
pub trait Watch: fmt::Debug + Send + Sync {
    /// One was asked.
    fn asked(&self, asked: &Asked<'_>);
}
