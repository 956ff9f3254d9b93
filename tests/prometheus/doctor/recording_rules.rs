//! Recording rules for usage are reported, and the trial queries are those that the recommender would send with them.

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::schema::{RECORDED_CPU_METRIC, RECORDED_MEMORY_METRIC};

use super::{days, examine, finding, shop};
use crate::prometheus::label_flavors::OPERATOR;
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const PODS: [(&str, &str); 4] =
    [("shop", "web-0"), ("shop", "web-1"), ("shop", "web-2"), ("bank", "ledger-0")];

/// Adds hours of recorded series for some pods.
fn recorded(mut history: History, pods: &[(&str, &str)], hours: i64) -> History {
    let from = wall_now() - SignedDuration::from_hours(hours);
    for (namespace, pod) in pods {
        let labels = [("namespace", *namespace), ("pod", *pod), ("container", "main")];
        for (metric, value) in [(RECORDED_CPU_METRIC, 0.1), (RECORDED_MEMORY_METRIC, 2e8)] {
            let known = move |at: Timestamp| (at >= from).then_some(value);
            history = history.series(metric, &labels, known);
        }
    }
    history
}

#[tokio::test]
async fn recorded_usage_is_reported_and_used_only_if_complete() {
    for (pods, hours, code, level, words, is_read) in [
        (&PODS[..], 24, "recorded", "ok", "cover usage for 20 h", true),
        (&PODS, 2, "recorded_young", "ok", "but not yet for 20 h", false),
        (&PODS[..3], 24, "recorded_part", "warning", "cover 3 of 4 containers", false),
    ] {
        let history = shop(&OPERATOR, days(1, SignedDuration::from_mins(1)));
        let history = recorded(history, pods, hours);
        let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await
        else {
            return;
        };
        let (report, exit) = examine(&server.url(), &["--history-length=20h"]).await;
        let (found, message) = finding(&report, code).expect(code);
        assert!(found == level && message.contains(words), "{message}");
        assert_eq!(exit, Some(i32::from(level == "warning")), "{report:#}");
        let queries = report["queries"].as_array().expect("queries");
        assert_eq!(queries.len(), 2, "{queries:#?}");
        for query in queries {
            let text = query["asked"].as_str().expect("a query");
            assert_eq!(text.contains("plimsoll:"), is_read, "{text}");
            assert!(query["points"].as_u64().is_some_and(|points| points > 3 * 280), "{query}");
        }
    }
}
