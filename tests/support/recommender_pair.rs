//! Owns recommenders side by side on one bed: upstream's and ours, told apart by the name in their user agent.

use std::time::Duration;

use super::plimsoll_process::PlimsollProcesses;
use super::process_guard::ProcessState;
use super::skipped::report_skipped;
use super::testbed::Testbed;
use super::upstream_process::{Role, UpstreamProcesses};
use super::wait;

/// Whose recommender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Upstream's own.
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

/// One that was started.
#[derive(Clone, Debug)]
pub struct RecommenderProcess {
    /// Whose.
    pub side: Implementation,
    /// Its name with the bed's keeper.
    pub name: String,
    /// How its user agent begins.
    pub user_agent: String,
    /// Where it serves metrics.
    pub port: u16,
}

// === impl Peers ===

impl RecommenderPair {
    /// Creates the definitions on a private bed. `None` after noting what is missing.
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

    /// Starts a recommender under a name of its own.
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

    /// Panics with the end of its log when a recommender has ended.
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

    /// Asks a recommender to end, and waits until it has. Upstream's ends at once and saves nothing.
    pub async fn stop(&self, recommender: &RecommenderProcess) {
        self.bed.process_guard().signal(&recommender.name, "TERM");
        let gone = || async {
            let state = self.bed.process_guard().state(&recommender.name);
            matches!(state, Some(ProcessState::Exited(_))).then_some(())
        };
        wait::within(Duration::from_mins(1), "the recommender has ended", gone).await;
    }
}
