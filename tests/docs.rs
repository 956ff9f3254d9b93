//! The parts of the documentation that are made from code are up to date, and no page points nowhere.

use std::{fmt::Write as _, fs, path::Path};

use plimsoll::{
    cli::flags,
    compat::Fix,
    explain::{Report, text},
    look::{Glyphs, Look},
    recommend::tuning::{KEYS, PROFILES, Profile},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn page(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares what stands between two markers of a page with what the code says; `UPDATE=1` writes it.
fn generated(path: &str, name: &str, wanted: &str) {
    let (begin, end) = (format!("<!-- begin {name} -->\n"), format!("<!-- end {name} -->"));
    let text = page(path);
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{path}: no {begin}"));
    let (found, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{path}: no {end}"));
    if found != wanted && std::env::var_os("UPDATE").is_some() {
        let text = format!("{before}{begin}{wanted}{end}{after}");
        fs::write(Path::new(ROOT).join(path), text).expect("the page can be written");
        return;
    }
    assert_eq!(found, wanted, "{path}: {name} is out of date; run the tests with UPDATE=1");
}

#[test]
fn the_annotations_in_the_documentation_are_those_of_the_code() {
    let known: Vec<String> = flags::recommender().into_iter().map(|flag| flag.name).collect();
    let mut table = String::from(
        "| annotation | value | on | read by | goes before | what it does |\n|---|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let strangers = key.flags.iter().filter(|name| !known.iter().any(|known| known == *name));
        assert_eq!(strangers.count(), 0, "{}: no such flag", key.name);
        let flags: Vec<String> = key.flags.iter().map(|name| format!("`--{name}`")).collect();
        let (name, wanted, effect, flags) = (key.name, key.wanted, key.effect, flags.join(", "));
        writeln!(table, "| `{name}` | {wanted} | VPA | recommender | {flags} | {effect} |")
            .expect("fits");
    }
    generated("docs/configuration.md", "annotations", &table);
}

#[test]
fn the_profiles_in_the_documentation_are_those_of_the_code() {
    let mut table = String::from(
        "| profile | CPU percentile | memory percentile | margin | meant for |\n|---|---|---|---|---|\n",
    );
    let cell =
        |value: Option<f64>| value.map_or_else(|| "default".into(), |value| value.to_string());
    for Profile { name, meant_for, tuning } in PROFILES {
        let (cpu, memory) = (cell(tuning.cpu_percentile), cell(tuning.memory_percentile));
        let margin = cell(tuning.margin);
        writeln!(table, "| `{name}` | {cpu} | {memory} | {margin} | {meant_for} |").expect("fits");
    }
    generated("docs/configuration.md", "profiles", &table);
}

#[test]
fn the_metrics_in_the_documentation_are_those_of_the_code() {
    generated("docs/metrics.md", "families", &crate::metrics::documentation());
}

#[test]
fn the_flags_of_the_recommender_in_the_documentation_are_those_of_the_code() {
    let mut tables = String::new();
    let mut heading = None;
    for flag in flags::recommender() {
        if heading.as_ref() != Some(&flag.heading) {
            let title = if flag.heading.is_empty() { "Recommender" } else { &flag.heading };
            writeln!(tables, "\n### {title}\n").expect("fits");
            tables.push_str("| flag | default | environment | what it does |\n|---|---|---|---|\n");
            heading = Some(flag.heading.clone());
        }
        let default =
            if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
        let about = flag.about.replace('|', "\\|");
        writeln!(tables, "| `--{}` | {default} | `{}` | {about} |", flag.name, flag.environment)
            .expect("fits");
    }
    tables.push('\n');
    generated("docs/configuration.md", "recommender flags", &tables);
}

#[test]
fn every_annotation_that_is_written_is_documented() {
    let page = page("docs/configuration.md");
    let (_, written) = page.split_once("## Annotations that Plimsoll writes").expect("a chapter");
    for (key, on) in [
        (plimsoll_storage::checkpoint::annotation::KEY, "VerticalPodAutoscalerCheckpoint"),
        (plimsoll::recommend::annotation::KEY, "VerticalPodAutoscaler"),
    ] {
        assert!(written.contains(&format!("\n| `{key}` | {on} |")), "{key} has no row");
    }
}

#[test]
fn every_fix_has_its_row_and_its_test() {
    let (page, tests) = (page("docs/compatibility.md"), page("tests/model/fixes.rs"));
    for fix in Fix::ALL {
        assert!(page.contains(&format!("\n| `{fix}` |")), "{fix} has no row");
        let test = format!("fn {}()", fix.name().replace('-', "_"));
        assert!(tests.contains(&test), "{fix} has no test");
    }
}

#[test]
fn the_sample_in_the_readme_is_what_the_demo_prints() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["demo", "--seed", "42"])
        .env_clear()
        .env("LANG", "C.UTF-8")
        .output()
        .expect("the program starts");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let readme = page("README.md");
    let (_, sample) = readme.split_once("```text\n").expect("the README shows the demo");
    let (sample, _) = sample.split_once("```").expect("the sample ends");
    let mut lines = printed.lines();
    for line in sample.lines() {
        // The sample leaves lines out, and keeps the order of the others.
        assert!(lines.any(|printed| printed == line), "the demo does not print it there: {line}");
    }
    assert!(sample.lines().count() > 10, "{sample}");
}

#[test]
fn the_explanation_in_the_readme_is_what_is_printed_for_the_sample() {
    let report: Report = serde_json::from_str(&page("tests/data/explain-vpa.json")).expect("JSON");
    let look =
        Look { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = text::render(&report, &look);
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    generated("README.md", "explanation", &format!("```text\n{printed}```\n"));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut links = 0;
    for path in pages() {
        let folder = Path::new(ROOT).join(&path);
        let folder = folder.parent().expect("a page lies in a folder");
        for link in page(&path).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with('#') {
                continue;
            }
            let target = folder.join(link.split('#').next().unwrap_or(link));
            assert!(target.exists(), "{path} points to {link}");
            links += 1;
        }
    }
    assert!(links > 5, "only {links} links were looked at");
}

fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).expect("there is documentation");
    for entry in docs.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            pages.push(format!("docs/{name}"));
        }
    }
    pages
}
