//! A scripted day of one cluster with the real controllers on a stepped clock. A real Prometheus serves their exported
//! metrics to every board and every alert. The deep tier runs and records the whole day; the gate tests the recording
//! and runs the first hour.

mod alerts;
pub mod creation_timestamps;
mod deep;
mod fixture;
mod panel_values;
mod recording;
pub mod scrape_record;
mod script;

use std::{path::Path, time::Duration};

use xtask::{
    pictures::{self, Options, Picture},
    test_programs::PrometheusRelease,
};

use self::{
    alerts::Expected,
    panel_values::Boards,
    script::{ScriptedDay, run_first_hour},
};
use crate::support::prometheus_server::PrometheusServer;

/// All boards, rendered with this server's data of the whole day.
async fn drawn(server: &PrometheusServer, day: &ScriptedDay) -> Vec<Picture> {
    let url = server.url();
    let at = day.record.end().to_string();
    let length = format!("{}m", day.record.length().as_mins());
    let draw = move || -> anyhow::Result<Vec<Picture>> {
        let server = pictures::Prometheus::at(&url)?;
        // A board about one object shows the one with the most events.
        let shown = |board: &str| match board {
            "vertical" => vec![("name".to_owned(), "leaks".to_owned())],
            "watermark" => vec![("name".to_owned(), "flaps".to_owned())],
            _ => Vec::new(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let boards = pictures::boards(root, &[])?;
        // The horizontal controller does not run on this day.
        let boards = boards.iter().filter(|(name, _)| name != "horizontal");
        let drawn = boards.map(|(name, board)| {
            let (at, range) = (Some(at.clone()), Some(length.clone()));
            pictures::draw(name, board, &server, &Options { at, range, set: shown(name) })
        });
        drawn.collect()
    };
    tokio::task::spawn_blocking(draw).await.expect("no panic").expect("all panels are rendered")
}

/// Every panel has data, and panels whose values the script determines show those values.
async fn check_boards(day: &ScriptedDay) {
    let Some(server) =
        PrometheusServer::with_history(PrometheusRelease::V3, day.record.history()).await
    else {
        return;
    };
    let pictures = drawn(&server, day).await;
    if let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") {
        for picture in &pictures {
            picture.write(Path::new(&folder)).expect("written");
        }
    }
    let mut empty = Vec::new();
    for picture in &pictures {
        empty.extend(
            picture.empty().map(|(panel, letter)| format!("{}: {panel} {letter}", picture.board)),
        );
    }
    assert!(empty.is_empty(), "{empty:#?}");
    assert!(pictures.len() >= 5, "only {} boards", pictures.len());
    let boards = Boards(&pictures);
    panel_values::overview(&boards);
    panel_values::vertical(&boards);
    panel_values::watermark(&boards);
    panel_values::controller(&boards);
    panel_values::history(&boards);
}

/// Number of evictions within an hour, of which two are allowed.
const CHANGES: &str = r#"plimsoll_updater_changes_within_hour{charge="disruption"}"#;

/// When the evictions within an hour were at their limit.
fn spent(day: &ScriptedDay) -> Vec<(Duration, Duration)> {
    let minute = |scrape: usize| Duration::from_mins(u64::try_from(scrape).expect("fits"));
    let times = day.record.intervals_where(CHANGES, |changes| changes >= 2.0).into_iter();
    times.map(|(from, to)| (minute(from), minute(to))).collect()
}

/// The expected alerts fire in time, and no others do.
async fn check_alerts(day: &ScriptedDay) {
    let mins = Duration::from_mins;
    let (growth, flapping) = (day.since(day.growth), day.since(day.flapping));
    let (outage, back) = (day.since(day.outage), day.since(day.back));
    let mut expected = vec![
        // Pods start below the minimum recommendation, and the pods of `capped` are never updated.
        Expected::pending("VpaUnderRequested", (mins(4), Duration::MAX)),
        Expected::pending("WpaDryRunForgotten", (mins(4), Duration::MAX)).of("queried"),
        // A tenth of the samples must exceed the maximum before the target would.
        Expected::pending("VpaCappedByMaxAllowed", (growth + mins(10), Duration::MAX)).of("capped"),
    ];
    // Four pods repeatedly need more, and two evictions per hour are allowed. Whichever passes evict, there are never
    // more, the first two come before usage grows, and the limit blocks others for more than two hours in total.
    let more = day.record.intervals_where(CHANGES, |changes| changes > 2.0);
    assert!(more.is_empty(), "more than the limit of an hour: {more:?}");
    let spent = spent(day);
    assert!(spent.first().is_some_and(|(from, _)| *from < growth), "{spent:?}");
    let lasted = spent.iter().map(|(from, to)| to.saturating_sub(*from));
    assert!(lasted.sum::<Duration>() > mins(120), "{spent:?}");
    // The times at which the alert is pending and firing follow from the scrapes.
    for (from, to) in spent {
        let alert = "VpaUpdateBudgetSpent";
        // The alert is pending for two hours first: targets that keep growing use up the evictions of two consecutive
        // hours.
        if to.saturating_sub(from) > mins(120) {
            expected.extend(Expected::fires(alert, (from, to), mins(120)));
        } else {
            expected.push(Expected::pending_while(alert, (from, to)));
        }
    }
    // Eight minutes each way: limited by the step first, then by the maximum.
    for turn in 0..10 {
        let up = flapping + mins(16) * turn;
        let down = up + mins(8);
        expected.extend([
            Expected::pending("WpaUpscaleCapped", (up, up + mins(4))).of("flaps"),
            Expected::pending("WpaAtMax", (up, down)).of("flaps"),
            Expected::pending("WpaDownscaleCapped", (down, down + mins(8))).of("flaps"),
        ]);
    }
    // More than twelve changes within an hour, until enough of them are more than an hour old.
    let flaps = (flapping + mins(48), day.since(day.calm) + mins(8));
    let fires = |alert, object: &'static str, time, waits| {
        Expected::fires(alert, time, waits).map(|one| one.of(object))
    };
    expected.extend(fires("WpaFlapping", "flaps", flaps, mins(16)));
    expected.extend(fires("WpaMetricStale", "queried", (outage, back), mins(10)));
    expected.extend(fires("WpaNotActive", "queried", (outage, back), mins(10)));
    // The alert counts errors of the last 15 minutes. The recommender sends no Prometheus queries, whatever other
    // controllers in its process do.
    let errors = (outage, back + mins(12));
    expected.extend(Expected::fires("WpaPrometheusQueryErrors", errors, mins(16)));
    alerts::check(day, &expected).await;
}

