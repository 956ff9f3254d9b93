//! A Prometheus that history and usage are read from: how it is reached, what is known of its series, and how much may
//! be asked of it.

use std::{sync::Arc, time::Duration};

use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits, QueryObserver},
    detect::SchemaOverrides,
    history::{HistorySettings, PodLabelQuery, PrometheusHistory, Weighting},
    transport::{HttpTransport, TransportConfig, TransportError, WallClock},
};

use crate::cluster::clock::Clock;
use plimsoll_core::recommender::weighting::HistoryWeighting;

/// What a point of a history takes while it waits for the rest of its slice: time and value, and as much again while
/// the list of them grows.
const POINT_BYTES: u64 = 32;

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
    pub transport: TransportConfig,
    /// What was set about its series, and what goes into every query. The rest is found out.
    pub series_options: SchemaOverrides,
    /// Where labels of pods are, if they are to tell whose pods there were.
    pub pod_labels: Option<PodLabelQuery>,
    /// How far to look back.
    pub history_length: Duration,
    /// The step of range queries, where it was set.
    pub resolution: Option<Duration>,
    /// How long a query may take.
    pub query_timeout: Duration,
    /// How many queries may be under way at once.
    pub max_concurrent_queries: usize,
    /// How many bytes of history may wait for the rest of their slice.
    pub buffer_bytes: u64,
    /// Whether checkpoints are written beside, and stand in while it is away.
    pub has_fallback: bool,
}

impl Default for PrometheusConfig {
    fn default() -> Self {
        Self {
            transport: TransportConfig::default(),
            series_options: SchemaOverrides::default(),
            pod_labels: None,
            history_length: Duration::from_hours(8 * 24),
            resolution: None,
            query_timeout: Duration::from_mins(5),
            max_concurrent_queries: 2,
            buffer_bytes: 24 << 20,
            has_fallback: false,
        }
    }
}

impl PrometheusConfig {
    /// Its history. Nothing is asked yet.
    pub fn open_history(
        &self,
        weighting: HistoryWeighting,
        clock: &Clock,
        watch: Arc<dyn QueryObserver>,
    ) -> Result<PrometheusHistory, TransportError> {
        let own = clock.clone();
        let wall = WallClock::new(move || own.now());
        let door = HttpTransport::new(self.transport.clone(), wall.clone())?;
        let place = door.address().to_owned();
        // Whoever asks tries again by itself, and says so meanwhile.
        let limits = QueryLimits {
            max_in_flight: self.max_concurrent_queries,
            timeout: self.query_timeout,
            max_attempts: 3,
            ..QueryLimits::default()
        };
        let client = PrometheusClient::new(Arc::new(door), limits).with_observer(watch);
        let settings = HistorySettings {
            overrides: self.series_options.clone(),
            pod_labels: self.pod_labels.clone(),
            length: self.history_length,
            weighting: self.weighting(weighting),
            // One slice more than may be under way: its turn comes while another one is handed on.
            point_budget: self.buffer_bytes
                / POINT_BYTES
                / (self.max_concurrent_queries as u64 + 1),
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
