//! The threat model in SECURITY.md: every threat names tests, and they are there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use plimsoll::{
    explain::{Report, text},
    look::{Glyphs, Look},
};
use serde_json::{Value, json};

use super::ROOT;
use crate::support::log;

/// The rows of the threat model: the threat, what stands against it, and the tests.
fn threats() -> Vec<(String, String, Vec<String>)> {
    let page = fs::read_to_string(Path::new(ROOT).join("SECURITY.md")).expect("it is there");
    let (_, model) = page.split_once("## Threats").expect("a threat model");
    let (model, _) = model.split_once("\n## ").expect("what it does not stand against");
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

/// The names of all tests in the sources.
fn tests() -> BTreeSet<String> {
    let mut pending: Vec<PathBuf> =
        ["src", "tests", "storage", "xtask"].map(|folder| Path::new(ROOT).join(folder)).into();
    let mut names = BTreeSet::new();
    while let Some(folder) = pending.pop() {
        for path in fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                names.extend(tests_of(&fs::read_to_string(&path).expect("text")));
            }
        }
    }
    names
}

/// The functions of a source that follow an attribute of a test.
fn tests_of(source: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        let begins = ["#[test]", "#[tokio::test"].iter().any(|word| line.starts_with(word));
        // Those of property tests stand inside of a macro, each with its own attribute.
        is_test |= begins;
        if let Some((_, rest)) = line.split_once("fn ") {
            if is_test {
                found.extend(rest.split('(').next().map(str::to_owned));
            }
            is_test = false;
        }
    }
    found
}

#[test]
fn every_threat_names_tests_that_there_are() {
    let (threats, tests) = (threats(), tests());
    assert!(threats.len() > 25, "only {} threats were read", threats.len());
    assert!(tests.len() > 500, "only {} tests were found", tests.len());
    for (threat, answer, named) in threats {
        assert!(!answer.is_empty(), "{threat}");
        for name in named {
            assert!(tests.contains(&name), "{threat}: there is no test {name:?}");
        }
    }
    assert_eq!(
        tests_of("#[test]\nfn a() {}\nfn b() {}\n#[tokio::test]\nasync fn c() {"),
        ["a", "c"]
    );
}

#[test]
fn control_characters_of_users_are_escaped_in_logs_and_explanations() {
    let nasty = "\u{1b}[2Jgone\u{7}\u{9b}31m";
    let sample = fs::read_to_string(Path::new(ROOT).join("tests/data/explain-vpa.json"));
    let mut sample: Value = serde_json::from_str(&sample.expect("a sample")).expect("JSON");
    let conditions = sample["conditions"].as_array_mut().expect("conditions");
    conditions[0]["message"] = json!(nasty);
    conditions[0]["reason"] = json!(nasty);
    let report: Report = serde_json::from_value(sample).expect("a report");
    let look =
        Look { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = text::render(&report, &look);
    let (words, guard) = log::keep();
    tracing::warn!(target: "plimsoll", name = nasty, other = %nasty, "said: {nasty}");
    drop(guard);
    for shown in [printed, words.text()] {
        assert!(shown.contains("gone"), "{shown:?}");
        let controls = |letter: char| letter.is_control() && letter != '\n';
        assert!(!shown.contains(controls), "{shown:?}");
    }
}

#[test]
fn no_source_of_ours_may_be_unsafe() {
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
