//! tests/suite.toml: the phase and lane of each test, and the sources and tests of each area.

use std::fs;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::tests_path;

/// When a test runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// First, one more thread than cores: they use no cluster and no server.
    #[default]
    Pure,
    /// Second, many at once: they mostly wait.
    Cluster,
    /// Last, one at a time, each in its own process: they depend on real time.
    Alone,
}

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    lane: Vec<LaneRule>,
    area: Vec<Area>,
}

/// Tests that run in one process, concurrently with other lanes of their phase. Tests without a lane are pure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneRule {
    /// Its name in the report.
    pub name: String,
    /// When it runs.
    pub phase: Phase,
    /// Number of threads.
    #[serde(default = "one")]
    pub threads: usize,
    /// Prefixes of test names; the longest match wins.
    pub tests: Vec<String>,
}

/// Sources, and the tests that run when one of them changes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// Name on the command line.
    pub name: String,
    /// Prefixes of paths.
    pub sources: Vec<String>,
    /// Prefixes of test names, such as `plimsoll::cluster::write::` or `updater::`.
    pub tests: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flaky {
    #[serde(default)]
    test: Vec<FlakyTest>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlakyTest {
    name: String,
    #[expect(dead_code, reason = "for readers of the file")]
    seen: String,
}

fn one() -> usize {
    1
}

// === impl Phase ===

impl Phase {
    /// Its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure tests",
            Self::Cluster => "cluster tests",
            Self::Alone => "tests alone",
        }
    }
}

// === impl Suite ===

impl Suite {
    /// Reads the file.
    pub fn load() -> Result<Self> {
        let path = tests_path("suite.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    pub fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// The lane of a test, by its name in reports; `None` if it is pure.
    pub fn lane(&self, name: &str) -> Option<&LaneRule> {
        let fits = |lane: &LaneRule| longest(&lane.tests, name);
        let best = self.lane.iter().filter_map(|lane| Some((fits(lane)?, lane)));
        best.max_by_key(|(length, _)| *length).map(|(_, lane)| lane)
    }

    /// The areas of a source file: those with the longest matching prefix.
    pub fn areas_of(&self, path: &str) -> Vec<&Area> {
        let fitting: Vec<_> = self
            .area
            .iter()
            .filter_map(|area| Some((longest(&area.sources, path)?, area)))
            .collect();
        let best = fitting.iter().map(|(length, _)| *length).max();
        fitting
            .into_iter()
            .filter(|(length, _)| Some(*length) == best)
            .map(|(_, area)| area)
            .collect()
    }

    /// The area with this name.
    pub fn area(&self, name: &str) -> Option<&Area> {
        self.area.iter().find(|area| area.name == name)
    }

    /// Names of all areas.
    pub fn area_names(&self) -> impl Iterator<Item = &str> {
        self.area.iter().map(|area| area.name.as_str())
    }

    /// Names of tests that were flaky in an earlier run, from tests/flaky.toml.
    pub fn flaky() -> Result<Vec<String>> {
        let path = tests_path("flaky.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file: Flaky = toml::from_str(&text).with_context(|| path.display().to_string())?;
        Ok(file.test.into_iter().map(|test| test.name).collect())
    }
}

impl Area {
    /// Whether the test with this name belongs to the area.
    pub fn has(&self, name: &str) -> bool {
        longest(&self.tests, name).is_some()
    }
}

fn longest(beginnings: &[String], name: &str) -> Option<usize> {
    let fitting = beginnings.iter().filter(|beginning| name.starts_with(beginning.as_str()));
    fitting.map(String::len).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [[lane]]
        name = "cluster"
        phase = "cluster"
        threads = 6
        tests = ["updater::", "watermark_controller::"]

        [[lane]]
        name = "heavy"
        phase = "cluster"
        tests = ["updater::eviction_storm::"]

        [[area]]
        name = "updater"
        sources = ["core/src/updater/", "src/controllers/updater/"]
        tests = ["updater_decisions::", "updater::", "plimsoll_core::updater::"]

        [[area]]
        name = "run"
        sources = ["src/controllers/", "core/src/updater/plan.rs"]
        tests = ["all_in_one::"]
    "#;

    #[test]
    fn the_longest_prefix_of_a_test_name_selects_its_lane() {
        let suite = Suite::parse(TEXT).expect("valid TOML");
        let lane = |name: &str| suite.lane(name).map(|lane| (lane.name.as_str(), lane.threads));
        assert_eq!(lane("updater::workload_kinds::one"), Some(("cluster", 6)));
        assert_eq!(lane("updater::eviction_storm::one"), Some(("heavy", 1)));
        assert_eq!(lane("updater_decisions::passes::one"), None);
    }

    #[test]
    fn the_longest_prefix_of_a_path_selects_its_areas() {
        let suite = Suite::parse(TEXT).expect("valid TOML");
        let areas = |path: &str| -> Vec<String> {
            suite.areas_of(path).iter().map(|area| area.name.clone()).collect()
        };
        assert_eq!(areas("core/src/updater/pass.rs"), ["updater"]);
        assert_eq!(areas("core/src/updater/plan.rs"), ["run"]);
        assert_eq!(areas("src/controllers/all_in_one.rs"), ["run"]);
        assert!(areas("README.md").is_empty());
    }

    #[test]
    fn a_misspelled_key_is_rejected() {
        assert!(Suite::parse("[[lane]]\nnam = 'x'\n").is_err());
    }

    #[test]
    fn the_committed_configuration_files_are_valid() {
        let suite = Suite::load().expect("tests/suite.toml");
        Suite::flaky().expect("tests/flaky.toml");
        assert!(suite.area_names().count() > 5);
    }
}
