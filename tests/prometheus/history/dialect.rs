//! Each server is queried in its own dialect, with the same results.

use jiff::Timestamp;
use plimsoll_storage::prometheus::client::PrometheusClient;
use plimsoll_storage::prometheus::history::PrometheusHistory;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, Dialect, MEMORY_METRIC};
use plimsoll_storage::prometheus::transport::WallClock;

use super::collecting_sink::{CollectingSink, hours, last, owners_of};
use super::recording_transport::RecordingTransport;
use crate::prometheus::label_flavors::AGENT;
use crate::prometheus::series_collector::short_limits;
use crate::support::prometheus_server::{PrometheusRelease, PrometheusServer};

#[tokio::test]
async fn victoria_metrics_queries_disable_alignment_of_the_range_start() {
    let (mut history, end) = hours(3);
    let used = |now: Timestamp| Some((now.as_second() - 1_700_000_000) as f64 * 0.5);
    history = AGENT.usage(history, CPU_METRIC, ["shop", "db-0", "app"], used);
    history = AGENT.usage(history, MEMORY_METRIC, ["shop", "db-0", "app"], |_| Some(1e8));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let mut read = Vec::new();
    for dialect in [Dialect::PromQl, Dialect::MetricsQl] {
        let recorder = RecordingTransport::in_front_of(&server.url());
        if dialect == Dialect::MetricsQl {
            recorder.pose_as_victoria_metrics();
        }
        let client = PrometheusClient::new(recorder.clone(), short_limits());
        let now = WallClock::new(move || end.into());
        let storage = PrometheusHistory::new("here", client, last(2), now);
        let vpas = owners_of(&[("db", "apps/StatefulSet/db")]);
        let (mut loading, _) = storage.start_load(&vpas, None, None).await.expect("load started");
        assert_eq!(loading.schema().dialect, dialect);
        let mut sink = CollectingSink::default();
        loading.advance(&mut sink).await.expect("read");
        let mut ranges = 0;
        for query in recorder.take() {
            let is_range = query.path.ends_with("/query_range");
            let says = query.form.contains(&("nocache".to_owned(), "1".to_owned()));
            assert_eq!(says, is_range && dialect == Dialect::MetricsQl, "{query:?}");
            ranges += usize::from(is_range);
        }
        assert!(ranges >= 2, "{ranges}");
        read.push(sink);
    }
    assert!(read[0] == read[1] && !read[0].replicas.is_empty());
}