/// Replaced pods are observed, so evictions take effect one after the other, within the hourly limit.
fn all_pods_get_what_they_need(day: &ScriptedDay) {
    let record = &day.record;
    let object = "name=\"grows\"";
    let unproven =
        record.single_series("plimsoll_restricted_scaling", &[object, "reason=\"unproven\""]);
    let blocked = record.intervals_where(unproven, |holds| holds == 1.0);
    // After the first eviction of an hour, the next one waits for a step, until the replacement pod exists.
    assert!(
        !blocked.is_empty() && blocked.iter().all(|(from, end)| end - from <= 2),
        "{blocked:?}"
    );
    assert!(blocked.iter().all(|(_, end)| *end + 60 < record.scrapes()), "{blocked:?}");
    for resource in ["resource=\"cpu\"", "resource=\"memory\""] {
        let last = |family| record.last_value(record.single_series(family, &[object, resource]));
        let target = last("plimsoll_target");
        for request in [last("plimsoll_request_min"), last("plimsoll_request")] {
            assert!((request / target - 1.0).abs() < 0.02, "{resource}: {request}, {target}");
        }
        let all = last("plimsoll_request_all_pods");
        assert!((all / (4.0 * target) - 1.0).abs() < 0.02, "{resource}: {all}, {target}");
    }
    // Pods differ during the rollout: not all pods have the values of the largest one.
    let one = |family| record.single_series(family, &[object, "resource=\"cpu\""]);
    let (largest, smallest) = (one("plimsoll_request"), one("plimsoll_request_min"));
    let raised = record.intervals_where(largest, |cores| cores > 0.15);
    let all_raised = record.intervals_where(smallest, |cores| cores > 0.15);
    assert!(raised[0].0 + 30 < all_raised[0].0, "{raised:?}, {all_raised:?}");
}

#[test]
fn all_undersized_pods_are_updated_on_the_recorded_day() {
    all_pods_get_what_they_need(&recording::read());
}

#[tokio::test]
async fn exactly_the_expected_alerts_fire_on_the_recorded_day() {
    check_alerts(&recording::read()).await;
}

#[tokio::test]
async fn every_panel_of_every_board_has_data_on_the_recorded_day() {
    check_boards(&recording::read()).await;
}

/// The controllers export the metrics of boards and rules with the same labels as on the recorded day, so the
/// recording is up to date.
#[tokio::test]
async fn the_roles_export_the_recorded_series_in_the_first_hour() {
    let Some(record) = Box::pin(run_first_hour()).await else { return };
    let is_queried = |series: &&str| recording::is_queried(recording::family(series));
    let current = recording::shapes(record.all().map(|(series, _)| series).filter(is_queried));
    let recorded = recording::read().record;
    let all = recording::shapes(recorded.all().map(|(series, _)| series));
    let new: Vec<_> = current.difference(&all).collect();
    assert!(new.is_empty(), "not recorded: {new:#?}\nrun `cargo xtask record day`");
    // After half of the hour all series exist, except those that depend on the speed of the machine.
    let half = record.scrapes() / 2;
    let early = recorded.all().filter(|(_, values)| values.contains_key(&half));
    let early = recording::shapes(early.map(|(series, _)| series));
    let gone: Vec<_> = early.difference(&current).collect();
    // What holds updates back is the likely reason of missing actions.
    let last = record.scrapes() - 1;
    let restricted: Vec<_> = record
        .all()
        .filter(|(series, values)| {
            series.starts_with("plimsoll_restricted_scaling{")
                && values.get(&last).is_some_and(|value| *value != 0.0)
        })
        .map(|(series, _)| series)
        .collect();
    assert!(
        gone.is_empty(),
        "not exported any more: {gone:#?}, restricted: {restricted:#?}\nrun `cargo xtask record day`"
    );
}
