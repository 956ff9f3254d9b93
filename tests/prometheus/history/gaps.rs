//! Gaps stay gaps, and values that are no amounts are ignored.

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::history::HistorySettings;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::collecting_sink::{MINUTE, hours, last, nearly, read};
use crate::prometheus::label_flavors::{CHART, OPERATOR};
use crate::prometheus::releases::releases;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const POD: &str = "db-0";

#[tokio::test]
async fn gaps_counter_resets_and_invalid_values_only_lose_their_own_samples() {
    for release in releases() {
        let (history, end) = hours(9);
        let before = move |hours: i64| end - SignedDuration::from_hours(hours);
        let minutes = SignedDuration::from_mins;
        // No samples between six and five hours ago; the counter resets three hours ago.
        let used = move |now: Timestamp| {
            if now > before(6) && now < before(5) {
                return None;
            }
            let since = if now >= before(3) { before(3) } else { before(10) };
            Some(now.duration_since(since).as_secs() as f64 * 0.5)
        };
        // NaN and an infinity two hours ago; a negative value half an hour later.
        let memory = move |now: Timestamp| {
            if now > before(6) && now < before(5) {
                return None;
            }
            let ago = before(2).duration_until(now);
            Some(match ago {
                ago if ago > minutes(0) && ago <= minutes(10) => f64::NAN,
                ago if ago == minutes(12) => f64::INFINITY,
                ago if ago > minutes(30) && ago <= minutes(35) => -1.0,
                ago if ago == minutes(45) => 9e8,
                _ => 1e8,
            })
        };
        let names = ["shop", POD, "app"];
        let history = OPERATOR.usage(history, CPU_METRIC, names, used);
        let history = OPERATOR.usage(history, MEMORY_METRIC, names, memory);
        // A series without a container name.
        let history = CHART.usage(history, CPU_METRIC, ["shop", POD, ""], |_| Some(1.0));
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let vpas = [("db", "apps/StatefulSet/db")];
        let (sink, report) = read(&server.url(), last(8), end, &vpas).await;
        let db = sink.samples_of("db", "app", POD).expect("exists");

        // Of the eight hours, the silent one is missing: from a minute after its start, because the last two scrapes
        // are visible for that long, up to the first scrape after it, which is only one.
        assert_eq!(db.cpu.len(), 480 - 59, "{release:?}");
        let (from, to) = (Time::from(before(6)).later(MINUTE), Time::from(before(5)));
        let silent = |at: &Time| *at > from && *at <= to;
        assert!(!db.cpu.iter().any(|(at, _)| silent(at)), "{release:?}");
        // A counter that resets starts at zero.
        let reset = Time::from(before(3));
        for (at, cores) in &db.cpu {
            let expected = if *at == reset { 0.0 } else { 0.5 };
            assert!(nearly(*cores, expected), "{release:?}: {cores} at {at}");
        }
        assert_eq!(report.skipped.invalid_points, 4, "{release:?}: NaN twice, infinite, negative");
        assert_eq!(db.memory.len(), 96 - 11 - 4, "{release:?}");
        assert!(db.memory.iter().all(|(_, bytes)| *bytes == 1e8 || *bytes == 9e8));
        let peaks: Vec<_> = db.memory.iter().filter(|(_, bytes)| *bytes == 9e8).collect();
        let at = Time::from(before(2) + minutes(45));
        assert_eq!(peaks, [&(at, 9e8)], "{release:?}: a peak of one minute is preserved");
    }
}

#[tokio::test]
async fn many_slices_give_the_same_history_as_few_slices() {
    const DAYS: i64 = 15;
    for release in releases() {
        let (mut history, end) = hours(24 * DAYS + 1);
        for pod in ["db-0", "db-1", "db-2"] {
            let names = ["shop", pod, "app"];
            let used = |now: Timestamp| Some(now.as_second() as f64 % 1e7 * 0.1);
            history = CHART.usage(history, CPU_METRIC, names, used);
            let memory = |now: Timestamp| Some((now.as_second() / 60 % 1000) as f64 * 1e6);
            history = CHART.usage(history, MEMORY_METRIC, names, memory);
        }
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let vpas = [("db", "apps/StatefulSet/db")];
        let length = last(24 * DAYS as u64);
        let few = read(&server.url(), length.clone(), end, &vpas).await;
        let thrifty = HistorySettings { point_budget: 2000, ..length };
        let many = read(&server.url(), thrifty, end, &vpas).await;
        assert!(
            many.1.reads.queries > 10 * few.1.reads.queries,
            "{} and {}",
            many.1.reads.queries,
            few.1.reads.queries
        );
        assert!(many.0 == few.0, "split queries give the same result");
        let db = few.0.samples_of("db", "app", "db-1").expect("exists");
        assert_eq!((db.cpu.len(), db.memory.len()), (15 * 1440, 15 * 288));
        // The default is eight days.
        let (eight, _) = read(&server.url(), HistorySettings::default(), end, &vpas).await;
        let last = eight.samples_of("db", "app", "db-1").expect("exists");
        assert_eq!((last.cpu.len(), last.memory.len()), (8 * 1440, 8 * 288));
        assert!(db.cpu.ends_with(&last.cpu) && db.memory.ends_with(&last.memory));
    }
}

