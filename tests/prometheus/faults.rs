//! Proof that each fault on the way to a server is one clear line, counts for nothing, and is over when it is over.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_storage::prometheus::client::{Client, Grid, Limits, Tally};
use plimsoll_storage::prometheus::query::Query;
use plimsoll_storage::prometheus::selector::Selector;

use super::gather::{Gather, client, hasty};
use super::way::{Fault, Way};
use crate::support::clock::wall_now;
use crate::support::prometheus::{History, Prometheus, Release};

/// What no answer takes that is fine. Time steps over it once a fault is under way.
const LIMIT: Duration = Duration::from_hours(1);
const LOGIN: &str = "<!doctype html><html><head><title>Sign in\n to Acme</title></head></html>";
const MIMIR: &str = r#"{"status":"error","errorType":"bad_data","error":"the query exceeded the maximum number of chunks"}"#;

struct Stage {
    way: Way,
    client: Client,
    query: Query,
    grid: Grid,
    _server: Prometheus,
}

/// A day by the minute, ten series, on a way that can be meddled with.
async fn stage(limits: Limits) -> Option<Stage> {
    let end = Timestamp::from_second(wall_now().as_second() / 3600 * 3600).expect("a time");
    let start = end - SignedDuration::from_hours(24);
    let mut history = History::new(start, end, SignedDuration::from_mins(1));
    for series in 0..10 {
        let value = move |now: Timestamp| Some((now.as_second() * series) as f64);
        history = history.series("x", &[("s", &series.to_string())], value);
    }
    let server = Prometheus::with_history(Release::Three, history).await?;
    let way = Way::to(&server.url()).await;
    let client = client(way.url(), limits);
    let grid = Grid::new(start.into(), end.into(), Duration::from_mins(1)).expect("a grid");
    Some(Stage { way, client, query: Selector::metric("x").into(), grid, _server: server })
}

impl Stage {
    async fn all(&self) -> (Result<Tally, String>, Gather) {
        let mut gather = Gather::default();
        let read = self.client.range(&self.query, self.grid, &mut gather).await;
        (read.map_err(|interrupted| interrupted.to_string()), gather)
    }

    async fn is_fine_again(&self) {
        self.way.then([]);
        let (tally, gather) = self.all().await;
        let tally = tally.expect("it is over");
        assert_eq!((tally.queries, tally.retries, tally.points), (1, 0, 14_410));
        assert_eq!((gather.whole.len(), gather.finishes), (10, 1));
    }
}

#[tokio::test]
async fn what_passes_is_asked_again_and_counts_once() {
    let Some(stage) = stage(hasty()).await else { return };
    for (fault, halvings) in [
        (Fault::Cut(100_000), 0),
        (Fault::Cut(0), 0),
        (Fault::Short(100_000), 0),
        (Fault::Instead(500, "text/plain", "oops"), 0),
        (Fault::Instead(502, "text/html", "<title>Bad Gateway</title>"), 0),
        (
            Fault::Instead(
                503,
                "application/json",
                r#"{"status":"error","errorType":"unavailable","error":"starting"}"#,
            ),
            0,
        ),
        (
            Fault::Instead(
                503,
                "application/json",
                r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#,
            ),
            1,
        ),
        (Fault::Busy(0), 0),
        (Fault::Instead(422, "application/json", MIMIR), 1),
    ] {
        stage.way.then([fault.clone()]);
        let (tally, gather) = stage.all().await;
        let tally = tally.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let asked_again = tally.retries.max(tally.halvings);
        assert_eq!((asked_again, tally.halvings), (1, halvings), "{fault:?}");
        assert_eq!((tally.points, gather.discards), (14_410, 1), "{fault:?}");
        assert!(gather.whole.values().all(|points| points.len() == 1441), "{fault:?}");
    }
    stage.is_fine_again().await;
}

