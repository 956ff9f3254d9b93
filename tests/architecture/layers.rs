//! The layers of the code: data and imports flow from reads to decisions to writes.

use super::{
    assert_clean, sources,
    tokens::{Code, read},
};

/// Modules of the root crate by layer. A module may use the modules of the first layer, and those of the layers
/// before its own.
const LAYERS: [&[&str]; 6] =
    [&["cluster", "telemetry"], &["controllers"], &["report"], &["ui"], &["cli"], &["main"]];

/// The layers of the core crate.
const CORE_LAYERS: [&[&str]; 10] = [
    &["types"],
    &["api"],
    &["history"],
    &["coordination"],
    &["sizing", "scaling", "vpa_match"],
    &["recommender", "updater", "admission", "watermark", "hpa"],
    &["sim"],
    &["rightsizing"],
    &["manifests", "diagnosis"],
    &["backtest"],
];

/// Modules of the root crate that receive plain data and `now`, and return plain data. Decisions are in a crate of
/// their own.
const PURE: [&str; 16] = [
    "src/report/backtest/html",
    "src/report/doctor",
    "src/report/explain",
    "src/report/recommend/html",
    "src/report/status",
    "src/report/style.rs",
    "src/ui/layout.rs",
    "src/ui/list_query.rs",
    "src/ui/number_table.rs",
    "src/ui/pages",
    "src/ui/quota.rs",
    "src/ui/replica_timeline.rs",
    "src/ui/router.rs",
    "src/ui/rows.rs",
    "src/ui/snapshot.rs",
    "src/ui/timeline.rs",
];

/// The only module that writes to a cluster which the web page may use: reviews of its users, which store nothing.
const WRITES_OF_UI: &str = "crate::cluster::write::user_access";

/// Modules that may write to the cluster.
const WRITERS: [&str; 2] = ["src/cluster/leader/", "src/cluster/write/"];

