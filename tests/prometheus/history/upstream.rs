//! Proof that the weighting of upstream asks what upstream asks.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::Grid;
use plimsoll_storage::prometheus::history::{Settings, Weighting};
use plimsoll_storage::prometheus::query::Query;
use plimsoll_storage::prometheus::schema::{CPU, MEMORY};
use plimsoll_storage::prometheus::selector::Matchers;

use super::remember::{hours, last, read};
use crate::prometheus::flavors::CHART;
use crate::prometheus::gather::{Gather, client, hasty};
use crate::prometheus::releases::releases;
use crate::support::prometheus::Prometheus;

const POD: &str = "web-7d5f9c4b6d-x2x4z";

#[tokio::test]
async fn with_the_weighting_of_upstream_each_sample_is_one_that_upstream_reads() {
    let hour = Duration::from_hours(1);
    for release in releases() {
        let (mut history, end) = hours(26);
        let names = ["shop", POD, "app"];
        let used = |now: Timestamp| Some((now.as_second() as f64 % 1e7).powf(1.1));
        history = CHART.usage(history, CPU, names, used);
        let held = |now: Timestamp| Some((now.as_second() % 9973) as f64 * 1e5);
        history = CHART.usage(history, MEMORY, names, held);
        let Some(server) = Prometheus::with_history(release, history).await else { return };
        let weighting = Weighting::Upstream { resolution: hour };
        let settings = Settings { weighting, ..last(24) };
        let vpas = [("web", "apps/Deployment/web")];
        // Upstream's range ends whenever it asks.
        let now = end - jiff::SignedDuration::from_millis(123_456);
        let (remember, _) = read(&server.url(), settings, now, &vpas).await;
        let web = remember.of("web", "app", POD).expect("it is there");
        assert!(web.covers.iter().all(Option::is_none));

        let to = Time::from(now);
        let grid = Grid::new(to.earlier(24 * hour), to, hour).expect("a grid");
        let selector =
            r#"{job="kubernetes-nodes-cadvisor", pod=~".+", container!="POD", container!=""}"#;
        for (query, ours) in [
            (format!("rate({CPU}{selector}[1h])"), &web.cpu),
            (format!("{MEMORY}{selector}"), &web.memory),
        ] {
            let query = Query::of_user(&query, &Matchers::default()).expect("a query");
            let mut gather = Gather::default();
            let asked = client(&server.url(), hasty()).range(&query, grid, &mut gather).await;
            asked.expect("answered");
            let theirs: Vec<_> = gather.whole.into_values().flatten().collect();
            let ours: Vec<_> = ours.iter().map(|(at, value)| (*at, value.to_bits())).collect();
            assert_eq!(ours.len(), 25);
            assert_eq!(ours, theirs, "{query} on {release:?}");
        }
    }
}
