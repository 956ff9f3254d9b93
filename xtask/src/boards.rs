//! Dashboards as code: each board is a file in this module and is rendered to JSON in `grafana/`.
//!
//! ```text
//!   overview ─┐
//!   vertical ─┤
//!   watermark ┤
//!   horizontal┼─▶ dashboard: rows of panels ─▶ panel: queries ─▶ grafana/*.json ─▶ cargo xtask pictures
//!   controller┤
//!   history ──┘
//! ```

mod autoscaler;
mod controller;
mod dashboard;
mod history;
mod horizontal;
pub mod late_families;
mod overview;
mod panel;
mod query;
mod vpa;
mod watermark;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Folder of the generated JSON, relative to the repository root.
pub const FOLDER: &str = "grafana";

/// All boards as (file name without `.json`, JSON text).
pub fn all() -> Vec<(&'static str, String)> {
    let boards = [
        overview::board(),
        vpa::board(),
        watermark::board(),
        horizontal::board(),
        controller::board(),
        history::board(),
    ];
    boards.iter().map(|board| (board.name, text(&board.json(&boards)))).collect()
}

/// Writes all boards into the folder below this root and returns the paths of those that changed.
pub fn write(root: &Path) -> Result<Vec<String>> {
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut changed = Vec::new();
    for (name, text) in all() {
        let path = folder.join(format!("{name}.json"));
        if fs::read_to_string(&path).is_ok_and(|current| current == text) {
            continue;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        changed.push(format!("{FOLDER}/{name}.json"));
    }
    Ok(changed)
}

/// The text that is checked in: indented, with object keys in alphabetical order.
fn text(board: &Value) -> String {
    format!("{board:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_boards_are_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is below the root");
        for (name, text) in all() {
            let path = root.join(FOLDER).join(format!("{name}.json"));
            let current = fs::read_to_string(&path).unwrap_or_default();
            assert!(current == text, "{} is out of date: run `cargo xtask boards`", path.display());
        }
    }

    #[test]
    fn boards_are_written_only_if_changed() {
        let root = tempfile::tempdir().expect("a folder");
        assert_eq!(write(root.path()).expect("written").len(), all().len());
        assert!(write(root.path()).expect("written").is_empty());
    }
}
