//! The test binaries of the workspace: how to build them, and their tests.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::workspace::{cargo, root};

/// A test executable.
#[derive(Debug)]
pub struct Binary {
    /// The package for unit tests; empty for integration tests, whose names say what they test.
    prefix: String,
    /// Path of the executable.
    pub path: PathBuf,
    /// Folder of its package, which is the working directory that cargo would use.
    pub folder: PathBuf,
}

/// Builds all test binaries of the workspace.
pub fn build() -> Result<Vec<Binary>> {
    let mut command = Command::new(cargo());
    // cargo sets these for xtask. Build scripts that depend on them would run again and rebuild half of the
    // dependencies.
    for (name, _) in env::vars_os().filter(|(name, _)| is_about_package(&name.to_string_lossy())) {
        command.env_remove(name);
    }
    command.current_dir(root()).args(["test", "--workspace", "--no-run", "--locked"]);
    // Not json-diagnostic-rendered-ansi, so that errors go to stderr as in any other build.
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output().context("failed to start cargo")?;
    ensure!(output.status.success(), "failed to build the tests");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| found(&serde_json::from_str(line).ok()?)).collect())
}

fn is_about_package(variable: &str) -> bool {
    variable == "CARGO"
        || ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|it| variable.starts_with(it))
}

/// The test binary in a cargo message.
fn found(message: &Value) -> Option<Binary> {
    if message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let target = message["target"]["name"].as_str()?;
    let is_integration = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    let prefix =
        if is_integration { String::new() } else { format!("{}::", target.replace('-', "_")) };
    Some(Binary { prefix, path, folder })
}

// === impl Binary ===

impl Binary {
    /// Lists its tests.
    pub fn list(&self) -> Result<Vec<String>> {
        let output = Command::new(&self.path)
            .current_dir(&self.folder)
            .args(["--list", "--format", "terse"])
            .output()
            .with_context(|| self.path.display().to_string())?;
        ensure!(output.status.success(), "{} failed to list its tests", self.path.display());
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// The name of a test in reports and filters: that of a unit test starts with its crate.
    pub fn full_name(&self, test: &str) -> String {
        format!("{}{test}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(kind: &str, is_test: bool) -> Value {
        json!({
            "reason": "compiler-artifact",
            "manifest_path": "/src/storage/Cargo.toml",
            "target": {"kind": [kind], "name": "plimsoll-storage"},
            "profile": {"test": is_test},
            "executable": "/target/debug/deps/plimsoll_storage-1",
        })
    }

    #[test]
    fn unit_tests_are_prefixed_with_their_crate_and_integration_tests_are_not() {
        let unit = found(&message("lib", true)).expect("a test binary");
        assert_eq!(unit.full_name("key::works"), "plimsoll_storage::key::works");
        assert_eq!(unit.folder, Path::new("/src/storage"));
        let integration = found(&message("test", true)).expect("a test binary");
        assert_eq!(integration.full_name("key::works"), "key::works");
        assert!(found(&message("bin", false)).is_none());
    }
}
