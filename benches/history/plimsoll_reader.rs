//! Plimsoll: the state of a recommender before it reads history, and the load of histories.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use plimsoll::{cluster::clock::Clock, controllers::runtime::prometheus::PrometheusConfig};
use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_core::{
    recommender::{self, HistoryBootstrap, HistoryState, VpaRegistry, VpaSettings},
    types::compat::Compat,
};
use plimsoll_storage::prometheus::{
    client::{CompletedQuery, QueryObserver},
    history::PrometheusHistory,
    transport::{HttpTransport, TransportConfig, WallClock},
};
use serde::{Deserialize, Serialize};

use super::reader_process::{Figures, Task};

/// A recommender with its VPAs, and its connection to the server.
#[derive(Debug)]
pub struct Recommender {
    fleet: VpaRegistry,
    history: PrometheusHistory,
    requests: Arc<RequestLog>,
    now: Time,
}

/// A request as it was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub path: String,
    pub form: Vec<(String, String)>,
}

/// A log of the requests, if enabled.
#[derive(Debug)]
struct RequestLog(Option<Mutex<Vec<Request>>>);

/// Receives samples and stores histories in the registry, like the recommender.
struct HistorySink<'a> {
    fleet: &'a mut VpaRegistry,
    bootstrap: HistoryBootstrap,
    now: Time,
}

// === impl Recommender ===

impl Recommender {
    /// Prepares everything that exists before history is read.
    pub async fn set_up(task: &Task) -> Self {
        let now = Time::from_secs(task.end);
        let mut fleet = VpaRegistry::new(recommender::Settings::default(), Compat::Plimsoll);
        for (key, owner) in task.mix.vpas() {
            fleet.track(&key, VpaSettings::default(), now);
            fleet.set_owner(&key, &owner);
        }
        let requests = Arc::new(RequestLog(task.records.then(Mutex::default)));
        let config = PrometheusConfig {
            transport: transport_config(task),
            history_length: Duration::from_hours(u64::from(task.hours)),
            max_concurrent_queries: task.queries,
            buffer_bytes: task.budget,
            ..super::default_config()
        };
        let (weighting, clock) = (fleet.settings.history_weighting, Clock::fake(now));
        let history = config.open_history(weighting, &clock, requests.clone()).expect("an address");
        // Also establishes a connection.
        let path = "/api/v1/status/buildinfo";
        let known = history.client.get_data::<serde_json::Value>(path, &[]).await;
        known.expect("the server answers");
        requests.take();
        Self { fleet, history, requests, now }
    }

    /// Reads all histories.
    pub async fn load(&mut self, task: &Task) -> Figures {
        let wanted = self
            .fleet
            .waiting_for_history()
            .map(|(key, owner)| (key.clone(), owner.map(Box::from)));
        let wanted: HashMap<_, _> = wanted.collect();
        let (mut loading, skipped) =
            self.history.start_load(&wanted, None, None).await.expect("its series are found");
        assert!(skipped.is_empty(), "{skipped:?}");
        drop(wanted);
        let bootstrap = HistoryBootstrap::new(&self.fleet.settings, self.now);
        let (fleet, now) = (&mut self.fleet, self.now);
        let mut histories = HistorySink { fleet, bootstrap, now };
        loading.advance(&mut histories).await.expect("all of it is read");
        let report = loading.report.reads.clone();
        assert_eq!(report.halvings + report.retries, 0, "{report:?}");
        if task.records {
            let text = serde_json::to_string(&self.requests.take()).expect("plain data");
            std::fs::write(&task.requests, text).expect("the folder is writable");
        }
        let is_loaded =
            |watched: &recommender::registry::VpaState| watched.state == HistoryState::Loaded;
        assert!(self.fleet.states().all(is_loaded), "a history was left out");
        Figures {
            requests: report.queries,
            points: report.points,
            bytes: report.bytes,
            histories: self.fleet.containers() as u64,
            ..Figures::default()
        }
    }

    /// The state that remains after everything has been read.
    pub fn into_state(self) -> VpaRegistry {
        self.fleet
    }
}

/// The HTTP transport to the server.
pub fn transport(task: &Task) -> HttpTransport {
    let now = Time::from_secs(task.end);
    HttpTransport::new(transport_config(task), WallClock::new(move || now)).expect("an address")
}

fn transport_config(task: &Task) -> TransportConfig {
    TransportConfig { address: task.url.clone(), ..TransportConfig::default() }
}

// === impl RequestLog ===

impl RequestLog {
    fn take(&self) -> Vec<Request> {
        let Some(requests) = &self.0 else { return Vec::new() };
        mem::take(&mut requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl QueryObserver for RequestLog {
    fn on_query(&self, query: &CompletedQuery<'_>) {
        let Some(requests) = &self.0 else { return };
        let form = query.parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let request = Request { path: query.path.to_owned(), form: form.collect() };
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

// === impl HistorySink ===

impl Sink for HistorySink<'_> {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        unreachable!("a server of series has none of {key}");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let fleet = &*self.fleet;
        self.bootstrap.add_sample(key, &sample, |vpa| fleet.start_history(vpa));
    }

    fn batch(&mut self, key: &ContainerKey, run: SampleBatch<'_>) {
        let fleet = &*self.fleet;
        self.bootstrap.add_batch(key, run, |vpa| fleet.start_history(vpa));
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        if let Some(folding) = self.bootstrap.take_builder(vpa) {
            self.fleet.merge_history(vpa, folding, self.now);
        }
        if let Some(sighting) = self.fleet.load_generation(vpa) {
            self.fleet.mark_loaded(vpa, sighting);
        }
    }
}
