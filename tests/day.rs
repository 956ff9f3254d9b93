//! A scripted day of one cluster, lived by the real roles on a stepped clock: what they tell on the way becomes the data of
//! a real Prometheus, for every board and every alert.

mod alerts;
mod record;
mod script;
mod stage;
mod values;

use std::{path::Path, time::Duration};

use tokio::sync::OnceCell;
use xtask::{
    parts::Release,
    pictures::{self, Options, Picture},
};

use self::{
    alerts::Expected,
    script::{Day, live},
    values::Boards,
};
use crate::support::prometheus::Prometheus;

/// Lived once for all tests.
static DAY: OnceCell<Option<Day>> = OnceCell::const_new();

async fn day() -> Option<&'static Day> {
    DAY.get_or_init(live).await.as_ref()
}

/// All boards, drawn with what this server knows of the whole day.
async fn drawn(server: &Prometheus, day: &Day) -> Vec<Picture> {
    let url = server.url();
    let at = day.record.end().to_string();
    let length = format!("{}m", day.record.length().as_mins());
    let draw = move || -> anyhow::Result<Vec<Picture>> {
        let server = pictures::Prometheus::at(&url)?;
        // A board of one object shows the one to which most happened.
        let shown = |board: &str| match board {
            "vertical" => vec![("name".to_owned(), "leaks".to_owned())],
            "watermark" => vec![("name".to_owned(), "flaps".to_owned())],
            _ => Vec::new(),
        };
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let boards = pictures::boards(root, &[])?;
        let drawn = boards.iter().map(|(name, board)| {
            let (at, range) = (Some(at.clone()), Some(length.clone()));
            pictures::draw(name, board, &server, &Options { at, range, set: shown(name) })
        });
        drawn.collect()
    };
    tokio::task::spawn_blocking(draw).await.expect("no panic").expect("all are drawn")
}

/// A server that knows the day, and all boards with its data.
async fn shown() -> Option<(&'static Day, Vec<Picture>)> {
    let day = day().await?;
    let server = Prometheus::with_history(Release::Three, day.record.history()).await?;
    Some((day, drawn(&server, day).await))
}

/// `PLIMSOLL_PICTURES=FOLDER` keeps the pictures: those in docs/pictures are such ones.
#[tokio::test]
async fn every_panel_of_every_board_has_data_of_a_day_that_the_real_roles_have_lived() {
    let Some((_, pictures)) = shown().await else { return };
    if let Some(folder) = std::env::var_os("PLIMSOLL_PICTURES") {
        for picture in &pictures {
            picture.write(Path::new(&folder)).expect("it is written");
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
}

/// When as much was evicted within an hour as may be.
fn spent(day: &Day) -> Vec<(Duration, Duration)> {
    let series = r#"plimsoll_updater_changes_within_hour{charge="disruption"}"#;
    let minute = |scrape: usize| Duration::from_mins(u64::try_from(scrape).expect("few"));
    let times = day.record.times(series, |changes| changes >= 2.0).into_iter();
    times.map(|(from, to)| (minute(from), minute(to))).collect()
}

#[tokio::test]
async fn alerts_wait_and_fire_on_that_day_as_they_should_and_no_others_do() {
    let Some(day) = day().await else { return };
    let mins = Duration::from_mins;
    let (growth, flapping) = (day.since(day.growth), day.since(day.flapping));
    let (outage, back) = (day.since(day.outage), day.since(day.back));
    let mut expected = vec![
        // Pods begin with less than the least that is ever recommended, and those of capped are never changed.
        Expected::waits("VpaUnderRequested", (mins(4), Duration::MAX)),
        Expected::waits("WpaDryRunForgotten", (mins(4), Duration::MAX)).of("queried"),
        // A tenth of what was seen has to lie above its maximum, before the target would.
        Expected::waits("VpaCappedByMaxAllowed", (growth + mins(6), Duration::MAX)).of("capped"),
    ];
    // Four pods in want of more and two evictions an hour: the second of the first hour, and the fourth of all.
    let spent = spent(day);
    let [(first, first_end), (second, second_end)] = spent[..] else { panic!("{spent:?}") };
    assert!(first > mins(20) && first < mins(30), "{spent:?}");
    assert!(first_end > mins(80) && first_end < mins(90), "{spent:?}");
    assert!(second > growth + mins(60) && second_end < growth + mins(80), "{spent:?}");
    let waits = |time| Expected::waits_while("VpaUpdateBudgetSpent", time);
    expected.extend(spent.into_iter().map(waits));
    // Eight minutes each way: the limits of a step, then the most there may be.
    for turn in 0..10 {
        let up = flapping + mins(16) * turn;
        let down = up + mins(8);
        expected.extend([
            Expected::waits("WpaUpscaleCapped", (up, up + mins(4))).of("flaps"),
            Expected::waits("WpaAtMax", (up, down)).of("flaps"),
            Expected::waits("WpaDownscaleCapped", (down, down + mins(8))).of("flaps"),
        ]);
    }
    // More than twelve changes within an hour, and until so many are an hour ago.
    let flaps = (flapping + mins(48), day.since(day.calm) + mins(8));
    let fires = |alert, object: &'static str, time, waits| {
        Expected::fires(alert, time, waits).map(|one| one.of(object))
    };
    expected.extend(fires("WpaFlapping", "flaps", flaps, mins(16)));
    expected.extend(fires("WpaMetricStale", "queried", (outage, back), mins(10)));
    expected.extend(fires("WpaNotActive", "queried", (outage, back), mins(10)));
    // It counts errors of the last quarter of an hour. The recommender asks no Prometheus, whatever others do in its process.
    let errors = (outage, back + mins(12));
    expected.extend(Expected::fires("WpaPrometheusQueryErrors", errors, mins(16)));
    let checked = tokio::task::spawn_blocking(move || alerts::check(day, &expected));
    checked.await.expect("as expected");
}

#[tokio::test]
async fn panels_of_each_board_show_what_happened_on_that_day() {
    let Some((_, pictures)) = shown().await else { return };
    let boards = Boards(&pictures);
    values::overview(&boards);
    values::vertical(&boards);
    values::watermark(&boards);
    values::controller(&boards);
    values::history(&boards);
}
