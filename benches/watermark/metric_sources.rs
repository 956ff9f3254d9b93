//! Where values come from, and what is known there of who asked: a metrics server behind the API server, or a PrometheusServer.

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

/// The metric that everybody follows, each with labels of its own.
pub const METRIC: &str = "load";
/// Of two pods, between the marks: nothing is scaled here, as nobody would start the pods.
const MIDDLE: f64 = 150.0;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// `external.metrics.k8s.io`.
    External,
    /// A PrometheusServer, by queries of the objects.
    PrometheusServer,
}

/// A source that answers.
#[derive(Debug)]
pub enum RunningSource {
    External(Box<MetricsServer>, Vec<(String, String)>),
    PrometheusServer(Box<PrometheusServer>, usize),
}

/// A line of the query log. Releases differ in what they call its time.
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

/// Another value each time, so that there is something to tell.
fn value(index: usize, tick: u32) -> f64 {
    MIDDLE + (index % 7 * 5) as f64 - f64::from(tick * 3 % 40)
}

/// Starts it. `None` after noting what is missing.
pub async fn serve(bed: &Testbed, cluster: &Cluster, source: Source) -> Option<RunningSource> {
    let objects = cluster.objects();
    match source {
        Source::External => {
            let usage = MetricsServer::serve(bed).await;
            usage.record_external_queries();
            Some(RunningSource::External(Box::new(usage), objects.to_vec()))
        }
        Source::PrometheusServer => {
            let step = SignedDuration::from_secs(15);
            let (now, hour) = (wall_now(), SignedDuration::from_mins(30));
            // A scrape would write the same, and the machine has enough to do.
            let mut history = History::new(now - step * 8, now + hour, step);
            for (index, (_, name)) in objects.iter().enumerate() {
                history = history.series(METRIC, &[("app", name)], move |at| {
                    Some(value(index, (at.as_second() / 15).rem_euclid(1000) as u32))
                });
            }
            let server = PrometheusServer::with_query_log(PrometheusRelease::V3, history).await?;
            Some(RunningSource::PrometheusServer(Box::new(server), objects.len()))
        }
    }
}

impl RunningSource {
    /// Flags by which the controller finds it.
    pub fn flags(&self) -> Vec<String> {
        match self {
            Self::External(..) => Vec::new(),
            // All objects are in a few namespaces, and their series in none.
            Self::PrometheusServer(server, _) => vec![
                format!("--prometheus-address={}", server.url()),
                "--prometheus-unrestricted-namespaces=*".to_owned(),
            ],
        }
    }

    /// Has everybody's value change.
    pub fn set(&self, tick: u32) {
        let Self::External(usage, objects) = self else { return };
        for (index, (namespace, name)) in objects.iter().enumerate() {
            usage.set_external(namespace, METRIC, &[("app", name)], value(index, tick));
        }
    }

    /// How periods were kept since then.
    pub fn periods(&self, start: jiff::Timestamp, period: Duration, count: u32) -> PeriodStats {
        let seconds = |at: jiff::Timestamp| at.as_millisecond() as f64 / 1e3;
        let mut asked = QueryTimes::default();
        let objects = match self {
            Self::External(usage, objects) => {
                for (what, at) in usage.recorded_external_queries() {
                    asked.0.entry(what).or_default().push(seconds(at));
                }
                objects.len()
            }
            Self::PrometheusServer(server, objects) => {
                let own = format!("{METRIC}{{");
                for line in server.query_log().lines() {
                    let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
                    let Some(at) = line.ts.or(line.time) else { continue };
                    if line.params.query.starts_with(&own) {
                        asked.0.entry(line.params.query).or_default().push(seconds(at));
                    }
                }
                *objects
            }
        };
        let times: &mut HashMap<_, Vec<f64>> = &mut asked.0;
        for times in times.values_mut() {
            times.sort_unstable_by(f64::total_cmp);
        }
        asked.periods(objects, seconds(start), period, count)
    }
}
