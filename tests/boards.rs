//! Grafana dashboards: the files are valid, use only existing metrics, and get data from a real Prometheus.

mod board_rules;
pub mod families;
mod grafana_units;
mod lint;
mod lint_exclusions;
mod lint_self_test;
mod live;
mod query;
mod sample_data;

use std::{fs, path::Path, sync::OnceLock};

use serde_json::Value;

/// Every dashboard file, by name.
fn boards() -> Vec<(String, Value)> {
    static READ: OnceLock<Vec<(String, Value)>> = OnceLock::new();
    READ.get_or_init(read).clone()
}

fn read() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana");
    let mut boards: Vec<_> = fs::read_dir(&folder)
        .expect("board folder exists")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("a readable board");
            let board = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.file_stem().expect("a name").to_string_lossy().into_owned(), board)
        })
        .collect();
    boards.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert!(boards.len() >= 5, "only {} boards were found", boards.len());
    boards
}

#[test]
fn every_board_is_in_the_kustomization() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana/kustomization.yaml");
    let file = fs::read_to_string(&path).expect("a readable file");
    let file: Value = serde_saphyr::from_str(&file).expect("YAML");
    assert_eq!(file["generatorOptions"]["labels"]["grafana_dashboard"], "1");
    let maps = list(&file, "configMapGenerator").flat_map(|map| list(map, "files"));
    let mut files: Vec<&str> = maps.filter_map(Value::as_str).collect();
    files.sort_unstable();
    let expected =
        boards().into_iter().map(|(name, _)| format!("plimsoll-{name}.json={name}.json"));
    assert_eq!(files, expected.collect::<Vec<_>>());
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Panels with queries: all except row headings.
fn panels(board: &Value) -> impl Iterator<Item = &Value> {
    list(board, "panels").filter(|panel| panel["type"] != "row")
}

/// Every target of a board, with its panel.
fn targets(board: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    panels(board).flat_map(|panel| list(panel, "targets").map(move |target| (panel, target)))
}

/// Variables that are filled by a query.
fn queried(board: &Value) -> impl Iterator<Item = &Value> {
    list(&board["templating"], "list").filter(|variable| variable["type"] == "query")
}
