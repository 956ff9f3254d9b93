//! Owns recommenders side by side on one bed: upstream's and ours, told apart by the name in their user agent.

use std::time::Duration;

use super::bed::Bed;
use super::keeper::State;
use super::not_run::not_run;
use super::ours::Ours;
use super::upstream::{Role, Upstream};
use super::wait;

/// Whose recommender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Upstream's own.
    Upstream,
    /// Ours.
    Ours,
}

/// Both, ready to be started.
#[derive(Debug)]
pub struct Peers {
    bed: Bed,
    upstream: Upstream,
    ours: Ours,
}

/// One that was started.
#[derive(Clone, Debug)]
pub struct Recommender {
    /// Whose.
    pub side: Side,
    /// Its name with the bed's keeper.
    pub name: String,
    /// How its user agent begins.
    pub agent: String,
    /// Where it serves metrics.
    pub port: u16,
}

// === impl Peers ===

impl Peers {
    /// Creates the definitions on a private bed. `None` after noting what is missing.
    pub async fn on(bed: &Bed, wanted: &[Side]) -> Option<Self> {
        if wanted.contains(&Side::Ours)
            && let Some(reason) = Ours::lacks("recommender")
        {
            not_run(reason);
            return None;
        }
        let upstream = Upstream::on(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: Ours::on(bed) })
    }

    /// Starts a recommender under a name of its own.
    pub fn start(&self, side: Side, name: &str, flags: &[&str]) -> Recommender {
        let (agent, port) = match side {
            Side::Upstream => {
                let port = self.upstream.start_as(name, Role::Recommender, flags);
                (format!("{name}/"), port)
            }
            Side::Ours => ("plimsoll-recommender/".to_owned(), self.ours.start(name, flags)),
        };
        Recommender { side, name: name.to_owned(), agent, port }
    }

    /// Panics with the end of its log when a recommender has ended.
    pub fn assert_running(&self, recommender: &Recommender) {
        match recommender.side {
            Side::Upstream => self.upstream.assert_running(&recommender.name),
            Side::Ours => self.ours.assert_running(&recommender.name),
        }
    }

    /// Its process id.
    pub fn id(&self, recommender: &Recommender) -> u32 {
        self.assert_running(recommender);
        match self.bed.keeper().state(&recommender.name) {
            Some(State::Running(id)) => id,
            other => panic!("{} is {other:?}", recommender.name),
        }
    }

    /// Asks a recommender to end, and waits until it has. Upstream's ends at once and saves nothing.
    pub async fn stop(&self, recommender: &Recommender) {
        self.bed.keeper().signal(&recommender.name, "TERM");
        let gone = || async {
            let state = self.bed.keeper().state(&recommender.name);
            matches!(state, Some(State::Exited(_))).then_some(())
        };
        wait::within(Duration::from_mins(1), "the recommender has ended", gone).await;
    }
}