/// Modules that pure code must not use.
const WORLD: [&str; 13] = [
    "kube",
    "reqwest",
    "hyper",
    "tokio",
    "futures",
    "axum",
    "crate::cluster",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Modules that even API types must not use: they derive from kube, but call nothing.
const CLIENTS: [&str; 5] =
    ["kube::Client", "kube::client", "kube::Api", "kube::api", "kube::runtime"];

/// Methods that write to a cluster, with their number of arguments: `str::replace` has two, `Api::replace` three.
const WRITES: [(&str, usize); 13] = [
    ("create", 2),
    ("create_subresource", 4),
    ("delete", 2),
    ("delete_collection", 2),
    ("evict", 2),
    ("patch", 3),
    ("patch_metadata", 3),
    ("patch_resize", 3),
    ("patch_scale", 3),
    ("patch_status", 3),
    ("patch_subresource", 4),
    ("replace", 3),
    ("replace_status", 3),
];

/// Arguments that only write calls take.
const WRITE_ARGUMENTS: [&str; 4] = ["DeleteParams", "EvictParams", "PatchParams", "PostParams"];

/// Converts `core/src/recommender/memory_window.rs` to `["recommender", "memory_window"]`.
pub(super) fn module(path: &str) -> Vec<&str> {
    let inside = path.trim_start_matches("core/").trim_start_matches("src/");
    let inside = inside.trim_end_matches(".rs");
    inside.trim_end_matches("/mod").split('/').collect()
}

pub(super) fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn layer(layers: &[&[&str]], module: &str) -> Option<usize> {
    layers.iter().position(|modules| modules.contains(&module))
}

/// The findings in a file of the root crate.
fn findings(path: &str, text: &str) -> Vec<String> {
    let module = module(path);
    let top = module[0];
    let code = read(text, &module);
    let mut findings = direction(path, top, &code, &LAYERS);
    if PURE.iter().any(|place| path.starts_with(place)) {
        findings.extend(world(path, &code, &WORLD));
        findings.extend(world(path, &code, &["std::fs"]));
        findings.extend(words(
            path,
            &code,
            &["async", "await", "Instant", "SystemTime"],
            "must not be used in pure code",
        ));
        let clocks = code.paths.iter().filter(|(_, used)| used.ends_with("::now"));
        findings.extend(clocks.map(|(line, used)| {
            format!("{path}:{line}: {used} reads a clock: take `now` as an argument")
        }));
    }
    if top == "ui" {
        let writers = ["crate::cluster::write", "crate::cluster::leader", "crate::cli"];
        let used = code.paths.iter().filter(|(_, used)| !is_below(used, WRITES_OF_UI));
        let used = used.filter(|(_, used)| writers.iter().any(|above| is_below(used, above)));
        findings.extend(
            used.map(|(line, used)| format!("{path}:{line}: the web page must not use {used}")),
        );
    }
    if !WRITERS.iter().any(|place| path.starts_with(place)) {
        findings.extend(words(
            path,
            &code,
            &WRITE_ARGUMENTS,
            "writes to the cluster, which only src/cluster/{leader,write} and storage may do",
        ));
        let calls =
            code.calls.iter().filter(|(_, name, arguments)| WRITES.contains(&(name, *arguments)));
        findings.extend(calls.map(|(line, name, _)| {
            format!("{path}:{line}: .{name}(..) writes to the cluster, which only src/cluster/{{leader,write}} and storage may do")
        }));
    }
    findings
}

fn direction(path: &str, top: &str, code: &Code, layers: &[&[&str]]) -> Vec<String> {
    let Some(own) = layer(layers, top) else {
        return vec![format!("{path}: the module {top} has no layer: add it to LAYERS")];
    };
    let used = code.paths.iter().filter_map(|(line, used)| {
        let other = used.strip_prefix("crate::").or_else(|| used.strip_prefix("plimsoll::"))?;
        Some((line, other.split("::").next().unwrap_or(other)))
    });
    used.filter(|&(_, other)| other != top)
        .filter(|&(_, other)| {
            layer(layers, other).is_none_or(|other| other > own || (other == own && own > 0))
        })
        .map(|(line, other)| {
            format!("{path}:{line}: {top} must not use {other}: it is not in an earlier layer")
        })
        .collect()
}

fn world(path: &str, code: &Code, forbidden: &[&str]) -> Vec<String> {
    let used =
        code.paths.iter().filter(|(_, used)| forbidden.iter().any(|above| is_below(used, above)));
    used.map(|(line, used)| format!("{path}:{line}: {used} must not be used in pure code"))
        .collect()
}

fn words(path: &str, code: &Code, forbidden: &[&str], why: &str) -> Vec<String> {
    let used = code.words.iter().filter(|(_, word)| forbidden.contains(&word.as_str()));
    used.map(|(line, word)| format!("{path}:{line}: {word} {why}")).collect()
}

/// The findings in a file of the core crate. The compiler already rejects what its dependencies lack.
fn core_findings(path: &str, text: &str) -> Vec<String> {
    let module = module(path);
    let code = read(text, &module);
    let mut findings = direction(path, module[0], &code, &CORE_LAYERS);
    // API types derive from kube.
    let forbidden = if path.starts_with("core/src/api/") { &WORLD[1..] } else { &WORLD };
    findings.extend(world(path, &code, forbidden));
    if path.starts_with("core/src/api/") {
        findings.extend(world(path, &code, &CLIENTS));
    }
    // The simulator also reads series from files; decisions read nothing.
    if !path.starts_with("core/src/sim/") {
        findings.extend(world(path, &code, &["std::fs"]));
    }
    findings.extend(words(
        path,
        &code,
        &["async", "await", "Instant", "SystemTime", "plimsoll", "plimsoll_storage"],
        "must not be used in the core crate",
    ));
    findings
}

/// The findings in a file of the storage crate.
fn storage_findings(path: &str, text: &str) -> Vec<String> {
    words(path, &read(text, &[]), &["plimsoll"], "is a crate that depends on storage")
}

#[test]
fn imports_flow_one_way_and_only_the_write_layer_writes() {
    let mut files = sources(&["src"]);
    assert!(files.len() > 15, "only {} files were found", files.len());
    files.retain(|(path, _)| path != "src/lib.rs"); // names every module
    assert_clean(&files, findings);
}

#[test]
fn storage_imports_nothing_of_the_layers_above() {
    let files = sources(&["storage"]);
    assert!(files.len() > 5, "only {} files were found", files.len());
    assert_clean(&files, storage_findings);
}

#[test]
fn core_reads_no_clock_and_imports_nothing_of_the_crates_above() {
    let mut files = sources(&["core/src"]);
    assert!(files.len() > 5, "only {} files were found", files.len());
    files.retain(|(path, _)| path != "core/src/lib.rs"); // names every module
    assert_clean(&files, core_findings);
}

#[test]
fn a_violation_of_each_layer_rule_is_found() {
    for (path, text) in [
        ("src/report/explain/bad.rs", "use kube::Client;"),
        ("src/report/explain/bad.rs", "use {std::io, kube::{api::Api, ResourceExt}};"),
        ("src/report/doctor/bad.rs", "fn f() { ::reqwest::get(x); }"),
        ("src/report/style.rs", "use hyper::body;"),
        ("src/report/doctor/bad.rs", "async fn f() {}"),
        ("src/report/explain/bad.rs", "fn f() { let n = jiff::Timestamp::now(); }"),
        ("src/report/doctor/bad.rs", "use std::time::{Duration, Instant};"),
        ("src/report/doctor/bad.rs", "use std::time; fn f(t: time::SystemTime) {}"),
        ("src/report/explain/bad.rs", "use std::{fmt, fs};"),
        ("src/report/style.rs", "fn f() { tokio::spawn(g()); }"),
        ("src/report/explain/bad.rs", "use crate::cluster::clock::Clock;"),
        ("src/report/style.rs", "use crate::{telemetry, cluster::write::Permit};"),
        ("src/report/explain/bad.rs", "use super::super::super::cluster::watch;"),
        ("src/cluster/bad.rs", "use crate::controllers::updater;"),
        ("src/telemetry/bad.rs", "use crate::report::explain;"),
        ("src/cluster/bad.rs", "fn f() { api.patch(name, &parameters, &change); }"),
        ("src/cluster/server/bad.rs", "fn f() { api.replace(name, &parameters, &change,); }"),
        ("src/controllers.rs", "use kube::api::{Api, PostParams};"),
        ("src/report/demo/bad.rs", "use crate::cli::Arguments;"),
        ("src/oracle.rs", "fn f() {}"),
    ] {
        assert!(!findings(path, text).is_empty(), "{path}: {text}");
    }
    for (path, text) in [
        (
            "src/report/explain/good.rs",
            "//! Not kube::Client.\nuse crate::report::{explain::Report, style::Style};",
        ),
        (
            "src/report/explain/good.rs",
            "/// Like tokio::spawn.\nfn f(now: Time) { g(\"kube::Api\", now); }",
        ),
        (
            "src/report/doctor/good.rs",
            "mod tests { use super::*; use super::super::probe_results::ProbeResults; }",
        ),
        ("src/controllers/good.rs", "use crate::{telemetry::State as Progress, cluster::cache};"),
        (
            "src/cluster/write/good.rs",
            "fn f() { api.patch(name, &PatchParams::default(), &change); }",
        ),
        (
            "src/cluster/good.rs",
            "fn f() { text.replace('a', \"b\"); options.create(true); map.delete(x); }",
        ),
        ("src/main.rs", "use plimsoll::cli; async fn f() { tokio::spawn(g()).await; }"),
    ] {
        assert_eq!(findings(path, text), Vec::<String>::new(), "{path}: {text}");
    }
    for text in [
        "use kube::Client;",
        "async fn f() {}",
        "use std::fs;",
        "use plimsoll::controllers::Roles;",
        "use crate::recommender::RecommendationRegistry;",
        "use crate::sim::Cluster;",
    ] {
        assert!(!core_findings("core/src/updater/bad.rs", text).is_empty(), "{text}");
    }
    let other = "use crate::{sizing::Size, types::Time};";
    assert_eq!(core_findings("core/src/recommender/good.rs", other), Vec::<String>::new());
    assert_eq!(
        storage_findings("storage/src/bad.rs", "use plimsoll::controllers::Roles;").len(),
        1
    );
    assert_eq!(
        storage_findings("storage/src/good.rs", "use plimsoll_core::types::Key; // plimsoll"),
        Vec::<String>::new()
    );
}
