//! Ours: what a recommender has before it reads history, and how it reads it.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use plimsoll::{clock::Clock, run::prometheus::PrometheusConfig};
use plimsoll_core::{
    history::{Run, Sample, Sink, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_core::{
    recommender::{self, Bootstrap, Directives, Fleet, HistoryState},
    types::compat::Compat,
};
use plimsoll_storage::prometheus::{
    client::{Asked, Watch},
    door::{Door, DoorConfig, Wall},
    history::PrometheusHistory,
};
use serde::{Deserialize, Serialize};

use super::side::{Figures, Task};

/// A recommender with its VPAs, and the way to the server.
#[derive(Debug)]
pub struct Recommender {
    fleet: Fleet,
    history: PrometheusHistory,
    asked: Arc<Journal>,
    now: Time,
}

/// A request as it was sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub path: String,
    pub form: Vec<(String, String)>,
}

/// What was asked, where somebody wants to know.
#[derive(Debug)]
struct Journal(Option<Mutex<Vec<Request>>>);

/// Takes samples into histories, and histories into the fleet, as the role does.
struct Histories<'a> {
    fleet: &'a mut Fleet,
    bootstrap: Bootstrap,
    now: Time,
}

// === impl Recommender ===

impl Recommender {
    /// Everything that is there before the first question about history.
    pub async fn set_up(task: &Task) -> Self {
        let now = Time::from_secs(task.end);
        let mut fleet = Fleet::new(recommender::Settings::default(), Compat::Plimsoll);
        for (key, owner) in task.mix.vpas() {
            fleet.track(&key, Directives::default(), now);
            fleet.set_owner(&key, &owner);
        }
        let asked = Arc::new(Journal(task.records.then(Mutex::default)));
        let config = PrometheusConfig {
            door: door_config(task),
            length: Duration::from_hours(u64::from(task.hours)),
            queries: task.queries,
            budget: task.budget,
            ..PrometheusConfig::default()
        };
        let (weighting, clock) = (fleet.settings().history_weighting, Clock::stepped(now));
        let history = config.history(weighting, &clock, asked.clone()).expect("an address");
        // A connection is there too.
        let path = "/api/v1/status/buildinfo";
        let known = history.client().document::<serde_json::Value>(path, &[]).await;
        known.expect("the server answers");
        asked.take();
        Self { fleet, history, asked, now }
    }

    /// Reads all histories.
    pub async fn load(&mut self, task: &Task) -> Figures {
        let wanted = self.fleet.waiting().map(|(key, owner)| (key.clone(), owner.map(Box::from)));
        let wanted: HashMap<_, _> = wanted.collect();
        let (mut loading, skipped) =
            self.history.begin(&wanted, None, None).await.expect("its series are found");
        assert!(skipped.is_empty(), "{skipped:?}");
        drop(wanted);
        let bootstrap = Bootstrap::new(self.fleet.settings(), self.now);
        let (fleet, now) = (&mut self.fleet, self.now);
        let mut histories = Histories { fleet, bootstrap, now };
        loading.advance(&mut histories).await.expect("all of it is read");
        let report = loading.report().clone();
        assert_eq!(report.halvings + report.retries, 0, "{report:?}");
        if task.records {
            let text = serde_json::to_string(&self.asked.take()).expect("plain data");
            std::fs::write(&task.requests, text).expect("the folder is writable");
        }
        let is_loaded =
            |watched: &recommender::fleet::Watched| watched.state() == HistoryState::Loaded;
        assert!(self.fleet.watched().all(is_loaded), "a history was left out");
        Figures {
            requests: report.queries,
            points: report.points,
            bytes: report.bytes,
            histories: self.fleet.containers() as u64,
            ..Figures::default()
        }
    }

    /// What stays of it when everything has been read.
    pub fn into_state(self) -> Fleet {
        self.fleet
    }
}

/// The way to the server.
pub fn door(task: &Task) -> Door {
    let now = Time::from_secs(task.end);
    Door::new(door_config(task), Wall::new(move || now)).expect("an address")
}

fn door_config(task: &Task) -> DoorConfig {
    DoorConfig { address: task.url.clone(), ..DoorConfig::default() }
}

// === impl Journal ===

impl Journal {
    fn take(&self) -> Vec<Request> {
        let Some(requests) = &self.0 else { return Vec::new() };
        mem::take(&mut requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch for Journal {
    fn asked(&self, asked: &Asked<'_>) {
        let Some(requests) = &self.0 else { return };
        let form = asked.form.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let request = Request { path: asked.path.to_owned(), form: form.collect() };
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }
}

// === impl Histories ===

impl Sink for Histories<'_> {
    fn snapshot(&mut self, key: Key, _: Snapshot) {
        unreachable!("a server of series has none of {key}");
    }

    fn sample(&mut self, key: &Key, sample: Sample) {
        let fleet = &*self.fleet;
        self.bootstrap.take(key, &sample, |vpa| fleet.begin_folding(vpa));
    }

    fn run(&mut self, key: &Key, run: Run<'_>) {
        let fleet = &*self.fleet;
        self.bootstrap.take_run(key, run, |vpa| fleet.begin_folding(vpa));
    }

    fn discard(&mut self, vpa: &VpaKey) {
        self.bootstrap.discard(vpa);
    }

    fn whole(&mut self, vpa: &VpaKey) {
        if let Some(folding) = self.bootstrap.release(vpa) {
            self.fleet.take_folded(vpa, folding, self.now);
        }
        if let Some(sighting) = self.fleet.sighting(vpa) {
            self.fleet.loaded(vpa, sighting);
        }
    }
}
