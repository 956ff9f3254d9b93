//! Alerts and recording rules use only existing series, fire when they should, and link to a helpful page.

mod known_metrics;
mod promtool;
mod runbooks;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// Base URL of runbooks: paths in the repository below the project's domain.
const PAGES: &str = "https://plimsoll.dev/docs/runbooks/";
/// In evaluation order.
const FILES: [&str; 2] = ["recording.yaml", "alerts.yaml"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    interval: String,
    rules: Vec<Rule>,
}

/// An alert or a recording rule.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    record: Option<String>,
    alert: Option<String>,
    expr: String,
    #[serde(rename = "for")]
    lasts: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

fn folder() -> PathBuf {
    Path::new(ROOT).join("deploy/monitoring")
}

fn text(file: &str) -> String {
    let path = folder().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The groups of both files.
fn groups() -> Vec<Group> {
    let read = |file: &str| -> Groups {
        serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    FILES.into_iter().flat_map(|file| read(file).groups).collect()
}

fn rules() -> Vec<Rule> {
    groups().into_iter().flat_map(|group| group.rules).collect()
}

/// The alerts by name.
fn alerts() -> BTreeMap<String, Rule> {
    let alerts: Vec<(String, Rule)> =
        rules().into_iter().filter_map(|rule| Some((rule.alert.clone()?, rule))).collect();
    let count = alerts.len();
    let by_name: BTreeMap<String, Rule> = alerts.into_iter().collect();
    assert_eq!(by_name.len(), count, "duplicate alert");
    by_name
}

#[test]
fn every_alert_has_a_severity_a_duration_annotations_and_distinguishing_labels() {
    let alerts = alerts();
    assert!(alerts.len() > 20, "only {} alerts", alerts.len());
    for (name, alert) in alerts {
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        assert!(alert.lasts.is_some(), "{name} has no `for`");
        let keys: Vec<&str> = alert.annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["description", "runbook_url", "summary"], "{name}");
        assert_eq!(alert.annotations["runbook_url"], format!("{PAGES}{name}.md"));
        let description = &alert.annotations["description"];
        assert!(!alert.annotations["summary"].contains("{{"), "{name}: a summary has no template");
        assert!(description.contains("$labels.cluster"), "{name} does not say in which cluster");
        // The description names the labels that distinguish the alert's series.
        let known = known_metrics::labels_of(&alert.expr);
        for (label, shown) in [
            ("namespace", "$labels.namespace"),
            ("name", "$labels.name"),
            ("wpa_namespace", "$labels.wpa_namespace"),
            ("wpa_name", "$labels.wpa_name"),
            ("container", "$labels.container"),
            ("role", "$labels.role"),
        ] {
            let is_fixed = alert.expr.contains(&format!("{label}=\""));
            assert!(
                !known.contains(label) || is_fixed || description.contains(shown),
                "{name}: its description does not name the {label}"
            );
        }
    }
}

#[test]
fn an_alert_about_a_wpa_is_routed_by_the_namespace_of_the_object() {
    for (name, alert) in alerts() {
        let by_upstreams = known_metrics::labels_of(&alert.expr).contains("wpa_name");
        let label = |label: &str| alert.labels.get(label).map(String::as_str);
        let expected = |text| by_upstreams.then_some(text);
        assert_eq!(label("namespace"), expected("{{ $labels.wpa_namespace }}"), "{name}");
        assert_eq!(label("name"), expected("{{ $labels.wpa_name }}"), "{name}");
    }
}

#[test]
fn no_alert_fires_for_within_bounds() {
    for (name, alert) in alerts() {
        assert!(!alert.expr.contains("within_bounds"), "{name}");
    }
}

#[test]
fn every_alert_has_a_comment_with_the_reason_for_its_threshold() {
    let text = text("alerts.yaml");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut alerts = 0;
    for pair in lines.windows(2) {
        if let Some(name) = pair[1].strip_prefix("- alert: ") {
            assert!(pair[0].starts_with("# "), "{name} has no comment");
            alerts += 1;
        }
    }
    assert_eq!(alerts, self::alerts().len());
}

#[test]
fn recording_rules_follow_the_naming_convention_and_keep_the_cluster_label() {
    let recorded: Vec<Rule> = rules().into_iter().filter(|rule| rule.record.is_some()).collect();
    assert!(recorded.len() > 10, "only {} recording rules", recorded.len());
    for rule in recorded {
        let name = rule.record.unwrap_or_default();
        assert_eq!(name.split(':').count(), 3, "{name}: level:metric:operation");
        assert!(name.starts_with("plimsoll:"), "{name}");
        assert!(
            rule.expr.contains("by (cluster, ") || rule.expr.contains("by (cluster)"),
            "{name}"
        );
    }
    for group in groups() {
        assert!(group.name.starts_with("plimsoll-"), "{} has no prefix of ours", group.name);
        assert!(["1m", "5m"].contains(&group.interval.as_str()), "{}", group.name);
    }
}

#[test]
fn the_prometheusrule_has_the_same_alerts_and_recording_rules() {
    let mut wanted = String::from(
        "# Generated from recording.yaml and alerts.yaml. Not part of any role, because clusters without the Prometheus operator do\n\
         # not have the kind. If the operator selects rules by labels, add those.\n",
    );
    for (file, name) in FILES.into_iter().zip(["plimsoll-recording", "plimsoll-alerts"]) {
        let text = text(file);
        let (_, groups) = text.split_once("\ngroups:\n").expect("groups");
        write!(
            wanted,
            "---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: {name}\n  namespace: kube-system\n  \
             labels:\n    app.kubernetes.io/name: plimsoll\n    app.kubernetes.io/component: monitoring\nspec:\n  groups:\n"
        )
        .expect("fits");
        for line in groups.lines() {
            let inset = if line.is_empty() { "" } else { "  " };
            writeln!(wanted, "{inset}{line}").expect("fits");
        }
    }
    let path = folder().join("prometheusrules.yaml");
    let found = fs::read_to_string(&path).unwrap_or_default();
    if found != wanted && std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &wanted).expect("the manifest can be written");
        return;
    }
    assert_eq!(found, wanted, "prometheusrules.yaml is out of date; run the tests with UPDATE=1");
    // As text and as data: to detect damage by the indentation of folded text.
    let objects: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(&found).expect("objects of YAML");
    for (file, object) in FILES.into_iter().zip(objects) {
        let plain: serde_json::Value = serde_saphyr::from_str(&text(file)).expect("YAML");
        assert_eq!(object["spec"], plain, "{file}");
    }
}

/// File names in a folder, without extension.
fn stems(folder: &str, extension: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(Path::new(ROOT).join(folder)).expect("temporary directory");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let matching = paths.filter(|path| path.extension().is_some_and(|it| it == extension));
    matching.filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned())).collect()
}
