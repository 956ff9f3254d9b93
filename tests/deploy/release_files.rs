//! The files of a release, installed by the programs of their readers: the kubectl plugin by krew, the chart by Helm, the
//! mixin by jsonnet.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;
use xtask::{
    archive::{self, Entry},
    chart, krew, test_programs,
};

use super::{
    ROOT,
    rendered_manifests::{self, chart_template},
};
use crate::support::skipped::report_skipped;

/// An archive as `cargo xtask release` makes it, of the program that the tests run.
fn program_archive(folder: &TempDir) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    let entries = [
        Entry::of(program, "plimsoll", true).expect("the program"),
        Entry::of(&Path::new(ROOT).join("LICENSE"), "LICENSE", false).expect("the licence"),
    ];
    let path = folder.path().join("plimsoll-linux-amd64.tar.gz");
    archive::write(&path, &entries).expect("an archive")
}

/// The program is not stripped here, so that packing it takes a few seconds.
#[test]
fn krew_installs_the_plugin_from_the_manifest_of_a_release() {
    let krew_program = match test_programs::krew() {
        Ok(program) => program,
        Err(why) => return report_skipped(format!("{why:#}")),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let archive = program_archive(&folder);
    let release = krew::Release {
        version: "v0.1.0".to_owned(),
        homepage: "https://example.com/plimsoll".to_owned(),
        url: "https://example.com/plimsoll/releases/v0.1.0".to_owned(),
        archives: vec![archive.clone()],
    };
    let manifest = folder.path().join("plimsoll.yaml");
    fs::write(&manifest, krew::manifest(Path::new(ROOT), &release).expect("valid"))
        .expect("a file");
    let output = Command::new(krew_program)
        .args(["install", "--manifest"])
        .arg(&manifest)
        .arg("--archive")
        .arg(&archive)
        .env("KREW_ROOT", folder.path().join("krew"))
        .env("HOME", folder.path())
        .env("KREW_NO_UPGRADE_CHECK", "1")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("krew starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plugin = folder.path().join("krew/bin/kubectl-plimsoll");
    let help = Command::new(plugin).arg("--help").env_clear().output().expect("it starts");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(help.contains("kubectl plimsoll"), "{help}");
    let license = folder.path().join("krew/store/plimsoll/v0.1.0/LICENSE");
    assert!(license.exists(), "the licence is installed too");
}

#[test]
fn helm_accepts_the_chart_of_a_release_and_renders_it_with_its_image() {
    let image = "ghcr.io/example/plimsoll";
    let value = format!("image.repository={image}");
    let Some(expected) = chart_template(&[value.as_str()]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let release = chart::Release {
        commit: "0123abcd".to_owned(),
        homepage: "https://example.com/plimsoll".to_owned(),
        image: Some(image.to_owned()),
    };
    let entries = chart::entries(Path::new(ROOT), &release).expect("the chart");
    let packed = archive::write(&folder.path().join("plimsoll-0.1.0.tgz"), &entries);
    let packed = packed.expect("an archive").display().to_string();
    let succeed = |words: &[&str]| -> String {
        let output = rendered_manifests::helm(words).expect("Helm is there");
        output.unwrap_or_else(|why| panic!("{words:?}: {why}"))
    };
    let rendered = succeed(&["template", "plimsoll", &packed, "--namespace=autoscaling"]);
    assert_eq!(rendered_manifests::objects(&rendered), expected);
    let lint = succeed(&["lint", "--strict", &packed]);
    assert!(!lint.contains("[WARNING]") && !lint.contains("[INFO]"), "{lint}");
    let about = succeed(&["show", "chart", &packed]);
    let tagged = format!("image: {image}:0.1.0");
    for wanted in [tagged.as_str(), "home: https://example.com/plimsoll"] {
        assert!(about.contains(wanted), "{wanted}: {about}");
    }
}

/// Renders the mixin with additional configuration.
fn mixin(configuration: &str) -> Option<Value> {
    let program =
        test_programs::jsonnet().map_err(|why| report_skipped(format!("{why:#}"))).ok()?;
    let path = Path::new(ROOT).join("deploy/mixin.libsonnet");
    let code = format!(
        "local mixin = (import '{}') + {{ _config+:: {{ {configuration} }} }}; \
         {{ boards: mixin.grafanaDashboards, alerts: mixin.prometheusAlerts, rules: mixin.prometheusRules }}",
        path.display()
    );
    let output = Command::new(program).args(["--exec", &code]).output().expect("jsonnet starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// jsonnet has one type of numbers.
fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.into_iter().map(with_floats).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (name, with_floats(field))).collect()
        }
        other => other,
    }
}

#[test]
fn the_mixin_renders_the_boards_and_rules_that_are_shipped() {
    let Some(rendered) = mixin("") else { return };
    let root = Path::new(ROOT);
    let mut boards = 0;
    for file in fs::read_dir(root.join("grafana")).expect("a folder").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if file.path().extension().is_some_and(|extension| extension == "json") {
            let text = fs::read_to_string(file.path()).expect("a board");
            let board: Value = serde_json::from_str(&text).expect("JSON");
            let mixed = with_floats(rendered["boards"][format!("plimsoll-{name}")].clone());
            assert!(mixed == with_floats(board), "{name} differs");
            boards += 1;
        }
    }
    assert_eq!(rendered["boards"].as_object().expect("boards").len(), boards);
    for (name, file) in [("alerts", "alerts.yaml"), ("rules", "recording.yaml")] {
        let shipped = super::documents(&root.join("deploy/monitoring").join(file)).remove(0);
        assert!(with_floats(rendered[name].clone()) == with_floats(shipped), "{file} differs");
    }
}

#[test]
fn the_configuration_of_the_mixin_reaches_every_query() {
    let configuration =
        "clusterLabel: 'k8s_cluster', selector: 'team=\"a\"', runbookUrl: 'https://wiki/books'";
    let Some(rendered) = mixin(configuration) else { return };
    let text = rendered.to_string();
    for gone in [
        "https://plimsoll.dev/docs/runbooks",
        "{cluster=",
        "by (cluster",
        "$labels.cluster",
        ", cluster)",
    ] {
        assert!(!text.contains(gone), "{gone}");
    }
    for there in [
        "{team=\\\"a\\\", k8s_cluster=~\\\"$cluster\\\"",
        "by (k8s_cluster",
        "$labels.k8s_cluster",
        "https://wiki/books/PlimsollRoleAbsent.md",
    ] {
        assert!(text.contains(there), "{there}");
    }
}
