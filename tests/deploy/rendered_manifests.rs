//! The output of kustomize and Helm for the shipped manifests.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use xtask::test_programs;

use super::ROOT;
use crate::support::skipped::report_skipped;

/// The shipped overlays.
pub const OVERLAYS: [&str; 9] = [
    "recommender-only",
    "full-vpa",
    "watermark-only",
    "horizontal-only",
    "horizontal-adopted",
    "horizontal-replace",
    "all-in-one",
    "high-availability",
    "ui",
];
/// Values that enable all objects of a release that are off by default.
pub const EVERYTHING: &[&str] = &[
    "watermark.enabled=true",
    "watermark.targets[0].group=argoproj.io",
    "watermark.targets[0].resource=rollouts",
    "horizontal.enabled=true",
    "horizontal.targets[0].group=argoproj.io",
    "horizontal.targets[0].resource=rollouts",
    "horizontal.namespaces={shop}",
    "ui.enabled=true",
    "updater.surge=true",
    "updater.retargetHpas=true",
    "recommender.capToLargestNode=true",
    "recommender.externalMetrics.cpu=container_cpu",
    "recommender.storage=prometheus",
    "prometheus.address=http://prometheus.monitoring.svc:9090",
    "monitoring.kind=ServiceMonitor",
    "monitoring.rules.enabled=true",
    "priorityClass.create=true",
    "priorityClass.name=autoscaling",
    "report.enabled=true",
    "report.volume.emptyDir.medium=Memory",
    "spread=required",
    "logging.format=json",
];

/// Runs a program of the testbed; returns `None` after reporting why it is not available.
fn run(
    program: anyhow::Result<PathBuf>,
    arguments: impl FnOnce(&mut Command),
) -> Option<Result<String, String>> {
    let program = program.map_err(|why| report_skipped(format!("{why:#}"))).ok()?;
    let mut command = Command::new(program);
    arguments(&mut command);
    // Without the user's repositories and plugins.
    let nowhere = std::env::temp_dir().join("plimsoll-no-helm");
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, &nowhere);
    }
    let Output { status, stdout, stderr } = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Some(if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) })
}

/// Builds a kustomize folder below `deploy`.
pub fn kustomize(folder: &str) -> Option<Vec<Value>> {
    kustomize_path(&Path::new(ROOT).join("deploy").join(folder))
}

/// Builds any kustomize folder.
pub fn kustomize_path(path: &Path) -> Option<Vec<Value>> {
    let built = run(test_programs::kustomize(), |command| {
        command.arg("build").arg(path);
    })?;
    Some(objects(&built.unwrap_or_else(|why| panic!("{}: {why}", path.display()))))
}

/// Path of the chart.
pub fn chart() -> PathBuf {
    Path::new(ROOT).join("deploy/helm/plimsoll")
}

/// Runs helm with these arguments.
pub fn helm(words: &[&str]) -> Option<Result<String, String>> {
    run(test_programs::helm(), |command| {
        command.args(words);
    })
}

/// Renders the chart with these values, as release `plimsoll` in the namespace `autoscaling`; or returns the error.
pub fn try_chart(values: &[&str]) -> Option<Result<Vec<Value>, String>> {
    let folder = chart().display().to_string();
    let mut words = vec!["template", "plimsoll", &folder, "--namespace=autoscaling"];
    for value in values {
        words.extend(["--set", value]);
    }
    Some(helm(&words)?.map(|text| objects(&text)))
}

/// Like [`try_chart`], for valid values.
pub fn chart_template(values: &[&str]) -> Option<Vec<Value>> {
    Some(try_chart(values)?.unwrap_or_else(|why| panic!("{values:?}: {why}")))
}

/// All shipped sets of manifests, by name.
pub fn all() -> Option<Vec<(String, Vec<Value>)>> {
    let mut all = Vec::new();
    for name in OVERLAYS {
        all.push((format!("overlay {name}"), kustomize(&format!("overlays/{name}"))?));
    }
    all.push(("chart".to_owned(), chart_template(&[])?));
    all.push(("chart, everything".to_owned(), chart_template(EVERYTHING)?));
    let one = [EVERYTHING, &["allInOne.enabled=true", "monitoring.kind=PodMonitor"]].concat();
    all.push(("chart, all in one".to_owned(), chart_template(&one)?));
    let page = [&one[..], &["ui.inAllInOne=true"]].concat();
    all.push(("chart, all in one with the page".to_owned(), chart_template(&page)?));
    Some(all)
}

/// Parses the objects of a YAML text.
pub fn objects(text: &str) -> Vec<Value> {
    let read: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|why| panic!("{why} in\n{text}"));
    read.into_iter().filter(|one| !one.is_null()).collect()
}

/// The objects of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|one| one["kind"] == kind).collect()
}

/// `Kind namespace/name`.
pub fn title(object: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!(
        "{} {}/{}",
        word(&object["kind"]),
        word(&metadata["namespace"]),
        word(&metadata["name"])
    )
}
