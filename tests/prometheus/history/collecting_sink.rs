//! A sink that collects samples and asserts their order, and helpers to fill it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::{
    history::{Measurement, Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::prometheus::client::QueryLimits;
use plimsoll_storage::prometheus::history::{HistorySettings, LoadStats, PrometheusHistory};
use plimsoll_storage::prometheus::transport::WallClock;

use crate::prometheus::series_collector::{client, short_limits};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::History;

pub const MINUTE: Duration = Duration::from_mins(1);

/// Samples by container and pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CollectingSink {
    pub replicas: BTreeMap<(ContainerKey, String), PodSamples>,
    /// The VPAs whose history is complete.
    pub whole: BTreeSet<ObjectKey>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSamples {
    pub cpu: Vec<(Time, f64)>,
    pub memory: Vec<(Time, f64)>,
    /// Time, request and limit.
    pub kills: Vec<(Time, i64, Option<i64>)>,
    pub covers: Vec<Option<Duration>>,
}

impl Sink for CollectingSink {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        panic!("a Prometheus has no snapshot of {key}");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let Sample { replica, at, covers, measurement } = sample;
        assert!(!self.whole.contains(&key.vpa), "{key}: sample after completion");
        let of = self.replicas.entry((key.clone(), (*replica).into())).or_default();
        let last = |points: &[(Time, f64)]| points.last().map(|(at, _)| *at);
        match measurement {
            Measurement::CpuCores(value) => {
                assert!(last(&of.cpu) < Some(at), "CPU samples are in order");
                of.cpu.push((at, value));
                of.covers.push(covers);
            }
            Measurement::MemoryBytes(value) => {
                let before = last(&of.memory).max(of.kills.last().map(|kill| kill.0));
                assert!(before <= Some(at), "memory samples and kills are in order");
                of.memory.push((at, value));
            }
            Measurement::OutOfMemory { request_bytes, limit_bytes } => {
                let before = last(&of.memory).max(of.kills.last().map(|kill| kill.0));
                assert!(before <= Some(at), "memory samples and kills are in order");
                of.kills.push((at, request_bytes, limit_bytes));
            }
        }
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        assert!(self.whole.insert(vpa.clone()), "{vpa} is completed twice");
    }
}

impl CollectingSink {
    /// The samples of a pod's container for a VPA in `shop`.
    pub fn samples_of(&self, vpa: &str, container: &str, pod: &str) -> Option<&PodSamples> {
        let key = ContainerKey::new(ObjectKey::new("shop", vpa), container);
        self.replicas.get(&(key, pod.to_owned()))
    }

    /// Names of the pods of a VPA in `shop`.
    pub fn pods(&self, vpa: &str) -> Vec<&str> {
        let vpa = ObjectKey::new("shop", vpa);
        let own = self.replicas.keys().filter(|(key, _)| key.vpa == vpa);
        let mut pods: Vec<_> = own.map(|(_, pod)| pod.as_str()).collect();
        pods.dedup();
        pods
    }
}

/// A full hour in the past, and an empty history of the `hours` before it with one-minute steps.
pub fn hours(hours: i64) -> (History, Timestamp) {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("an hour");
    let step = SignedDuration::from_mins(1);
    (History::new(end - SignedDuration::from_hours(hours), end, step), end)
}

/// Settings for that many hours of history.
pub fn last(hours: u64) -> HistorySettings {
    HistorySettings { length: Duration::from_hours(hours), ..HistorySettings::default() }
}

/// VPAs in `shop` with the owners of their pods.
pub fn owners_of(vpas: &[(&str, &str)]) -> HashMap<ObjectKey, Option<Box<str>>> {
    vpas.iter().map(|(vpa, owner)| (ObjectKey::new("shop", *vpa), Some((*owner).into()))).collect()
}

/// The storage at this time.
pub fn storage(
    url: &str,
    limits: QueryLimits,
    settings: HistorySettings,
    now: Timestamp,
) -> PrometheusHistory {
    PrometheusHistory::new(url, client(url, limits), settings, WallClock::new(move || now.into()))
}

/// Reads all VPAs at once.
pub async fn read(
    url: &str,
    settings: HistorySettings,
    now: Timestamp,
    vpas: &[(&str, &str)],
) -> (CollectingSink, LoadStats) {
    let storage = storage(url, short_limits(), settings, now);
    let (mut loading, skipped) =
        storage.start_load(&owners_of(vpas), None, None).await.expect("schema detected");
    assert_eq!(skipped, []);
    let mut sink = CollectingSink::default();
    loading.advance(&mut sink).await.expect("load succeeds");
    assert!(loading.is_done() && loading.pending().next().is_none());
    assert!(sink.whole.iter().eq(owners_of(vpas).keys().collect::<BTreeSet<_>>()));
    (sink, loading.report.clone())
}

/// Whether two numbers are equal up to rounding.
pub fn nearly(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}
