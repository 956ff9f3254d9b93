//! The JSON forms of the pages have the numbers of `plimsoll recommend`, `plimsoll explain` and `plimsoll status`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    WebPage,
    large_cluster::{VPAS, WITH_HISTORY, name, namespace},
};
use crate::prometheus::recommend::process::plimsoll;

/// Workloads whose pages are compared in full: with and without an HPA or a WPA, of every update mode, and the first one
/// without history.
const COMPARED: [usize; 8] = [0, 1, 2, 3, 64, 111, WITH_HISTORY - 1, WITH_HISTORY];
/// The fields of a resource that are numbers, or follow from them.
const NUMBERS: [&str; 5] = ["request", "limit", "target", "risk", "waste"];
/// The bounds get closer with each minute of history, so a command that runs later has slightly other ones.
const BOUND_TOLERANCE: f64 = 0.002;

/// Compares all of them.
pub async fn compare(page: &WebPage<'_>) {
    recommend(page).await;
    explain(page).await;
    status(page).await;
}

/// The output of a command as JSON.
async fn command(page: &WebPage<'_>, words: &[&str]) -> Value {
    let kubeconfig = page.cluster.bed.kubeconfig_path();
    let finished = plimsoll(&kubeconfig, &[words, &["-o", "json"]].concat()).await;
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| {
        panic!("{words:?}: {error}, exit code {:?}: {}", finished.code, finished.stderr)
    })
}

fn identity(workload: &Value) -> String {
    ["namespace", "kind", "name"]
        .map(|field| workload[field].as_str().unwrap_or_default().to_owned())
        .join("/")
}

/// The numbers of each container and resource.
fn numbers(workload: &Value) -> Value {
    let containers = workload["containers"].as_array().expect("containers").iter();
    let containers = containers.map(|container| {
        let resources = container["resources"].as_array().expect("resources").iter();
        let resources = resources.map(|resource| {
            let of = |field: &&str| resource[*field].clone();
            json!([resource["resource"], NUMBERS.iter().map(of).collect::<Vec<_>>()])
        });
        json!([container["name"], resources.collect::<Vec<_>>()])
    });
    json!([workload["replicas"], workload["vpa"], containers.collect::<Vec<_>>()])
}

/// The bounds of each container and resource.
fn bounds(workload: &Value) -> Vec<f64> {
    let containers = workload["containers"].as_array().expect("containers").iter();
    let resources = containers
        .flat_map(|container| container["resources"].as_array().expect("resources"))
        .flat_map(|resource| [&resource["lower"], &resource["upper"]]);
    resources.map(|bound| bound.as_f64().expect("a number")).collect()
}

/// Request and target of one pod, which here has one container.
fn sums(workload: &Value) -> Value {
    let resources = workload["containers"][0]["resources"].as_array().expect("resources");
    let of = |wanted: &str| {
        let found = resources.iter().find(|one| one["resource"] == wanted).expect("the resource");
        json!([found["request"], found["target"]])
    };
    json!([of("cpu"), of("memory")])
}

fn has_history(workload: &Value) -> bool {
    (0..WITH_HISTORY).any(|index| workload["name"] == name(index))
}

async fn recommend(page: &WebPage<'_>) {
    let address = format!("--prometheus-address={}", page.cluster.prometheus.url());
    let prices = format!("--prices={}", page.cluster.prices().display());
    let report = command(page, &["recommend", &address, &prices]).await;
    let workloads = report["workloads"].as_array().expect("workloads").iter();
    let workloads: BTreeMap<String, &Value> = workloads.map(|one| (identity(one), one)).collect();
    assert_eq!(workloads.len(), VPAS);
    let overview = page.json("overview.json").await;
    for field in ["workloads", "containers"] {
        assert_eq!(overview["totals"][field], report["totals"][field], "totals: {field}");
    }
    let mut with_target = 0;
    for number in 1..=VPAS / 100 {
        let list = page.json(&format!("workloads.json?sort=name&page={number}")).await;
        // A VPA without samples has the smallest recommendation, and the command does not know one.
        let rows = list["workloads"].as_array().expect("rows").iter();
        for row in rows.filter(|row| has_history(row)) {
            let workload = workloads[&identity(row)];
            let of = |resource: &str| json!([row[resource]["request"], row[resource]["target"]]);
            assert_eq!(json!([of("cpu"), of("memory")]), sums(workload), "{}", identity(row));
            with_target += usize::from(row["cpu"]["target"].is_number());
        }
    }
    assert_eq!(
        with_target, WITH_HISTORY,
        "{} {} {}",
        report["unread"], report["remarks"], report["workloads"][0]
    );
    for index in COMPARED {
        let (namespace, name) = (namespace(index), name(index));
        let shown = page.json(&format!("w/{namespace}/Deployment/{name}.json")).await;
        if !has_history(&shown["workload"]) {
            continue;
        }
        let workload = workloads[&identity(&shown["workload"])];
        assert_eq!(numbers(&shown["workload"]), numbers(workload), "{namespace}/{name}");
        let (shown, expected) = (bounds(&shown["workload"]), bounds(workload));
        // Bounds are rounded to a millicore, so they move by whole ones.
        let is_close = |(shown, expected): (&f64, &f64)| {
            (shown - expected).abs() <= (BOUND_TOLERANCE * expected).max(1.0)
        };
        assert!(
            shown.len() == expected.len() && shown.iter().zip(&expected).all(is_close),
            "{namespace}/{name}: {shown:?} {expected:?}"
        );
    }
}

async fn explain(page: &WebPage<'_>) {
    for index in COMPARED {
        let (namespace, name) = (namespace(index), name(index));
        let shown = page.json(&format!("w/{namespace}/Deployment/{name}.json")).await;
        let shown = &shown["explanation"];
        let explained = command(page, &["explain", "vpa", &name, "-n", &namespace]).await;
        for field in ["namespace", "name", "updateMode", "target", "pods", "room", "containers"] {
            assert_eq!(shown[field], explained[field], "{namespace}/{name}: {field}");
        }
    }
}

async fn status(page: &WebPage<'_>) {
    let reported = command(page, &["status"]).await;
    let shown = &page.json("status.json").await["status"];
    let codes = |status: &Value| -> Vec<Value> {
        let findings = status["findings"].as_array().expect("findings").iter();
        findings.map(|finding| json!([finding["level"], finding["code"]])).collect()
    };
    assert_eq!(codes(shown), codes(&reported), "{shown} {reported}");
    let roles = |status: &Value| -> Vec<Value> {
        let fields = ["role", "lease", "leader", "version", "objects", "history", "ready", "pods"];
        let roles = status["roles"].as_array().expect("roles").iter();
        roles.map(|role| fields.iter().map(|field| role[*field].clone()).collect()).collect()
    };
    assert_eq!(roles(shown), roles(&reported));
    assert_eq!(shown["roles"][0]["objects"], VPAS, "{shown}");
}
