//! A board with a panel of each type, drawn with made-up results and compared with the stored picture.

use std::collections::BTreeMap;

use plimsoll_charts::axis::TimeRange;
use serde_json::Value;

use super::super::{panel_data::QueryResult, prometheus_client::Series, variables::Variables};

const BOARD: &str = include_str!("sample_board.json");
const PICTURE: &str = include_str!("sample_board.svg");

const WINDOW: TimeRange = TimeRange { from: 1_795_330_000.0, to: 1_795_351_600.0 };

/// The labels that a legend or the columns of a table name, with values that differ between series.
fn labels(panel: &Value, target: &Value, row: usize) -> BTreeMap<String, String> {
    let legend = target["legendFormat"].as_str().unwrap_or_default();
    let named = legend.split("{{").skip(1).filter_map(|part| part.split("}}").next());
    let columns = panel["transformations"].as_array().into_iter().flatten();
    let columns = columns.flat_map(|one| one["options"]["include"]["names"].as_array().into_iter());
    let columns = columns.flatten().filter_map(Value::as_str);
    named
        .chain(columns.filter(|name| !name.starts_with("Value")))
        .map(|name| (name.trim().to_owned(), format!("{}-{row}<&", name.trim())))
        .collect()
}

/// A point a minute, with a gap of ten minutes.
fn points(row: usize, letter: usize) -> Vec<(f64, f64)> {
    let minutes = (0..360_u32).filter(|minute| !(100..110).contains(minute));
    let value = |minute: u32| match row {
        0 => f64::from(minute / 60 % 5),
        1 => (f64::from(minute) / 40.0).sin() * 100.0 + 90.0 + letter as f64,
        _ => f64::from(minute) * 1_000_000.0,
    };
    minutes.map(|minute| (WINDOW.from + 60.0 * f64::from(minute), value(minute))).collect()
}

fn results(panel: &Value) -> Vec<QueryResult> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets
        .enumerate()
        .map(|(letter, target)| {
            let series = (0..3).map(|row| Series {
                labels: labels(panel, target, row),
                points: points(row, letter),
            });
            QueryResult::with_series(target, series.collect())
        })
        .collect()
}

fn draw(board: &str) -> String {
    let board: Value = serde_json::from_str(board).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let answers: Vec<_> = panels.iter().map(results).collect();
    super::draw(&board, &answers, &Variables::default(), WINDOW)
}

#[test]
fn a_board_with_each_type_of_panel_equals_the_stored_picture() {
    let picture = draw(BOARD);
    if let Some(path) = std::env::var_os("PLIMSOLL_SAMPLE_BOARD") {
        std::fs::write(path, &picture).expect("a writable file");
    }
    assert!(
        picture == PICTURE,
        "the picture differs: write it with PLIMSOLL_SAMPLE_BOARD=FILE and look at it"
    );
}

#[test]
fn temporary_all_boards() {
    let Some(folder) = std::env::var_os("ALL_BOARDS") else { return };
    let server = super::super::Prometheus::at("http://127.0.0.1:39390").expect("url");
    let options = super::super::Options {
        at: Some("2026-11-26T12:00:00Z".to_owned()),
        range: None,
        set: Vec::new(),
    };
    for (name, board) in
        super::super::boards(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")), &[])
            .expect("boards")
    {
        let picture = super::super::draw(&name, &board, &server, &options).expect("drawn");
        picture.write(std::path::Path::new(&folder)).expect("written");
    }
}
