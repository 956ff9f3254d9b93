//! Rules for dependencies: licences and bans from deny.toml, one TLS provider, one HTTP client.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::{Value, json};
use spdx::{Expression, ParseMode};

use super::root;

/// At most one version of each: two versions would not share their state.
const SINGLE: [&str; 6] = ["k8s-openapi", "kube-core", "reqwest", "ring", "rustls", "tokio"];

struct Rules {
    licences: Vec<String>,
    banned: Vec<String>,
}

fn rules() -> Rules {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let file: toml::Table = text.parse().expect("TOML");
    let licences = file["licenses"]["allow"].as_array().expect("a list of licences");
    let banned = file["bans"]["deny"].as_array().expect("a list of bans");
    let text = |value: &toml::Value| value.as_str().expect("a text").to_owned();
    Rules {
        licences: licences.iter().map(text).collect(),
        banned: banned.iter().map(|ban| text(&ban["name"])).collect(),
    }
}

/// The dependencies of the whole workspace, including tests, on the target platform.
fn metadata() -> Value {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(cargo.status.success(), "{}", String::from_utf8_lossy(&cargo.stderr));
    serde_json::from_slice(&cargo.stdout).expect("metadata")
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn findings(metadata: &Value, rules: &Rules) -> Vec<String> {
    let resolved: BTreeSet<&str> =
        list(&metadata["resolve"], "nodes").filter_map(|node| node["id"].as_str()).collect();
    let packages: Vec<&Value> = list(metadata, "packages")
        .filter(|package| package["id"].as_str().is_some_and(|id| resolved.contains(id)))
        .collect();
    let mut findings = Vec::new();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or_default();
        if !is_allowed(licence, &rules.licences) {
            findings.push(format!("{name}: the licence {licence:?} is not allowed by deny.toml"));
        }
        if rules.banned.iter().any(|banned| banned == name) {
            findings.push(format!("{name} is banned by deny.toml"));
        }
    }
    for single in SINGLE {
        let count = packages.iter().filter(|package| package["name"] == single).count();
        if count > 1 {
            findings.push(format!("{single} is present in {count} versions"));
        }
    }
    findings.extend(provider(metadata, &packages));
    findings
}

fn is_allowed(licence: &str, allowed: &[String]) -> bool {
    Expression::parse_mode(licence, ParseMode::LAX).is_ok_and(|expression| {
        expression.evaluate(|requirement| {
            let id = requirement.license.id();
            id.is_some_and(|id| allowed.iter().any(|allowed| allowed == id.name))
        })
    })
}

/// rustls must use ring as its only provider.
fn provider(metadata: &Value, packages: &[&Value]) -> Option<String> {
    let rustls = packages.iter().find(|package| package["name"] == "rustls")?;
    let node = list(&metadata["resolve"], "nodes").find(|node| node["id"] == rustls["id"])?;
    let on = |feature: &str| list(node, "features").any(|on| on == feature);
    let other = ["aws_lc_rs", "aws-lc-rs", "fips"].into_iter().find(|&feature| on(feature));
    match (on("ring"), other) {
        (true, None) => None,
        (false, _) => Some("rustls has no provider: enable its feature `ring`".into()),
        (true, Some(other)) => Some(format!("rustls has two providers, ring and {other}")),
    }
}

#[test]
fn every_dependency_has_an_allowed_licence_and_a_single_version_where_required() {
    let metadata = metadata();
    let packages = list(&metadata, "packages").count();
    assert!(packages > 50, "only {packages} packages were found");
    let findings = findings(&metadata, &rules());
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

#[test]
fn a_violation_of_each_dependency_rule_is_found() {
    let package = |id: &str, name: &str, licence: Option<&str>| json!({"id": id, "name": name, "license": licence});
    let with = |packages: &[Value], features: &[&str]| {
        let nodes: Vec<_> = packages
            .iter()
            .map(|package| json!({"id": package["id"], "features": features}))
            .collect();
        findings(&json!({"packages": packages, "resolve": {"nodes": nodes}}), &rules())
    };
    let fine = package("a", "fine", Some("MIT/Apache-2.0"));
    assert_eq!(with(&[fine], &[]), Vec::<String>::new());
    let fine = package("a", "fine", Some("(GPL-3.0 OR MIT) AND Unicode-3.0"));
    assert_eq!(with(&[fine], &[]), Vec::<String>::new());
    let rustls = package("r", "rustls", Some("ISC"));
    assert_eq!(with(std::slice::from_ref(&rustls), &["ring", "std"]), Vec::<String>::new());

    for (packages, features) in [
        (vec![package("a", "copyleft", Some("GPL-3.0-only"))], vec![]),
        (vec![package("a", "half", Some("MIT AND AGPL-3.0"))], vec![]),
        (vec![package("a", "silent", None)], vec![]),
        (vec![package("a", "odd", Some("my own words"))], vec![]),
        (vec![package("a", "openssl-sys", Some("MIT"))], vec![]),
        (vec![package("a", "aws-lc-rs", Some("ISC"))], vec![]),
        (vec![package("a", "native-tls", Some("MIT"))], vec![]),
        (vec![package("1", "reqwest", Some("MIT")), package("2", "reqwest", Some("MIT"))], vec![]),
        (vec![rustls.clone()], vec!["ring", "aws_lc_rs"]),
        (vec![rustls.clone()], vec!["std"]),
    ] {
        assert_eq!(with(&packages, &features).len(), 1, "{packages:?} {features:?}");
    }
}
