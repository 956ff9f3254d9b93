//! A real Prometheus answers every query of every board, and the boards are rendered with its data.

use std::path::Path;

use xtask::{
    pictures::{self, Options, Picture},
    test_programs::PrometheusRelease,
};

use super::sample_data;
use crate::support::prometheus_server::{History, PrometheusServer};

/// All boards, rendered with this server's data.
async fn draw_boards(server: &PrometheusServer) -> Vec<Picture> {
    let url = server.url();
    let draw = move || -> anyhow::Result<Vec<Picture>> {
        let server = pictures::Prometheus::at(&url)?;
        let options =
            Options { at: Some(sample_data::END.to_owned()), range: None, set: Vec::new() };
        let boards = pictures::boards(Path::new(env!("CARGO_MANIFEST_DIR")), &[])?;
        let drawn =
            boards.iter().map(|(name, board)| pictures::draw(name, board, &server, &options));
        drawn.collect()
    };
    tokio::task::spawn_blocking(draw).await.expect("no panic").expect("all panels are rendered")
}

/// The latest value of a panel's first series.
fn value(pictures: &[Picture], board: &str, panel: &str) -> f64 {
    let picture = pictures.iter().find(|picture| picture.board == board).expect("board exists");
    let panel_data = picture.answers.iter().find(|panel_data| panel_data.panel == panel);
    let panel_data = panel_data.unwrap_or_else(|| panic!("{board}: there is no panel {panel}"));
    let (_, value) = panel_data.latest().next().unwrap_or_else(|| panic!("{panel}: no data"));
    value
}

async fn assert_every_query_answered(release: PrometheusRelease, hours: i64) {
    let Some(server) = PrometheusServer::with_history(release, sample_data::history(hours)).await
    else {
        return;
    };
    let pictures = draw_boards(&server).await;
    for picture in &pictures {
        let empty: Vec<_> = picture.empty().collect();
        assert!(empty.is_empty(), "{}: no data for {empty:?}", picture.board);
        assert!(!picture.svg.contains(">No data<"), "{}", picture.board);
    }
    for (board, panel, wanted) in [
        // Three pods request six cores together, and half a core each would suffice.
        ("overview", "Over-requested CPU, in cores", 4.5),
        ("overview", "Under-requested CPU, in cores", 0.0),
        ("overview", "Over-requested memory", 4.5e9),
        ("overview", "Oldest sample", 42.0),
        ("vertical", "Pods", 3.0),
        ("vertical", "CPU, in cores", 2.4),
        ("watermark", "Replica range used", 0.25),
        ("watermark", "Value and watermarks", 126.0),
        ("watermark", "All metrics: position between watermarks", 0.5),
        ("horizontal", "Replica range used", 0.25),
        ("horizontal", "Difference", -1.0),
        ("horizontal", "Value and target", 120.0),
        ("horizontal", "All metrics: value by target", 1.05),
        ("horizontal", "At their maximum", 1.0),
        // Two of three results.
        ("horizontal", "Same decisions", 2.0 / 3.0),
        ("controller", "Time since last successful pass", 30.0),
        ("controller", "Recommender: duration by step", 0.2),
        ("history", "Query success rate", 0.5),
        ("history", "Age of the latest sample", 42.0),
    ] {
        let found = value(&pictures, board, panel);
        let is_near = (found - wanted).abs() <= wanted.abs() * 0.02;
        assert!(is_near, "{board}: {panel} is {found}, want {wanted}");
    }
    // It has been capped for the last three hours, three hours in total.
    let restricted = "Vertical: active restrictions";
    let answers: Vec<_> =
        pictures[0].answers.iter().filter(|panel_data| panel_data.panel == restricted).collect();
    let capped = |place: usize| {
        let of = |(name, _): &(String, f64)| name.contains("max_allowed") && name.contains("cpu");
        answers[place].latest().find(of).expect("capped").1
    };
    let since = sample_data::end().as_second() as f64 - capped(0) / 1000.0;
    assert!((since - 10_800.0).abs() <= 300.0, "since {since} s");
    assert!((capped(1) - 10_800.0).abs() <= 300.0, "for {} s", capped(1));
}

#[tokio::test]
async fn every_query_of_every_board_has_data_if_all_families_exist() {
    assert_every_query_answered(PrometheusRelease::V3, 6).await;
}

mod deep {
    use super::{PrometheusRelease, assert_every_query_answered};

    #[tokio::test]
    async fn every_query_of_every_board_has_data_through_a_day() {
        assert_every_query_answered(PrometheusRelease::V3, 24).await;
    }

    #[tokio::test]
    async fn every_query_of_every_board_has_data_in_an_older_prometheus() {
        assert_every_query_answered(PrometheusRelease::V2, 24).await;
    }
}

#[tokio::test]
async fn a_panel_without_data_is_rendered_as_no_data() {
    let step = jiff::SignedDuration::from_mins(1);
    let other = History::new(sample_data::end() - step, sample_data::end(), step);
    let other = other.series("up", &[("job", "other")], |_| Some(1.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, other).await else {
        return;
    };
    for picture in draw_boards(&server).await {
        assert_eq!(picture.empty().count(), picture.answers.len(), "{}", picture.board);
        assert!(picture.svg.contains(">No data<"), "{}", picture.board);
    }
}
