//! The generated parts of the documentation are up to date, and all links are valid.

use std::{fmt::Write as _, fs, path::Path};

use plimsoll::{
    cli,
    report::{
        doctor,
        explain::{HpaReport, PodReport, VpaReport, hpa, pod, vpa},
        style::{Glyphs, Style},
    },
};
use plimsoll_core::{
    api::{
        annotations::{VPA_KEYS, WPA_KEYS},
        hpa_annotations::HPA_KEYS,
    },
    hpa::takeover::{BEHAVIOR, MODE},
    recommender::tuning_annotations::{PROFILES, Profile},
    types::compat::Fix,
};

use strum::VariantArray as _;

use crate::support::flags;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub fn page(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares the text between two markers of a page with the generated one; `UPDATE=1` writes it.
pub fn generated(path: &str, name: &str, wanted: &str) {
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
fn the_documented_annotations_match_the_code() {
    let roles = ["recommender", "admission-controller", "updater", "horizontal"];
    let roles = roles.map(flags::of_role);
    let known: Vec<String> = roles.into_iter().flatten().map(|flag| flag.name).collect();
    for (page, name, object, keys) in [
        ("configuration", "annotations", "VPA", &VPA_KEYS[..]),
        ("configuration", "watermark-annotations", "WPA", &WPA_KEYS[..]),
        ("horizontal", "annotations", "HPA", &[&[MODE, BEHAVIOR][..], &HPA_KEYS].concat()),
    ] {
        let mut table = String::from(
            "| annotation | value | on | read by | goes before | what it does |\n|---|---|---|---|---|---|\n",
        );
        for key in keys {
            let strangers = key
                .overridden_flags
                .iter()
                .filter(|name| !known.iter().any(|known| known == *name));
            assert_eq!(strangers.count(), 0, "{}: no such flag", key.name);
            let flags: Vec<String> =
                key.overridden_flags.iter().map(|name| format!("`--{name}`")).collect();
            let (name, wanted, effect) = (key.name, key.expected, key.effect);
            let (readers, flags) = (key.applied_by.join(", "), flags.join(", "));
            writeln!(table, "| `{name}` | {wanted} | {object} | {readers} | {flags} | {effect} |")
                .expect("fits");
        }
        generated(&format!("docs/{page}.md"), name, &table);
    }
}

#[test]
fn the_documented_profiles_match_the_code() {
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
fn the_documented_metrics_match_the_code() {
    generated("docs/metrics.md", "families", &crate::metrics::documentation());
}

#[test]
fn the_documented_flags_match_the_code() {
    flag_tables("recommender", "Recommender", flags::of_role("recommender"));
    flag_tables(
        "admission controller",
        "Admission controller",
        flags::of_role("admission-controller"),
    );
    flag_tables("updater", "Updater", flags::of_role("updater"));
    flag_tables("watermark", "Watermark controller", flags::of_role("watermark"));
    flag_tables("horizontal", "Horizontal controller", flags::of_role("horizontal"));
}

fn flag_tables(role: &str, first: &str, flags: Vec<flags::Flag>) {
    let mut tables = String::new();
    let mut heading = None;
    for flag in flags {
        if heading.as_ref() != Some(&flag.heading) {
            let title = if flag.heading.is_empty() { first } else { &flag.heading };
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
    generated("docs/configuration.md", &format!("{role} flags"), &tables);
}

#[test]
fn every_annotation_that_plimsoll_writes_is_documented() {
    let page = page("docs/configuration.md");
    let (_, written) = page.split_once("## Annotations that Plimsoll writes").expect("a chapter");
    for (key, on) in [
        (plimsoll_storage::checkpoint::annotation::KEY, "VerticalPodAutoscalerCheckpoint"),
        (plimsoll_core::recommender::explanation_annotation::ANNOTATION, "VerticalPodAutoscaler"),
        (plimsoll_core::updater::guard::workload_state::ANNOTATION, "VerticalPodAutoscaler"),
        (plimsoll_core::updater::guard::disruption_budget::ANNOTATION, "the updater's Lease"),
    ] {
        assert!(written.contains(&format!("\n| `{key}` | {on} |")), "{key} has no row");
    }
}

#[test]
fn every_fix_has_a_row_and_a_test() {
    let files = [
        "recommender_model/fixes",
        "sizing/fixes",
        "updater_decisions/fixes",
        "watermark_decisions/fixes",
        "recommender/startup_boost",
        "admission/validation",
    ];
    let tests = files.map(|file| page(&format!("tests/{file}.rs"))).concat();
    let page = page("docs/compatibility.md");
    for fix in Fix::VARIANTS {
        assert!(page.contains(&format!("\n| `{fix}` |")), "{fix} has no row");
        let test = format!("fn {}()", fix.to_string().replace('-', "_"));
        assert!(tests.contains(&test), "{fix} has no test");
    }
    let tests = self::page("core/src/hpa/tests/fixes.rs");
    for fix in plimsoll_core::hpa::Fix::ALL {
        assert!(page.contains(&format!("\n| `{fix}` |")), "{fix} has no row");
        let test = format!("fn {}()", fix.to_string().replace('-', "_"));
        assert!(tests.contains(&test), "{fix} has no test");
    }
}

#[test]
fn the_documented_demo_is_what_the_demo_prints() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["demo", "--seed", "42"])
        .env_clear()
        .env("LANG", "C.UTF-8")
        .output()
        .expect("the program starts");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let page = page("docs/explain.md");
    let (_, demo) = page.split_once("\n## The demo\n").expect("a chapter");
    let sample = text_block(demo);
    assert_excerpt(sample, &printed);
    assert!(sample.lines().count() > 10, "{sample}");

    // The README has the figures of two lines.
    let figures = |name: &str| -> Vec<&str> {
        let line = printed.lines().find(|line| line.trim_start().starts_with(name));
        line.expect("the demo prints it").split_whitespace().collect()
    };
    let (cpu, kills) = (figures("requested CPU"), figures("OOM kills"));
    let percent = cpu.windows(2).find(|pair| pair[1].starts_with('%')).expect("a difference")[0];
    let sentence = format!(
        "{} % less CPU is requested, with {} OOM kills instead of {}",
        percent.trim_start_matches('-'),
        kills[3],
        kills[2]
    );
    let readme = self::page("README.md");
    let readme: Vec<&str> = readme.split_whitespace().collect();
    assert!(readme.join(" ").contains(&sentence), "README.md does not say: {sentence}");
}

/// The report of a run is on the page, and the first screen of the README shows a part of it.
#[test]
fn the_readme_begins_with_the_report_the_page_and_a_board() {
    let readme = page("README.md");
    let (first_screen, rest) = readme.split_once("\n## ").expect("chapters");
    assert!(readme.lines().count() <= 150, "{} lines", readme.lines().count());
    let report = page("docs/recommend.md");
    let (_, report) = report.split_once("The first run in a cluster").expect("a sample");
    let sample = text_block(first_screen);
    assert_excerpt(sample, text_block(report));
    for section in ["TOTAL", "AT RISK", "OVERPROVISIONED"] {
        assert!(sample.contains(section), "{section}");
    }
    let pictures = first_screen.split("![").skip(1).filter_map(|rest| rest.split_once("]("));
    let pictures: Vec<&str> = pictures
        .map(|(_, address)| address)
        .filter(|address| address.starts_with("docs/"))
        .collect();
    assert_eq!(pictures.len(), 2, "{pictures:?}");
    assert!(rest.contains("## Quick start"));
}

/// The first block of text of a page.
fn text_block(page: &str) -> &str {
    let (_, block) = page.split_once("```text\n").expect("a block of text");
    block.split_once("```").expect("it ends").0
}

/// Asserts that all lines of a sample are in an output, in this order.
fn assert_excerpt(sample: &str, output: &str) {
    let mut lines = output.lines();
    for line in sample.lines().filter(|line| !line.is_empty()) {
        assert!(lines.any(|printed| printed == line), "it is not printed there: {line}");
    }
}

#[test]
fn the_documented_vpa_explanation_matches_the_sample() {
    let report: VpaReport =
        serde_json::from_str(&page("tests/data/explain-vpa.json")).expect("JSON");
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = vpa::text::render(&report, &style);
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    generated("docs/explain.md", "explanation", &format!("```text\n{printed}```\n"));
}

#[test]
fn the_documented_pod_explanation_matches_the_sample() {
    let report: PodReport =
        serde_json::from_str(&page("tests/data/explain-pod.json")).expect("JSON");
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = pod::text::render(&report, &style);
    generated("docs/explain.md", "pod explanation", &format!("```text\n{printed}```\n"));
}

#[test]
fn the_documented_hpa_explanation_matches_the_sample() {
    let report: HpaReport =
        serde_json::from_str(&page("tests/data/explain-hpa.json")).expect("JSON");
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = hpa::text::render(&report, &style);
    generated("docs/explain.md", "hpa explanation", &format!("```text\n{printed}```\n"));
}

#[test]
fn the_documented_diagnosis_matches_the_sample() {
    let sample = page("tests/data/doctor-prometheus.json");
    let report: doctor::DoctorReport = serde_json::from_str(&sample).expect("JSON");
    let style =
        Style { width: 80, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() };
    let printed = doctor::text::render(&report, &style, false);
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    generated("docs/explain.md", "diagnosis", &format!("```text\n{printed}```\n"));
}

#[test]
fn links_between_pages_are_valid() {
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
    assert!(links > 5, "only {links} links were checked");
}

#[test]
fn documented_commands_can_be_run() {
    // Files that are read when a command starts: pages use the paths of an installation.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let file = file.path().display();
    let mut count = 0;
    for path in pages() {
        for line in command_lines(&page(&path)) {
            let words = words(&line);
            let words: Vec<String> = words
                .into_iter()
                .map(|word| match word.split_once('=') {
                    Some((flag, _)) if flag.ends_with("-token-file") => format!("{flag}={file}"),
                    _ => word,
                })
                .collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let Err(refused) = cli::check(&words) {
                panic!("{path}: {line}\n{refused}");
            }
            count += 1;
        }
    }
    assert!(count > 15, "only {count} command lines were checked");
    let refused = cli::check(&["plimsoll", "recommender", "--storrage=prometheus"]);
    assert!(refused.is_err_and(|line| line.contains("--storage")));
}

/// The `plimsoll` commands in the shell examples of a page, with continued lines joined, without pipes and
/// redirections.
fn command_lines(page: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for block in page.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next()) {
        let joined = block.replace("\\\n", " ");
        for line in joined.lines().map(str::trim) {
            let line = line.replace("cargo run --release -- ", "plimsoll ");
            let own = line.split(" #").next().unwrap_or_default();
            let own = own.split(" | ").next().unwrap_or_default();
            let own = own.split(" > ").next().unwrap_or_default().trim();
            lines.extend(own.starts_with("plimsoll ").then(|| own.to_owned()));
        }
    }
    lines
}

/// Splits a command line like a shell.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (_, Some(open)) if letter == open => quote = None,
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    assert_eq!(quote, None, "a quote has no end: {line}");
    words.extend(word);
    words
}

fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for folder in ["docs", "docs/runbooks"] {
        let docs = fs::read_dir(Path::new(ROOT).join(folder)).expect("there is documentation");
        for entry in docs.filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages
}
