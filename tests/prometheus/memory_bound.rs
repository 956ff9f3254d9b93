//! Memory does not grow with the size of a response.

use std::fmt::Write as _;
use std::iter;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::QueryRange;
use plimsoll_storage::prometheus::decode::{Interest, Labels, ResponseKind, SeriesVisitor};
use plimsoll_storage::prometheus::selector::Selector;
use tokio::runtime::Builder;

use super::series_collector::{client, decode, short_limits};
use crate::support::clock::wall_now;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

/// Buffers of the connection and the decompression, and one chunk of the response.
const MEMORY: u64 = 1 << 20;

#[derive(Default)]
struct SumVisitor {
    series: u64,
    sum: f64,
}

impl SeriesVisitor for SumVisitor {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        self.series += u64::from(labels.get("pod").is_some());
        Interest::Points
    }

    fn point(&mut self, _: Time, value: f64) {
        self.sum += value;
    }
}

#[test]
fn a_response_of_100_megabytes_is_read_in_a_tenth_of_a_megabyte() {
    const SERIES: u64 = 250;
    const POINTS: u64 = 11_000;
    let mut series = String::new();
    for point in 0..POINTS {
        let comma = if point == 0 { "" } else { "," };
        let _ = write!(series, "{comma}[{},\"0.1234567890123456\"]", 1_700_000_000 + 60 * point);
    }
    let mut sum = SumVisitor::default();
    let mut bytes = 0;
    let counted = allocation_counter::measure(|| {
        let of_series = |number| {
            let labels = r#"{"metric":{"namespace":"web","pod":"web-7d5f9c4b6d-x2x4z"},"values":["#;
            [if number == 0 { "" } else { "," }, labels, &series, "]}"]
        };
        let texts = iter::once(r#"{"status":"success","data":{"resultType":"matrix","result":["#)
            .chain((0..SERIES).flat_map(of_series))
            .chain(["]}}"]);
        let pieces = texts.flat_map(|text| text.as_bytes().chunks(16 << 10));
        let summary = decode(pieces, ResponseKind::QueryResult, &mut sum).expect("complete");
        assert_eq!((summary.series, summary.points), (SERIES, SERIES * POINTS));
        bytes = summary.bytes;
    });
    assert!(bytes > 90_000_000, "{bytes}");
    assert_eq!(sum.series, SERIES);
    assert!(counted.bytes_max < MEMORY / 8, "peak of {} bytes", counted.bytes_max);
}

#[test]
fn a_list_of_50000_series_is_read_in_a_tenth_of_a_megabyte() {
    const SERIES: u64 = 50_000;
    let mut sum = SumVisitor::default();
    let mut bytes = 0;
    let counted = allocation_counter::measure(|| {
        let of_series = |number| {
            [
                if number == 0 { "" } else { "," },
                r#"{"__name__":"kube_pod_owner","namespace":"shop","owner_kind":"Job","#,
                r#""owner_name":"tick-28000000","pod":"tick-28000000-x2x4z","uid":"0123456789"}"#,
            ]
        };
        let texts = iter::once(r#"{"status":"success","data":["#)
            .chain((0..SERIES).flat_map(of_series))
            .chain(["]}"]);
        let pieces = texts.map(str::as_bytes);
        let summary = decode(pieces, ResponseKind::SeriesList, &mut sum).expect("complete");
        assert_eq!((summary.series, summary.points), (SERIES, 0));
        bytes = summary.bytes;
    });
    assert!(bytes > 7_000_000, "{bytes}");
    assert_eq!(sum.series, SERIES);
    assert!(counted.bytes_max < MEMORY / 8, "peak of {} bytes", counted.bytes_max);
}

#[test]
fn a_response_of_a_real_server_is_read_in_less_than_a_megabyte() {
    // Allocations are counted per thread, so all reads run on this one.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let end =
        Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("valid timestamp");
    let start = end - SignedDuration::from_hours(7 * 24);
    let mut history = History::new(start, end, SignedDuration::from_mins(1));
    for pod in 0..60_i64 {
        let value = move |now: Timestamp| Some(((now.as_second() * (pod + 7)) % 9973) as f64 / 7.0);
        history = history.series("x", &[("pod", &format!("web-{pod}"))], value);
    }
    let server = runtime.block_on(PrometheusServer::with_history(PrometheusRelease::V3, history));
    let Some(server) = server else { return };
    let client = client(&server.url(), short_limits());
    let query = Selector::metric("x").into();
    let grid = QueryRange::new(start.into(), end.into(), Duration::from_mins(1)).expect("a grid");
    let mut read = None;
    let counted = allocation_counter::measure(|| {
        let mut sum = SumVisitor::default();
        let stats =
            runtime.block_on(client.range(&query, grid, &mut sum)).expect("query succeeded");
        read = Some((stats, sum));
    });
    let (stats, sum) = read.expect("measured");
    assert_eq!((sum.series, stats.points), (60, 60 * 10_081));
    assert!(stats.bytes > 15_000_000, "{stats:?}");
    assert!(sum.sum > 0.0);
    assert!(counted.bytes_max < MEMORY, "peak of {} bytes", counted.bytes_max);
}
