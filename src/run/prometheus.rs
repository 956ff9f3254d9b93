//! A Prometheus that history and usage are read from: how it is reached, what is known of its series, and how much may
//! be asked of it.

use std::{sync::Arc, time::Duration};

use plimsoll_storage::prometheus::{
    client::{Client, Limits, Watch},
    detect::Known,
    door::{Door, DoorConfig, DoorError, Wall},
    history::{PodLabels, PrometheusHistory, Settings, Weighting},
};

use crate::clock::Clock;
use plimsoll_core::recommender::weighting::HistoryWeighting;

/// What a point of a history takes while it waits for the rest of its slice: time and value, and as much again while
/// the list of them grows.
const POINT: u64 = 32;

/// A step of CPU where nothing else was set: bursts of a minute are seen.
const CPU_STEP: Duration = Duration::from_mins(1);
/// The window of whose memory the largest is taken.
const MEMORY_STEP: Duration = Duration::from_mins(5);
/// Upstream's step.
const UPSTREAM_STEP: Duration = Duration::from_hours(1);

/// A Prometheus, and what its series are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusConfig {
    /// Where it is, and how to be let in.
    pub door: DoorConfig,
    /// What was set about its series, and what goes into every query. The rest is found out.
    pub known: Known,
    /// Where labels of pods are, if they are to tell whose pods there were.
    pub labels: Option<PodLabels>,
    /// How far to look back.
    pub length: Duration,
    /// The step of range queries, where it was set.
    pub resolution: Option<Duration>,
    /// How long a query may take.
    pub query_timeout: Duration,
    /// How many queries may be under way at once.
    pub queries: usize,
    /// How many bytes of history may wait for the rest of their slice.
    pub budget: u64,
    /// Whether checkpoints are written beside, and stand in while it is away.
    pub has_fallback: bool,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            door: DoorConfig::default(),
            known: Known::default(),
            labels: None,
            length: Duration::from_hours(8 * 24),
            resolution: None,
            query_timeout: Duration::from_mins(5),
            queries: 2,
            budget: 24 << 20,
            has_fallback: false,
        }
    }
}

impl PrometheusConfig {
    /// Its history. Nothing is asked yet.
    pub fn history(
        &self,
        weighting: HistoryWeighting,
        clock: &Clock,
        watch: Arc<dyn Watch>,
    ) -> Result<PrometheusHistory, DoorError> {
        let own = clock.clone();
        let wall = Wall::new(move || own.now());
        let door = Door::new(self.door.clone(), wall.clone())?;
        let place = door.address().to_owned();
        // Whoever asks tries again by itself, and says so meanwhile.
        let limits = Limits {
            in_flight: self.queries,
            timeout: self.query_timeout,
            attempts: 3,
            ..Limits::default()
        };
        let client = Client::new(Arc::new(door), limits).watched_by(watch);
        let settings = Settings {
            known: self.known.clone(),
            labels: self.labels.clone(),
            length: self.length,
            weighting: self.weighting(weighting),
            // One slice more than may be under way: its turn comes while another one is handed on.
            budget: self.budget / POINT / (self.queries as u64 + 1),
        };
        Ok(PrometheusHistory::new(place, client, settings, wall))
    }

    fn weighting(&self, weighting: HistoryWeighting) -> Weighting {
        match weighting {
            HistoryWeighting::Upstream => {
                Weighting::Upstream { resolution: self.resolution.unwrap_or(UPSTREAM_STEP) }
            }
            HistoryWeighting::Duration => {
                let cpu = self.resolution.unwrap_or(CPU_STEP);
                Weighting::Duration { cpu, memory: cpu.max(MEMORY_STEP) }
            }
        }
    }
}