#[tokio::test]
async fn what_stays_is_one_line_that_says_what_came_and_nothing_counts() {
    let Some(stage) = stage(hasty()).await else { return };
    for (fault, tries, words) in [
        (Fault::Cut(100_000), 3, "the answer breaks off after "),
        (Fault::Short(100_000), 3, "the answer breaks off after 100000 bytes"),
        (
            Fault::Instead(500, "text/plain", "oops\n"),
            3,
            "500 Internal Server Error, text/plain, that begins with \"oops\"",
        ),
        (Fault::Busy(0), 3, "too busy: 429 Too Many Requests"),
        (
            Fault::Instead(200, "text/html", LOGIN),
            1,
            "no Prometheus (200 OK, text/html, titled \"Sign in to Acme\")",
        ),
        (
            Fault::Typed("text/plain"),
            1,
            "200 OK, text/plain, that begins with \"{\\\"status\\\":\\\"success\\\"",
        ),
        (Fault::Instead(200, "application/json", "[]"), 1, "no Prometheus"),
        (Fault::Instead(200, "application/json", ""), 3, "breaks off after 0 bytes"),
        (Fault::Redirect, 1, "/login"),
        (Fault::Instead(401, "text/plain", "no"), 1, "401"),
        (Fault::Instead(404, "text/plain", "404 page not found"), 1, "404 Not Found"),
        (
            Fault::Instead(
                400,
                "application/json",
                r#"{"status":"error","errorType":"bad_data","error":"invalid\nparameter"}"#,
            ),
            1,
            "bad_data: invalid parameter",
        ),
    ] {
        let before = stage.way.seen();
        stage.way.then(vec![fault.clone(); 3]);
        let (read, gather) = stage.all().await;
        let line = read.expect_err("it stays");
        assert!(line.contains(words) && !line.contains('\n'), "{fault:?}: {line}");
        assert_eq!(stage.way.seen() - before, tries, "{fault:?}");
        assert!(gather.whole.is_empty() && gather.part.is_empty(), "{fault:?}");
        assert_eq!((gather.finishes, gather.discards), (0, tries), "{fault:?}");
    }
    stage.is_fine_again().await;
}

#[tokio::test]
async fn a_server_that_is_slow_is_given_up_in_time_and_asked_for_less() {
    let Some(stage) = stage(Limits { timeout: LIMIT, ..hasty() }).await else { return };
    // One never answers, one would take days for its body.
    for fault in [Fault::Hang, Fault::Slow(1000, LIMIT * 2)] {
        stage.way.then([fault.clone()]);
        let over = stage.way.is_over_at(stage.way.seen() + 1, LIMIT);
        let ((tally, gather), ()) = tokio::join!(stage.all(), over);
        let tally = tally.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!((tally.queries, tally.retries, tally.halvings), (2, 1, 1), "{fault:?}");
        assert_eq!((tally.points, gather.discards), (14_410, 1), "{fault:?}");
    }
    stage.way.then(vec![Fault::Hang; 3]);
    let before = stage.way.seen();
    let over = async {
        for fault in 1..=3 {
            stage.way.is_over_at(before + fault, LIMIT).await;
        }
    };
    let ((read, _), ()) = tokio::join!(stage.all(), over);
    let line = read.expect_err("it stays");
    assert!(line.contains("within 3600s") && !line.contains('\n'), "{line}");
    stage.is_fine_again().await;
}

#[tokio::test]
async fn a_range_that_was_interrupted_goes_on_where_it_stopped() {
    let Some(stage) = stage(Limits { steps: 500, ..hasty() }).await else { return };
    let down = || Fault::Instead(500, "text/plain", "down");
    stage.way.then([Fault::None, Fault::Cut(50_000), down(), Fault::Cut(20_000)]);
    let mut gather = Gather::default();
    let interrupted = stage.client.range(&stage.query, stage.grid, &mut gather).await;
    let interrupted = interrupted.expect_err("three failures in a row");
    assert_eq!(interrupted.next, stage.grid.moment(500));
    assert!(gather.whole.values().all(|points| points.len() == 500));

    let end = stage.grid.moment(stage.grid.moments() - 1);
    let rest = Grid::new(interrupted.next, end, Duration::from_mins(1)).expect("a grid");
    // A failure here and there is none in a row.
    stage.way.then([down(), down(), Fault::None, down(), down(), Fault::None]);
    let tally = stage.client.range(&stage.query, rest, &mut gather).await.expect("the rest");
    assert_eq!((tally.queries, tally.retries), (2, 4));
    assert!(gather.whole.values().all(|points| points.len() == 1441));
}
