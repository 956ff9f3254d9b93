//! The areas that a change touches, and the lints and tests of those alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use xtask::console::{progress, seconds};

use super::config::Suite;
use super::{Options, run};
use crate::workspace::{cargo, root};

/// Which tests of a tier run.
#[derive(Debug, Default)]
pub struct Selection {
    suite: Option<Suite>,
    areas: BTreeSet<String>,
    is_pure_only: bool,
}

// === impl Selection ===

impl Selection {
    /// The tests of these areas.
    fn of(suite: Suite, areas: BTreeSet<String>, is_pure_only: bool) -> Self {
        Self { suite: Some(suite), areas, is_pure_only }
    }

    /// Whether all tests are selected.
    pub fn is_all(&self) -> bool {
        self.suite.is_none()
    }

    /// Whether the test with this name is selected.
    pub fn includes(&self, name: &str) -> bool {
        let Some(suite) = &self.suite else { return true };
        let areas = self.areas.iter().filter_map(|area| suite.area(area));
        let is_pure = suite.lane(name).is_none();
        areas.into_iter().any(|area| area.has(name)) && (is_pure || !self.is_pure_only)
    }
}

/// Lints the crates, and runs unit and pure tests of the areas, that differ from the main branch; or of the named
/// areas.
pub fn quick(named: &[String]) -> Result<bool> {
    let started = Instant::now();
    let suite = Suite::load()?;
    let changed = changed()?;
    let areas = if named.is_empty() { touched(&suite, &changed) } else { known(&suite, named)? };
    if areas.is_empty() && packages(&changed).is_empty() {
        progress("no area has changed; `cargo xtask area NAME` runs the tests of an area");
        return Ok(true);
    }
    let list = areas.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    progress(format_args!("areas: {list}"));
    for package in packages(&changed) {
        let clippy = Command::new(cargo())
            .current_dir(root())
            .args(["clippy", "--quiet", "--package", package, "--lib", "--bins", "--tests"])
            .args(["--locked", "--", "-D", "warnings"])
            .status()
            .context("failed to start cargo clippy")?;
        ensure!(clippy.success(), "clippy failed for {package}");
    }
    progress(format_args!("{:>14}  lints", seconds(started.elapsed())));
    let selection = Selection::of(suite, areas, true);
    run(&Options { selection, set_up: false, ..Options::default() })
}

/// Runs all tests of an area, including those on a cluster.
pub fn area(name: &str) -> Result<bool> {
    let suite = Suite::load()?;
    let areas = known(&suite, &[name.to_owned()])?;
    let selection = Selection::of(suite, areas, false);
    run(&Options { selection, set_up: false, keep_going: true, ..Options::default() })
}

fn known(suite: &Suite, names: &[String]) -> Result<BTreeSet<String>> {
    for name in names {
        if suite.area(name).is_none() {
            let all: Vec<_> = suite.area_names().collect();
            bail!("there is no area {name:?}; tests/suite.toml has {}", all.join(", "));
        }
    }
    Ok(names.iter().cloned().collect())
}

fn touched(suite: &Suite, changed: &[String]) -> BTreeSet<String> {
    changed.iter().flat_map(|path| suite.areas_of(path)).map(|area| area.name.clone()).collect()
}

/// The packages whose sources changed.
fn packages(changed: &[String]) -> BTreeSet<&'static str> {
    let is_source = |path: &&String| {
        Path::new(path)
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "toml")
    };
    let sources = changed.iter().filter(is_source);
    sources
        .filter_map(|path| match path.split('/').next()? {
            "charts" => Some("plimsoll-charts"),
            "core" => Some("plimsoll-core"),
            "storage" => Some("plimsoll-storage"),
            "xtask" => Some("xtask"),
            "benches" => None,
            _ => Some("plimsoll"),
        })
        .collect()
}

/// Files that differ from the merge base with the main branch, or on the main branch from the last commit.
fn changed() -> Result<Vec<String>> {
    let base = ["origin/main", "main"]
        .iter()
        .find_map(|branch| git(&["merge-base", "HEAD", branch]).ok())
        .unwrap_or_else(|| "HEAD".to_owned());
    let tracked = git(&["diff", "--name-only", base.trim()])?;
    let new = git(&["ls-files", "--others", "--exclude-standard"])?;
    Ok(tracked.lines().chain(new.lines()).map(str::to_owned).collect())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(root()).args(arguments).output().context("git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [[lane]]
        name = "cluster"
        phase = "cluster"
        tests = ["updater::"]
        [[area]]
        name = "updater"
        sources = ["core/src/updater/"]
        tests = ["updater_decisions::", "updater::"]
    "#;

    #[test]
    fn a_change_selects_the_areas_and_packages_that_it_touches() {
        let suite = Suite::parse(TEXT).expect("TOML");
        let changed = [
            "core/src/updater/pass.rs",
            "src/controllers/updater.rs",
            "storage/src/lib.rs",
            "README.md",
        ]
        .map(str::to_owned);
        assert_eq!(touched(&suite, &changed), BTreeSet::from(["updater".to_owned()]));
        assert_eq!(
            packages(&changed),
            BTreeSet::from(["plimsoll", "plimsoll-core", "plimsoll-storage"])
        );
        known(&suite, &["update".to_owned()]).expect_err("no such area");
    }

    #[test]
    fn the_quick_run_excludes_tests_on_a_cluster() {
        let areas = BTreeSet::from(["updater".to_owned()]);
        let suite = || Suite::parse(TEXT).expect("TOML");
        let quick = Selection::of(suite(), areas.clone(), true);
        assert!(
            quick.includes("updater_decisions::a")
                && !quick.includes("updater::a")
                && !quick.includes("sizing::a")
        );
        let all = Selection::of(suite(), areas, false);
        assert!(all.includes("updater::a") && !all.includes("sizing::a"));
        assert!(Selection::default().includes("sizing::a") && Selection::default().is_all());
    }
}
