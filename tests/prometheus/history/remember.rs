//! A sink that keeps samples and insists on their order, and ways to fill it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::{
    history::{Measurement, Sample, Sink, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_storage::prometheus::client::Limits;
use plimsoll_storage::prometheus::door::Wall;
use plimsoll_storage::prometheus::history::{PrometheusHistory, Report, Settings};

use crate::prometheus::gather::{client, hasty};
use crate::support::clock::wall_now;
use crate::support::prometheus::History;

pub const MINUTE: Duration = Duration::from_mins(1);

/// Samples by container and pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remember {
    pub replicas: BTreeMap<(Key, String), Replica>,
    /// Of which VPAs all has come.
    pub whole: BTreeSet<VpaKey>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    pub cpu: Vec<(Time, f64)>,
    pub memory: Vec<(Time, f64)>,
    /// With request and limit.
    pub kills: Vec<(Time, i64, Option<i64>)>,
    pub covers: Vec<Option<Duration>>,
}

impl Sink for Remember {
    fn snapshot(&mut self, key: Key, _: Snapshot) {
        panic!("a Prometheus has no snapshot of {key}");
    }

    fn sample(&mut self, key: &Key, sample: Sample) {
        let Sample { replica, at, covers, measurement } = sample;
        assert!(!self.whole.contains(&key.vpa), "{key}: a sample comes after the last one");
        let of = self.replicas.entry((key.clone(), (*replica).into())).or_default();
        let last = |points: &[(Time, f64)]| points.last().map(|(at, _)| *at);
        match measurement {
            Measurement::CpuCores(value) => {
                assert!(last(&of.cpu) < Some(at), "CPU comes in order of time");
                of.cpu.push((at, value));
                of.covers.push(covers);
            }
            Measurement::MemoryBytes(value) => {
                let before = last(&of.memory).max(of.kills.last().map(|kill| kill.0));
                assert!(before <= Some(at), "memory and kills come in order of time");
                of.memory.push((at, value));
            }
            Measurement::OutOfMemory { request_bytes, limit_bytes } => {
                let before = last(&of.memory).max(of.kills.last().map(|kill| kill.0));
                assert!(before <= Some(at), "memory and kills come in order of time");
                of.kills.push((at, request_bytes, limit_bytes));
            }
        }
    }

    fn whole(&mut self, vpa: &VpaKey) {
        assert!(self.whole.insert(vpa.clone()), "{vpa} is whole once");
    }

    fn discard(&mut self, vpa: &VpaKey) {
        panic!("nothing of {vpa} was handed on by half");
    }
}

impl Remember {
    /// What came of a pod's container for a VPA in `shop`.
    pub fn of(&self, vpa: &str, container: &str, pod: &str) -> Option<&Replica> {
        let key = Key::new(VpaKey::new("shop", vpa), container);
        self.replicas.get(&(key, pod.to_owned()))
    }

    /// Names of pods for a VPA in `shop`.
    pub fn pods(&self, vpa: &str) -> Vec<&str> {
        let vpa = VpaKey::new("shop", vpa);
        let own = self.replicas.keys().filter(|(key, _)| key.vpa == vpa);
        let mut pods: Vec<_> = own.map(|(_, pod)| pod.as_str()).collect();
        pods.dedup();
        pods
    }
}

/// A full hour in the past, and an empty history of so many hours up to it, by the minute.
pub fn hours(hours: i64) -> (History, Timestamp) {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let step = SignedDuration::from_mins(1);
    (History::new(end - SignedDuration::from_hours(hours), end, step), end)
}

/// So many hours of history.
pub fn last(hours: u64) -> Settings {
    Settings { length: Duration::from_hours(hours), ..Settings::default() }
}

/// VPAs in `shop` and the owners of their pods.
pub fn wanted(vpas: &[(&str, &str)]) -> HashMap<VpaKey, Option<Box<str>>> {
    vpas.iter().map(|(vpa, owner)| (VpaKey::new("shop", *vpa), Some((*owner).into()))).collect()
}

/// The storage, at this moment.
pub fn storage(url: &str, limits: Limits, settings: Settings, now: Timestamp) -> PrometheusHistory {
    PrometheusHistory::new(url, client(url, limits), settings, Wall::new(move || now.into()))
}

/// Everything at once.
pub async fn read(
    url: &str,
    settings: Settings,
    now: Timestamp,
    vpas: &[(&str, &str)],
) -> (Remember, Report) {
    let storage = storage(url, hasty(), settings, now);
    let (mut loading, skipped) = storage.begin(&wanted(vpas), None, None).await.expect("a schema");
    assert_eq!(skipped, []);
    let mut remember = Remember::default();
    loading.advance(&mut remember).await.expect("all of it");
    assert!(loading.is_done() && loading.pending().next().is_none());
    assert!(remember.whole.iter().eq(wanted(vpas).keys().collect::<BTreeSet<_>>()));
    (remember, loading.report().clone())
}

/// Whether two numbers are the same but for the last digits.
pub fn nearly(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}
