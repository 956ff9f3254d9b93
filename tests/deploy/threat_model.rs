//! The threat model in SECURITY.md: every threat names existing tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use plimsoll::report::{
    explain::{VpaReport, vpa::text},
    style::{Glyphs, Style},
};
use serde_json::{Value, json};

use super::ROOT;
use crate::support::captured_log;

/// The rows of the threat model: threat, mitigation and tests.
fn threats() -> Vec<(String, String, Vec<String>)> {
    let page = fs::read_to_string(Path::new(ROOT).join("SECURITY.md")).expect("it exists");
    let (_, model) = page.split_once("## Threats").expect("a threat model");
    let (model, _) = model.split_once("\n## ").expect("a section after the threats");
    let rows = model.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|line| !line.starts_with("| threat |"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [threat, answer, tests] = cells[..] else { panic!("three cells: {row}") };
        let named = |part: &str| part.trim().trim_matches('`').to_owned();
        (threat.to_owned(), answer.to_owned(), tests.split(',').map(named).collect())
    })
    .collect()
}

/// All tests in the sources: file and name.
fn tests() -> Vec<(String, String)> {
    let mut pending: Vec<PathBuf> = ["charts", "core", "src", "tests", "storage", "xtask"]
        .map(|folder| Path::new(ROOT).join(folder))
        .into();
    let mut found = Vec::new();
    while let Some(folder) = pending.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(ROOT).expect("within").display().to_string();
                let names = tests_of(&fs::read_to_string(&path).expect("text"));
                found.extend(names.into_iter().map(|name| (file.clone(), name)));
            }
        }
    }
    found
}

/// The test functions of a source file, except ignored ones.
fn tests_of(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut is_test, mut is_left_out) = (false, false);
    for line in source.lines().map(str::trim) {
        let begins = ["#[test]", "#[tokio::test"].iter().any(|word| line.starts_with(word));
        // Property tests are inside a macro, each with its own attribute.
        is_test |= begins;
        is_left_out |= line.starts_with("#[ignore");
        if let Some((_, rest)) = line.split_once("fn ") {
            if is_test && !is_left_out {
                found.extend(rest.split('(').next().map(str::to_owned));
            }
            (is_test, is_left_out) = (false, false);
        }
    }
    found
}

/// The file of the test that a row names: by its name, or, if the name is ambiguous, by file, `: ` and name. An
/// ambiguous name would still be found after the intended test was removed.
fn find_test<'a>(tests: &'a [(String, String)], named: &str) -> Result<&'a str, String> {
    let (of, name) = match named.split_once(": ") {
        Some((file, name)) => (Some(file), name),
        None => (None, named),
    };
    let is_it = |(file, test): &&(String, String)| test == name && of.is_none_or(|of| file == of);
    let files: Vec<&str> = tests.iter().filter(is_it).map(|(file, _)| file.as_str()).collect();
    match files[..] {
        [file] => Ok(file),
        [] => Err(format!("there is no test {named:?}")),
        _ => Err(format!("{named:?} is in each of {files:?}: prefix it with the file")),
    }
}

#[test]
fn every_threat_names_existing_tests() {
    let (threats, tests) = (threats(), tests());
    assert!(threats.len() > 25, "only {} threats were read", threats.len());
    assert!(tests.len() > 500, "only {} tests were found", tests.len());
    for (threat, answer, named) in threats {
        assert!(!answer.is_empty(), "{threat}");
        for name in named {
            find_test(&tests, &name).unwrap_or_else(|why| panic!("{threat}: {why}"));
        }
    }
}

#[test]
fn a_threat_without_a_test_or_with_an_ambiguous_name_is_found() {
    let source = "#[test]\nfn a() {}\nfn b() {}\n#[tokio::test]\nasync fn c() {}\n";
    let left_out = "#[test]\n#[ignore = \"later\"]\nfn d() {}\n#[test]\nfn e() {}";
    assert_eq!(tests_of(&format!("{source}{left_out}")), ["a", "c", "e"]);

    let tests = [("src/one.rs", "a"), ("src/two.rs", "a"), ("src/two.rs", "b")];
    let tests = tests.map(|(file, name)| (file.to_owned(), name.to_owned()));
    assert_eq!(find_test(&tests, "b"), Ok("src/two.rs"));
    assert_eq!(find_test(&tests, "src/two.rs: a"), Ok("src/two.rs"));
    for bad in ["a", "c", "src/one.rs: b", "two.rs: a", "src/three.rs: a"] {
        assert!(find_test(&tests, bad).is_err(), "{bad}");
    }
}

#[test]
fn control_characters_of_users_are_escaped_in_logs_and_explanations() {
    let nasty = "\u{1b}[2Jgone\u{7}\u{9b}31m";
    let sample = fs::read_to_string(Path::new(ROOT).join("tests/data/explain-vpa.json"));
    let mut sample: Value = serde_json::from_str(&sample.expect("a sample")).expect("JSON");
    let conditions = sample["conditions"].as_array_mut().expect("conditions");
    conditions[0]["message"] = json!(nasty);
    conditions[0]["reason"] = json!(nasty);
    let report: VpaReport = serde_json::from_value(sample).expect("a report");
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = text::render(&report, &style);
    let (words, guard) = captured_log::capture();
    tracing::warn!(target: "plimsoll", name = nasty, other = %nasty, "said: {nasty}");
    drop(guard);
    for shown in [printed, words.text()] {
        assert!(shown.contains("gone"), "{shown:?}");
        let controls = |letter: char| letter.is_control() && letter != '\n';
        assert!(!shown.contains(controls), "{shown:?}");
    }
}

#[test]
fn unsafe_code_is_forbidden_in_all_crates() {
    let read = |path: &str| -> toml::Table {
        let text = fs::read_to_string(Path::new(ROOT).join(path)).expect("a manifest");
        text.parse().expect("TOML")
    };
    let root = read("Cargo.toml");
    assert_eq!(root["workspace"]["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
    let members = root["workspace"]["members"].as_array().expect("members");
    assert!(members.len() >= 3);
    for member in members {
        let member = member.as_str().expect("a folder");
        let manifest = read(&format!("{member}/Cargo.toml"));
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{member}");
    }
}