/// The staleness marker: a NaN with bits that no calculation yields.
const ENDED: u64 = 0x7ff0_0000_0000_0002;

#[tokio::test]
async fn a_series_that_ended_has_no_later_samples_and_its_successor_continues_it() {
    for release in [PrometheusRelease::V2, PrometheusRelease::V3] {
        let (mut history, end) = hours(5);
        let ago = move |minutes: i64| end - SignedDuration::from_mins(minutes);
        // The container ends and starts again twenty minutes later, with its counter at zero.
        let (last, next) = (ago(120), ago(100));
        let is_end = move |now: Timestamp| now > last && now <= last + SignedDuration::from_mins(1);
        for (id, cores, bytes) in [("/one", 0.5, 1e8), ("/two", 0.25, 2e8)] {
            let is_first = id == "/one";
            let of_life = move |now: Timestamp, value: f64| {
                if is_first && is_end(now) {
                    return Some(f64::from_bits(ENDED));
                }
                let is_alive = if is_first { now <= last } else { now >= next };
                is_alive.then_some(value)
            };
            let begin = if is_first { ago(400) } else { next };
            let used = move |now: Timestamp| {
                of_life(now, begin.duration_until(now).as_secs() as f64 * cores)
            };
            let labels = [("job", "kubelet"), ("namespace", "shop"), ("pod", POD)];
            let labels = [&labels[..], &[("container", "app"), ("id", id)]].concat();
            history = history.series(CPU_METRIC, &labels, used);
            history = history.series(MEMORY_METRIC, &labels, move |now| of_life(now, bytes));
        }
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let just_after = last + SignedDuration::from_mins(2);
        let one = format!(r#"{MEMORY_METRIC}{{id="/one"}}"#);
        assert_eq!(server.value(&one, last).await, Some(1e8));
        assert_eq!(server.value(&one, just_after).await, None, "staleness marker is stored");

        let vpas = [("db", "apps/StatefulSet/db")];
        let (sink, report) = read(&server.url(), super::collecting_sink::last(4), end, &vpas).await;
        let db = sink.samples_of("db", "app", POD).expect("exists");
        assert_eq!(
            report.skipped.invalid_points, 0,
            "{release:?}: a staleness marker is not a sample"
        );
        // There is nothing from the second minute after the end to the first scrape of the next container.
        assert_eq!((db.cpu.len(), db.memory.len()), (240 - 19, 48 - 3), "{release:?}");
        for (at, cores) in &db.cpu {
            let expected = if *at <= Time::from(ago(119)) { 0.5 } else { 0.25 };
            assert!(nearly(*cores, expected), "{release:?}: {cores} at {at}");
        }
        for (at, bytes) in &db.memory {
            let expected = if *at <= Time::from(last) { 1e8 } else { 2e8 };
            assert!(nearly(*bytes, expected), "{release:?}: {bytes} at {at}");
        }
    }
}

#[tokio::test]
async fn irregular_scrape_times_leave_no_step_empty() {
    let end = hours(1).1;
    // Intervals of 60, 75, 45 and 60 seconds.
    let is_sampled = |now: Timestamp| [0, 60, 135, 180].contains(&(now.as_second() % 240));
    let used = move |now: Timestamp| {
        is_sampled(now).then_some((now.as_second() - 1_700_000_000) as f64 * 0.5)
    };
    for release in releases() {
        let start = end - SignedDuration::from_hours(5);
        let mut history = History::new(start, end, SignedDuration::from_secs(15));
        let names = ["shop", POD, "app"];
        history = CHART.usage(history, CPU_METRIC, names, used);
        history =
            CHART.usage(history, MEMORY_METRIC, names, move |now| is_sampled(now).then_some(1e8));
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let vpas = [("db", "apps/StatefulSet/db")];
        let (sink, _) = read(&server.url(), last(4), end, &vpas).await;
        let db = sink.samples_of("db", "app", POD).expect("exists");
        assert_eq!((db.cpu.len(), db.memory.len()), (240, 48), "{release:?}");
        assert!(db.cpu.iter().all(|(_, cores)| nearly(*cores, 0.5)), "{release:?}");
    }
}
