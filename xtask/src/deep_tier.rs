//! The deep tier: every test at its full size, the images and the documentation.

use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io::Write as _};

use anyhow::{Context as _, Result, bail};
use xtask::cache;
use xtask::console::{progress, seconds};

use crate::image;
use crate::suite::{self, Options, Tier};
use crate::workspace::{cargo, root};

/// Builds the program of the images and starts it.
const IMAGE: &str = "image";
/// Builds the documentation and lints the benchmarks.
const DOCS: &str = "docs";
/// The recordings, and the prefixes of the tests that write them.
const RECORDED: [(&str, &str); 9] = [
    ("recommender", "recommender_differential::deep::"),
    ("updater", "updater::differential::deep::"),
    ("webhook", "webhook::differential::deep::"),
    ("registered", "webhook::registration::deep::"),
    ("command_line", "command_line::deep::"),
    ("metrics", "metrics::upstream::deep::"),
    ("model", "recommender_model::upstream::deep::"),
    ("history", "prometheus::recommender::upstream_differential::deep::"),
    ("day", "scripted_day::deep::"),
];
/// Folder in the cache: one file per part, whose mtime is the part's last successful run.
const STAMPS: &str = "deep";

/// Runs one part, or all; returns whether it succeeded.
pub fn deep(part: Option<&str>, seed: Option<u64>) -> Result<bool> {
    let started = Instant::now();
    let is_wanted = |name: &str| part.is_none_or(|part| part == name);
    let mut is_well = true;
    if is_wanted(DOCS) {
        is_well &= docs()?;
    }
    if is_wanted(IMAGE) {
        is_well &= image::image(false)?;
    }
    if part.is_none_or(|part| part != DOCS && part != IMAGE) {
        let filters = part.map(str::to_owned).into_iter().collect();
        let options =
            Options { tier: Tier::Deep, filters, seed, keep_going: true, ..Options::default() };
        is_well &= suite::run(&options)?;
    }
    progress(format_args!("{:>14}  deep: {}", seconds(started.elapsed()), part.unwrap_or("all")));
    if is_well {
        stamp(part.unwrap_or("all"))?;
    }
    Ok(is_well)
}

/// Runs the live tests that record upstream's behavior, of one part or of all.
pub fn record(part: Option<&str>) -> Result<bool> {
    let parts = RECORDED.iter().filter(|(name, _)| part.is_none_or(|part| part == *name));
    let filters: Vec<String> = parts.map(|(_, tests)| format!("^{tests}")).collect();
    if filters.is_empty() {
        let names: Vec<_> = RECORDED.iter().map(|(name, _)| *name).collect();
        bail!(
            "there is no recording {:?}; there are {}",
            part.unwrap_or_default(),
            names.join(", ")
        );
    }
    suite::run(&Options { tier: Tier::Record, filters, keep_going: true, ..Options::default() })
}

fn docs() -> Result<bool> {
    let run = |arguments: &[&str]| -> Result<bool> {
        let status = Command::new(cargo())
            .current_dir(root())
            .args(arguments)
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .context("failed to start cargo")?;
        Ok(status.success())
    };
    let lints =
        ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"];
    Ok(run(&["doc", "--no-deps", "--workspace", "--locked", "--quiet"])? && run(&lints)?)
}

fn stamp(part: &str) -> Result<()> {
    let folder = cache::folder()?.join(STAMPS);
    fs::create_dir_all(&folder)?;
    writeln!(fs::File::create(folder.join(part))?, "ended well")?;
    Ok(())
}

/// The age of the last successful full run.
pub fn age() -> String {
    let path = cache::folder().map(|cache| cache.join(STAMPS).join("all"));
    let modified = path.ok().and_then(|path| fs::metadata(path).ok()?.modified().ok());
    let Some(modified) = modified else { return "never on this machine".to_owned() };
    let now = now().as_secs();
    let then = modified.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    format!("{} hours ago", now.saturating_sub(then) / 3_600)
}

#[expect(clippy::disallowed_methods, reason = "compared with the age of a file")]
fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
