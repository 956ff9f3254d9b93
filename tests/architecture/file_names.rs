//! Rules for source files: each starts with a line that says what it contains, and has a specific name.

use super::{assert_clean, sources};

/// Names that could contain anything.
const VAGUE: [&str; 9] =
    ["util", "utils", "helper", "helpers", "common", "misc", "manager", "managers", "stuff"];

fn findings(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let first = text.lines().next().unwrap_or_default();
    if first.strip_prefix("//! ").is_none_or(|owns| owns.len() <= 10) {
        findings.push(format!(
            "{path}:1: start with a line `//! ...` that says what the file contains"
        ));
    }
    let vague = path.split(['/', '.', '_']).find(|word| VAGUE.contains(word));
    if let Some(word) = vague {
        findings.push(format!("{path}: {word:?} is too vague: name the file by its content"));
    }
    findings
}

#[test]
fn every_file_starts_with_its_contents() {
    let files = sources(&["core", "src", "storage", "tests", "benches", "xtask"]);
    assert!(files.len() > 30, "only {} files were found", files.len());
    assert_clean(&files, findings);
}

#[test]
fn a_violation_of_each_file_rule_is_found() {
    assert!(findings("src/budget.rs", "//! How many pods may go at once.\n").is_empty());
    assert_eq!(findings("src/budget.rs", "use std::fs;\n").len(), 1);
    assert_eq!(findings("src/budget.rs", "//!\n").len(), 1);
    assert_eq!(findings("src/pod_utils.rs", "//! How many pods may go at once.\n").len(), 1);
    assert_eq!(findings("src/common/pod.rs", "//! How many pods may go at once.\n").len(), 1);
}
