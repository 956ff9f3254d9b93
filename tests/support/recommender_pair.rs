//! Upstream's recommender and ours on one testbed, distinguished by their user agents.

use std::time::Duration;

use super::plimsoll_process::PlimsollProcesses;
use super::process_guard::ProcessState;
use super::skipped::report_skipped;
use super::testbed::Testbed;
use super::upstream_process::{Role, UpstreamProcesses};
use super::wait;

/// An implementation of the recommender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Upstream's.
    Upstream,
    /// Ours.
    Ours,
}

/// Both, ready to be started.
#[derive(Debug)]
pub struct RecommenderPair {
    bed: Testbed,
    upstream: UpstreamProcesses,
    ours: PlimsollProcesses,
}

/// A recommender that was started.
#[derive(Clone, Debug)]
pub struct RecommenderProcess {
    /// Its implementation.
    pub side: Implementation,
    /// Its name in the process guard.
    pub name: String,
    /// Prefix of its user agent.
    pub user_agent: String,
    /// Its metrics port.
    pub port: u16,
}

// === impl RecommenderPair ===

impl RecommenderPair {
    /// Creates the CRDs on a private testbed. Returns `None` after reporting what is missing.
    pub async fn new(bed: &Testbed, wanted: &[Implementation]) -> Option<Self> {
        if wanted.contains(&Implementation::Ours)
            && let Some(reason) = PlimsollProcesses::missing_role("recommender")
        {
            report_skipped(reason);
            return None;
        }
        let upstream = UpstreamProcesses::new(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: PlimsollProcesses::new(bed) })
    }

    /// Starts a recommender under its own name.
    pub fn start(&self, side: Implementation, name: &str, flags: &[&str]) -> RecommenderProcess {
        let (agent, port) = match side {
            Implementation::Upstream => {
                let port = self.upstream.start_as(name, Role::Recommender, flags);
                (format!("{name}/"), port)
            }
            Implementation::Ours => {
                ("plimsoll-recommender/".to_owned(), self.ours.start(name, flags))
            }
        };
        RecommenderProcess { side, name: name.to_owned(), user_agent: agent, port }
    }

    /// Panics with the log tail if a recommender has ended.
    pub fn assert_running(&self, recommender: &RecommenderProcess) {
        match recommender.side {
            Implementation::Upstream => self.upstream.assert_running(&recommender.name),
            Implementation::Ours => self.ours.assert_running(&recommender.name),
        }
    }

    /// Its process id.
    pub fn process_id(&self, recommender: &RecommenderProcess) -> u32 {
        self.assert_running(recommender);
        match self.bed.process_guard().state(&recommender.name) {
            Some(ProcessState::Running(id)) => id,
            other => panic!("{} is {other:?}", recommender.name),
        }
    }

    /// Sends SIGTERM to a recommender and waits until it has ended. Upstream's ends immediately and saves nothing.
    pub async fn stop(&self, recommender: &RecommenderProcess) {
        self.bed.process_guard().signal(&recommender.name, "TERM");
        let gone = || async {
            let state = self.bed.process_guard().state(&recommender.name);
            matches!(state, Some(ProcessState::Exited(_))).then_some(())
        };
        wait::within(Duration::from_mins(1), "the recommender has ended", gone).await;
    }
}
