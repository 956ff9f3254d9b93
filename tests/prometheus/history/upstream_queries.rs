//! With upstream's weighting, the queries are upstream's.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::QueryRange;
use plimsoll_storage::prometheus::history::{HistorySettings, Weighting};
use plimsoll_storage::prometheus::promql::Query;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use plimsoll_storage::prometheus::selector::LabelMatchers;

use super::collecting_sink::{hours, last, read};
use crate::prometheus::label_flavors::CHART;
use crate::prometheus::releases::releases;
use crate::prometheus::series_collector::{SeriesCollector, client, short_limits};
use crate::support::prometheus_server::PrometheusServer;

const POD: &str = "web-7d5f9c4b6d-x2x4z";

#[tokio::test]
async fn with_upstreams_weighting_each_sample_is_one_that_upstream_reads() {
    let hour = Duration::from_hours(1);
    for release in releases() {
        let (mut history, end) = hours(26);
        let names = ["shop", POD, "app"];
        let used = |now: Timestamp| Some((now.as_second() as f64 % 1e7).powf(1.1));
        history = CHART.usage(history, CPU_METRIC, names, used);
        let memory = |now: Timestamp| Some((now.as_second() % 9973) as f64 * 1e5);
        history = CHART.usage(history, MEMORY_METRIC, names, memory);
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let weighting = Weighting::Upstream { resolution: hour };
        let settings = HistorySettings { weighting, ..last(24) };
        let vpas = [("web", "apps/Deployment/web")];
        // Upstream's range ends at the moment of the query.
        let now = end - jiff::SignedDuration::from_millis(123_456);
        let (sink, _) = read(&server.url(), settings, now, &vpas).await;
        let web = sink.samples_of("web", "app", POD).expect("exists");
        assert!(web.covers.iter().all(Option::is_none));

        let to = Time::from(now);
        let grid = QueryRange::new(to.earlier(24 * hour), to, hour).expect("a grid");
        let selector =
            r#"{job="kubernetes-nodes-cadvisor", pod=~".+", container!="POD", container!=""}"#;
        for (query, ours) in [
            (format!("rate({CPU_METRIC}{selector}[1h])"), &web.cpu),
            (format!("{MEMORY_METRIC}{selector}"), &web.memory),
        ] {
            let query = Query::from_user(&query, &LabelMatchers::default()).expect("a query");
            let mut collector = SeriesCollector::default();
            let result =
                client(&server.url(), short_limits()).range(&query, grid, &mut collector).await;
            result.expect("query succeeded");
            let theirs: Vec<_> = collector.complete.into_values().flatten().collect();
            let ours: Vec<_> = ours.iter().map(|(at, value)| (*at, value.to_bits())).collect();
            assert_eq!(ours.len(), 25);
            assert_eq!(ours, theirs, "{query} on {release:?}");
        }
    }
}
