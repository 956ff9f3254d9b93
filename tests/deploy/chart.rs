//! The chart: its values, its documentation, and its copies of files.

use std::{fs, path::Path};

use plimsoll::cli::admission_config;
use serde_json::{Value, json};

use super::{
    ROOT, documents,
    rendered_manifests::{EVERYTHING, chart, chart_template, helm, of_kind, try_chart},
};

#[test]
fn helm_lint_passes() {
    let folder = chart().display().to_string();
    for values in [&[] as &[&str], EVERYTHING] {
        let mut words = vec!["lint", "--strict", "--quiet", &folder];
        for value in values {
            words.extend(["--set", value]);
        }
        let Some(output) = helm(&words) else { return };
        let output = output.unwrap_or_else(|why| panic!("{why}"));
        assert!(!output.contains("[WARNING]") && !output.contains("[ERROR]"), "{output}");
    }
}

/// `UPDATE=1` writes the copies.
#[test]
fn the_crds_and_rules_of_the_chart_are_up_to_date() {
    let deploy = Path::new(ROOT).join("deploy");
    let rules = [
        ("recommender/rules.yaml", "history.yaml"),
        ("monitoring/alerts.yaml", "alerts.yaml"),
        ("monitoring/recording.yaml", "recording.yaml"),
    ];
    let ours = chart().join("files/rules");
    let mut pairs: Vec<_> =
        rules.iter().map(|(file, copy)| (deploy.join(file), ours.join(copy))).collect();
    for file in fs::read_dir(deploy.join("crds")).expect("a folder").flatten() {
        if file.file_name() != "kustomization.yaml" {
            pairs.push((file.path(), chart().join("crds").join(file.file_name())));
        }
    }
    assert!(pairs.len() >= 4, "{pairs:?}");
    for (source, copy) in &pairs {
        if std::env::var_os("UPDATE").is_some() {
            fs::copy(source, copy).expect("the chart can be written");
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        assert!(
            read(source) == read(copy),
            "{} differs from {}: run UPDATE=1 cargo test --test tests -- chart",
            copy.display(),
            source.display()
        );
    }
    for folder in ["crds", "files/rules"] {
        for file in fs::read_dir(chart().join(folder)).expect("a folder").flatten() {
            let is_ours = pairs.iter().any(|(_, copy)| *copy == file.path());
            assert!(is_ours, "{}: it is not a copy of a file in deploy", file.path().display());
        }
    }
}

#[test]
fn the_chart_has_the_version_of_this_release() {
    let about = documents(&chart().join("Chart.yaml")).remove(0);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(about["version"], version);
    assert_eq!(about["appVersion"], version);
}

#[test]
fn invalid_values_are_rejected_by_name() {
    for (value, word) in [
        ("replicas=2", "additional properties 'replicas' not allowed"),
        ("recommender.replica=1", "'/recommender': additional properties 'replica'"),
        ("recommender.name=Mine", "'/recommender/name'"),
        ("recommender.name=a-1-of-2", "'/recommender/name'"),
        ("recommender.storage=local", "'/recommender/storage'"),
        ("recommender.storage=prometheus", "needs prometheus.address"),
        ("compat=other", "'/compat'"),
        ("admissionController.port=80", "'/admissionController/port'"),
        ("admissionController.timeoutSeconds=31", "'/admissionController/timeoutSeconds'"),
        ("updater.args[0]=dry-run", "'/updater/args/0'"),
        ("priorityClass.create=true", "needs priorityClass.name"),
        ("networkPolicy.apiServerPorts[0]=0", "'/networkPolicy/apiServerPorts/0'"),
    ] {
        let Some(output) = try_chart(&[value]) else { return };
        let output = output.expect_err(value);
        assert!(output.contains(word), "{value}: {output}");
    }
    let none =
        ["recommender", "updater", "admissionController"].map(|key| format!("{key}.enabled=false"));
    let Some(output) = try_chart(&none.each_ref().map(String::as_str)) else { return };
    assert!(output.expect_err("nothing to install").contains("no role is enabled"));
}

#[test]
fn every_chart_value_is_documented_and_in_the_schema() {
    let text = fs::read_to_string(chart().join("values.yaml")).expect("values");
    let lines: Vec<&str> = text.lines().collect();
    let is_key = |line: &str| {
        let line = line.trim_start();
        line.contains(':') && !line.starts_with(['#', '-'])
    };
    // Kubernetes defines the keys below these.
    let foreign = ["resources", "podSecurityContext", "securityContext"];
    // The line above the first one of each pair describes both.
    let pairs = ["volumeMounts", "tolerations", "affinity"];
    let mut below: Option<usize> = None;
    let mut keys = 0;
    for (at, line) in lines.iter().enumerate() {
        let depth = line.len() - line.trim_start().len();
        if below.is_some_and(|deeper| depth > deeper) || !is_key(line) {
            continue;
        }
        below = None;
        let key = line.trim().split(':').next().expect("a key");
        if foreign.contains(&key) {
            below = Some(depth);
            continue;
        }
        keys += 1;
        let before = lines.get(at.wrapping_sub(1)).copied().unwrap_or_default().trim();
        let opens = line.trim_end().ends_with(':');
        let is_commented = before.starts_with('#');
        assert!(
            is_commented || opens || pairs.contains(&key),
            "values.yaml:{}: {key} has no comment",
            at + 1
        );
    }
    assert!(keys > 60, "only {keys} keys were checked");

    let schema = fs::read_to_string(chart().join("values.schema.json")).expect("a schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let values = documents(&chart().join("values.yaml")).remove(0);
    let mut unknown = Vec::new();
    compare(&values, &schema, "", &mut unknown);
    assert_eq!(unknown, [""; 0]);
}

/// Collects keys that only one side has.
fn compare(values: &Value, schema: &Value, at: &str, unknown: &mut Vec<String>) {
    let Some(known) = schema["properties"].as_object() else { return };
    if schema["additionalProperties"] != false {
        return;
    }
    let empty = serde_json::Map::new();
    let values = values.as_object().unwrap_or(&empty);
    for (key, value) in values {
        match known.get(key) {
            Some(below) => compare(value, below, &format!("{at}/{key}"), unknown),
            None => unknown.push(format!("the schema has no {at}/{key}")),
        }
    }
    // Keys that Helm and Kubernetes define.
    let optional = ["global", "claims"];
    for key in
        known.keys().filter(|key| !values.contains_key(*key) && !optional.contains(&key.as_str()))
    {
        unknown.push(format!("values.yaml has no {at}/{key}"));
    }
}

#[test]
fn disabled_features_install_no_objects() {
    for (value, kind) in [
        ("podDisruptionBudget.enabled=false", "PodDisruptionBudget"),
        ("networkPolicy.enabled=false", "NetworkPolicy"),
        ("admissionController.enabled=false", "MutatingWebhookConfiguration"),
        ("admissionController.register=false", "MutatingWebhookConfiguration"),
        ("admissionController.certificates.existingSecret=mine", "Secret"),
    ] {
        let Some(usual) = chart_template(&[]) else { return };
        assert!(!of_kind(&usual, kind).is_empty(), "{kind}");
        let Some(without) = chart_template(&[value]) else { return };
        assert!(of_kind(&without, kind).is_empty(), "{value}");
    }
    for (value, remaining) in [
        ("admissionPolicies.enabled=false", 0),
        ("updater.enabled=false", 1),
        ("admissionController.register=false", 1),
        ("allInOne.enabled=true", 2),
    ] {
        let Some(objects) = chart_template(&[value]) else { return };
        let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
        assert_eq!(kinds.map(|kind| of_kind(&objects, kind).len()), [remaining; 2], "{value}");
    }
    let Some(bare) = chart_template(&["rbac.create=false"]) else { return };
    for kind in ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"] {
        assert!(of_kind(&bare, kind).is_empty(), "{kind}");
    }
}

#[test]
fn an_unavailable_webhook_is_ignored_after_five_seconds_by_default() {
    let registered = |objects: &[Value]| {
        let found = of_kind(objects, "Deployment");
        let words = |deployment: &Value| -> Vec<String> {
            let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
            let args = args.as_array().into_iter().flatten().filter_map(Value::as_str);
            args.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
        };
        let all = found.iter().map(|deployment| words(deployment));
        let mut own = all.filter(|words| words.iter().any(|word| word.contains("webhook-timeout")));
        let own = own.next().expect("the admission controller's");
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let config = admission_config(&own, |_| String::new()).expect("valid flags");
        let wanted = config.registration.expect("it is registered");
        (wanted.fail_closed, wanted.timeout_seconds)
    };
    let base = Path::new(ROOT).join("deploy/admission-controller/deployment.yaml");
    assert_eq!(registered(&documents(&base)), (false, 5));
    let Some(usual) = chart_template(&[]) else { return };
    assert_eq!(registered(&usual), (false, 5));
    let Some(fail_closed) = chart_template(&["admissionController.failurePolicy=Fail"]) else {
        return;
    };
    assert_eq!(registered(&fail_closed), (true, 5));
}

#[test]
fn metrics_are_open_only_to_the_configured_clients() {
    let of = "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring";
    let Some(objects) = chart_template(&["watermark.enabled=true", "horizontal.enabled=true", of])
    else {
        return;
    };
    let policies = of_kind(&objects, "NetworkPolicy");
    assert_eq!(policies.len(), 5);
    for policy in policies {
        let rules = policy["spec"]["ingress"].as_array().expect("rules");
        let ports = ["metrics", "prometheus"];
        let shown = rules.iter().filter(|rule| {
            ports.iter().any(|port| rule["ports"][0]["port"].as_str() == Some(*port))
        });
        let from: Vec<&Value> = shown.map(|rule| &rule["from"]).collect();
        let team = json!([{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]);
        assert_eq!(from, [&team], "{policy:#}");
    }
}

#[test]
fn an_all_in_one_pod_has_flags_prefixed_with_their_role() {
    let values = [
        "allInOne.enabled=true",
        "watermark.enabled=true",
        "horizontal.enabled=true",
        "horizontal.namespaces={shop,api}",
        "updater.args[0]=--min-replicas=3",
        "watermark.args[0]=-workers=4",
        "allInOne.args[0]=--v=5",
    ];
    let Some(objects) = chart_template(&values) else { return };
    let deployments = of_kind(&objects, "Deployment");
    assert_eq!(deployments.len(), 1);
    let container = &deployments[0]["spec"]["template"]["spec"]["containers"][0];
    let args: Vec<&str> =
        container["args"].as_array().expect("args").iter().filter_map(Value::as_str).collect();
    assert_eq!(args[0], "--roles=recommender,updater,admission-controller,watermark,horizontal");
    for flag in [
        "--updater.min-replicas=3",
        "--watermark.workers=4",
        "--horizontal.leader-elect-resource-namespace=kube-system",
        "--horizontal.namespaces=shop,api",
        "--v=5",
    ] {
        assert!(args.contains(&flag), "{args:?}");
    }
}
