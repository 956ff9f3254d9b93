//! Pictures of dashboards: draws the JSON in `grafana/` with the data of a Prometheus.
//!
//! ```text
//!   grafana/overview.json ─▶ variables ─▶ data: queries ◀──▶ Prometheus
//!                                │            │
//!                                ▼            ▼
//!                            board_page: one module per type of panel ─▶ plimsoll-charts ─▶ docs/pictures/overview.svg
//! ```

mod board_page;
mod field_config;
mod http_client;
mod panel_data;
mod prometheus_client;
mod single_value;
mod state_timeline;
mod table;
mod time_series;
mod variables;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use plimsoll_charts::axis::TimeRange;
use plimsoll_charts::time_format;
use serde_json::Value;

pub use panel_data::QueryResult;
pub use prometheus_client::{Prometheus, Series};
use variables::Variables;

use crate::boards;

/// Options of a picture.
#[derive(Clone, Debug)]
pub struct Options {
    /// End of the time range: `2026-11-22T12:00:00Z`, or seconds since the Unix epoch. `None`: the Prometheus'
    /// current time.
    pub at: Option<String>,
    /// Length of the time range, such as `6h`. `None`: that of the board.
    pub range: Option<String>,
    /// Variables with values other than the board's defaults.
    pub set: Vec<(String, String)>,
}

/// A picture of a board and the data that it shows.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Name of the board.
    pub board: String,
    /// The picture.
    pub svg: String,
    /// The results of each target of each panel.
    pub answers: Vec<QueryResult>,
}

/// Folder of the pictures, relative to the repository root.
pub const FOLDER: &str = "docs/pictures";

/// The boards that are checked in below this root, by name; all of them if `names` is empty.
pub fn boards(root: &Path, names: &[String]) -> Result<Vec<(String, Value)>> {
    let known: Vec<&str> = boards::all().into_iter().map(|(name, _)| name).collect();
    for name in names {
        ensure!(
            known.contains(&name.as_str()),
            "there is no board {name}: there are {}",
            known.join(", ")
        );
    }
    let wanted =
        known.into_iter().filter(|name| names.is_empty() || names.iter().any(|one| one == name));
    wanted
        .map(|name| {
            let path = root.join(boards::FOLDER).join(format!("{name}.json"));
            let text = fs::read_to_string(&path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let board = serde_json::from_str(&text);
            Ok((name.to_owned(), board.with_context(|| format!("{} is not JSON", path.display()))?))
        })
        .collect()
}

/// Runs the queries of a board and draws it.
pub fn draw(
    name: &str,
    board: &Value,
    prometheus: &Prometheus,
    options: &Options,
) -> Result<Picture> {
    let window = window(board, prometheus, options)?;
    let variables = Variables::of(board, prometheus, window, &options.set)?;
    let panels = board["panels"].as_array().context("the board has no panels")?;
    let answers = panels
        .iter()
        .map(|panel| panel_data::run_queries(panel, prometheus, &variables, window))
        .collect::<Result<Vec<_>>>()?;
    let svg = board_page::draw(board, &answers, &variables, window);
    Ok(Picture { board: name.to_owned(), svg, answers: answers.into_iter().flatten().collect() })
}

/// The time range of a board.
fn window(board: &Value, prometheus: &Prometheus, options: &Options) -> Result<TimeRange> {
    let to = match &options.at {
        Some(at) => time_format::moment(at)?,
        None => prometheus.time()?,
    };
    let from = board["time"]["from"].as_str().unwrap_or_default();
    let range = options.range.as_deref().or_else(|| from.strip_prefix("now-")).unwrap_or("6h");
    let length = time_format::length(range);
    let length =
        length.with_context(|| format!("invalid duration {range:?}: use 90m, 6h or 1d"))?;
    Ok(TimeRange { from: to - length, to })
}

// === impl Picture ===

impl Picture {
    /// The panels and target letters that returned no data.
    pub fn empty(&self) -> impl Iterator<Item = (&str, &str)> {
        let empty = self.answers.iter().filter(|answer| answer.series.is_empty());
        empty.map(|answer| (answer.panel.as_str(), answer.letter.as_str()))
    }

    /// Writes the picture into a folder.
    pub fn write(&self, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join(format!("{}.svg", self.board));
        fs::write(&path, &self.svg).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
