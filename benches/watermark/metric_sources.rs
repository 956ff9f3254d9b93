//! The metric sources and their request logs: a metrics server behind the API server, or a Prometheus.

use std::{collections::HashMap, time::Duration};

use clap::ValueEnum;
use jiff::SignedDuration;
use serde::Deserialize;

use super::{
    cluster::Cluster,
    poll_periods::{PeriodStats, QueryTimes},
    support::{
        Testbed,
        clock::wall_now,
        metrics_server::MetricsServer,
        prometheus_server::{History, PrometheusRelease, PrometheusServer},
    },
};

/// The metric of all objects, each with its own labels.
pub const METRIC: &str = "load";
/// The sum for two pods, between the watermarks: nothing is scaled, because no controller would start pods.
const MIDDLE: f64 = 150.0;

/// The kind of a metric source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// `external.metrics.k8s.io`.
    External,
    /// A Prometheus, with the queries of the objects.
    Prometheus,
    /// `external.metrics.k8s.io`, with values that make half of the objects scale in each period.
    Busy,
}

/// A running source.
#[derive(Debug)]
pub enum RunningSource {
    /// The values of the objects change as given.
    External(Box<MetricsServer>, Vec<(String, String)>, fn(usize, u32) -> f64),
    Prometheus(Box<PrometheusServer>, usize),
}

/// A line of the query log. Releases use different names for the time.
#[derive(Deserialize)]
struct Line {
    params: Parameters,
    ts: Option<jiff::Timestamp>,
    time: Option<jiff::Timestamp>,
}

#[derive(Deserialize)]
struct Parameters {
    query: String,
}

/// The query of an object.
pub fn query(name: &str) -> String {
    format!("{METRIC}{{app=\"{name}\"}}")
}

/// A different value each time, so that there is something to report.
fn value(index: usize, tick: u32) -> f64 {
    MIDDLE + (index % 7 * 5) as f64 - f64::from(tick * 3 % 40)
}

/// Above or below both watermarks, the other for half of the objects each time; at first between them.
fn busy_value(index: usize, tick: u32) -> f64 {
    // Two ticks high, two low; odd objects one tick earlier.
    let phase = (tick as usize + index % 2) % 4;
    let is_high = phase < 2;
    if tick == 0 {
        75.0
    } else if is_high {
        150.0
    } else {
        30.0
    }
}

/// Starts a source. Returns `None` after reporting what is missing.
pub async fn serve(bed: &Testbed, cluster: &Cluster, source: Source) -> Option<RunningSource> {
    let objects = cluster.objects();
    match source {
        Source::External | Source::Busy => {
            let usage = MetricsServer::serve(bed).await;
            usage.record_external_queries();
            let value: fn(usize, u32) -> f64 =
                if source == Source::Busy { busy_value } else { value };
            Some(RunningSource::External(Box::new(usage), objects.to_vec(), value))
        }
        Source::Prometheus => {
            let step = SignedDuration::from_secs(15);
            let (now, hour) = (wall_now(), SignedDuration::from_mins(30));
            // A scrape would store the same values at a higher cost.
            let mut history = History::new(now - step * 8, now + hour, step);
            for (index, (_, name)) in objects.iter().enumerate() {
                history = history.series(METRIC, &[("app", name)], move |at| {
                    Some(value(index, (at.as_second() / 15).rem_euclid(1000) as u32))
                });
            }
            let server = PrometheusServer::with_query_log(PrometheusRelease::V3, history).await?;
            Some(RunningSource::Prometheus(Box::new(server), objects.len()))
        }
    }
}

impl RunningSource {
    /// The controller's flags for this source.
    pub fn flags(&self) -> Vec<String> {
        match self {
            Self::External(..) => Vec::new(),
            // Objects are in several namespaces, and their series have none.
            Self::Prometheus(server, _) => vec![
                format!("--prometheus-address={}", server.url()),
                "--prometheus-unrestricted-namespaces=*".to_owned(),
            ],
        }
    }

    /// Changes the values of all objects.
    pub fn set(&self, tick: u32) {
        let Self::External(usage, objects, value) = self else { return };
        for (index, (namespace, name)) in objects.iter().enumerate() {
            usage.set_external(namespace, METRIC, &[("app", name)], value(index, tick));
        }
    }

    /// When the metric of each object was read, by namespace and name, in order.
    pub fn reads(&self) -> HashMap<(String, String), Vec<jiff::Timestamp>> {
        let Self::External(usage, ..) = self else { return HashMap::new() };
        let mut reads: HashMap<_, Vec<_>> = HashMap::new();
        for (query, at) in usage.recorded_external_queries() {
            let query = query.replace("%3D", "=");
            let between = |start, end| query.split_once(start)?.1.split(end).next();
            if let (Some(namespace), Some(name)) =
                (between("/namespaces/", '/'), between("app=", '&'))
            {
                reads.entry((namespace.to_owned(), name.to_owned())).or_default().push(at);
            }
        }
        for times in reads.values_mut() {
            times.sort_unstable();
        }
        reads
    }

    /// The statistics of the periods since `start`.
    pub fn periods(&self, start: jiff::Timestamp, period: Duration, count: u32) -> PeriodStats {
        let seconds = |at: jiff::Timestamp| at.as_millisecond() as f64 / 1e3;
        let mut times_by_query = QueryTimes::default();
        let objects = match self {
            Self::External(usage, objects, _) => {
                for (query, at) in usage.recorded_external_queries() {
                    times_by_query.0.entry(query).or_default().push(seconds(at));
                }
                objects.len()
            }
            Self::Prometheus(server, objects) => {
                let own = format!("{METRIC}{{");
                for line in server.query_log().lines() {
                    let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
                    let Some(at) = line.ts.or(line.time) else { continue };
                    if line.params.query.starts_with(&own) {
                        times_by_query.0.entry(line.params.query).or_default().push(seconds(at));
                    }
                }
                *objects
            }
        };
        let times: &mut HashMap<_, Vec<f64>> = &mut times_by_query.0;
        for times in times.values_mut() {
            times.sort_unstable_by(f64::total_cmp);
        }
        times_by_query.periods(objects, seconds(start), period, count)
    }
}
