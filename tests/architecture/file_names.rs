//! Rules for source files: each starts with a line that says what it contains, has a specific name, and is compiled.

use std::path::Path;

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
    let files = sources(&["charts", "core", "src", "storage", "tests", "benches", "xtask"]);
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

/// Files that no `mod` declares: the compiler never reads them. Files directly in `benches` are targets.
fn undeclared(files: &[(String, String)]) -> Vec<&str> {
    let is_declared = |path: &str| {
        let path = Path::new(path);
        let stem =
            |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = path.parent().unwrap_or(path);
        let (folder, name) = match stem(path) {
            name if name == "mod" => (folder.parent().unwrap_or(folder), stem(folder)),
            name => (folder, name),
        };
        let declaration = format!("mod {name};");
        ["lib", "main", "tests"].contains(&&*name)
            || folder == Path::new("benches")
            || files.iter().any(|(other, text)| {
                Path::new(other).parent().is_some_and(|above| folder.starts_with(above))
                    && text.lines().any(|line| line.ends_with(&declaration))
            })
    };
    files.iter().map(|(path, _)| &**path).filter(|path| !is_declared(path)).collect()
}

#[test]
fn every_file_is_compiled() {
    let files = sources(&["charts", "core", "src", "storage", "tests", "benches", "xtask"]);
    assert_eq!(undeclared(&files), [""; 0]);
}

#[test]
fn a_file_that_is_not_compiled_is_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file("src/lib.rs", "mod budget;\npub mod guard {\n    mod window;\n}\n"),
        file("src/budget.rs", ""),
        file("src/guard/window.rs", ""),
        file("src/guard/breaker.rs", ""),
    ];
    assert_eq!(undeclared(&files), ["src/guard/breaker.rs"]);
}
