//! `plimsoll doctor` on real servers of both releases: its findings are true, and its suggested flags work.

mod recording_rules;
mod server_errors;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use serde_json::{Value, json};

use super::label_flavors::{AGENT, CHART, LabelFlavor, OLD, OPERATOR};
use crate::schema::{faults, schema};
use crate::storage::checkpoint_objects::create_definitions;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::is_ready;
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};
use crate::support::{Testbed, manifests};

const SAMPLE: &str = "tests/data/doctor-prometheus.json";

/// Runs the binary isolated from this machine's configuration, without blocking the runtime.
async fn doctor(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("doctor").args(arguments).env_clear().env("LANG", "C.UTF-8");
    command.env("HOME", "/nonexistent").stdin(Stdio::null());
    let run = move || command.output().expect("starts");
    tokio::task::spawn_blocking(run).await.expect("no panic")
}

/// The report on a server, and the exit code.
async fn examine(url: &str, arguments: &[&str]) -> (Value, Option<i32>) {
    let address = format!("--prometheus-address={url}");
    let output = doctor(&[&[&*address, "-o", "json"], arguments].concat()).await;
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
        panic!("{why}: {output:?}");
    });
    assert_eq!(faults(&schema("doctor-prometheus.v1.json"), &value), Vec::<String>::new());
    (value, output.status.code())
}

/// The level and message of a finding.
fn finding<'a>(report: &'a Value, code: &str) -> Option<(&'a str, &'a str)> {
    let findings = report["findings"].as_array()?;
    let finding = findings.iter().find(|finding| finding["code"] == code)?;
    Some((finding["level"].as_str()?, finding["message"].as_str()?))
}

/// The codes of the findings that need attention.
fn codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("findings");
    let bad = findings.iter().filter(|finding| finding["level"] != "ok");
    bad.map(|finding| finding["code"].as_str().expect("a code")).collect()
}

fn flags(report: &Value) -> Vec<String> {
    let flags = report["flags"].as_array().expect("flags").iter();
    flags.map(|flag| flag.as_str().expect("a flag").to_owned()).collect()
}

/// A history of that many days until now.
fn days(days: i64, every: SignedDuration) -> History {
    let end = Timestamp::from_second(wall_now().as_second() / 60 * 60).expect("valid timestamp");
    History::new(end - SignedDuration::from_hours(24 * days), end, every)
}

/// Adds pods with one container each.
fn workload(flavor: &LabelFlavor, mut history: History, namespace: &str, pods: &[&str]) -> History {
    for pod in pods {
        let container = [namespace, pod, "main"];
        let seconds = |at: Timestamp| Some(at.as_second() as f64 / 10.0);
        history = flavor.usage(history, CPU_METRIC, container, seconds);
        history = flavor.usage(history, MEMORY_METRIC, container, |_| Some(2e8));
        let object = [("namespace", namespace), ("pod", *pod)];
        for family in ["kube_pod_owner", "kube_pod_labels"] {
            let more = [("label_app", "web"), ("owner_name", "web")];
            history = flavor.state(history, family, &[&object[..], &more].concat(), |_| Some(1.0));
        }
        let restarts = [&object[..], &[("container", "main")]].concat();
        let family = "kube_pod_container_status_restarts_total";
        history = flavor.state(history, family, &restarts, |_| Some(1.0));
        let ended = [&object[..], &[("container", "main"), ("reason", "OOMKilled")]].concat();
        let reason = "kube_pod_container_status_last_terminated_reason";
        history = flavor.state(history, reason, &ended, |_| Some(1.0));
    }
    history
}

fn shop(flavor: &LabelFlavor, history: History) -> History {
    let history = workload(flavor, history, "shop", &["web-0", "web-1", "web-2"]);
    workload(flavor, history, "bank", &["ledger-0"])
}

#[tokio::test]
async fn the_doctor_detects_every_labelling_and_its_flags_give_the_same_result() {
    for (flavor, release, version, code) in [
        (OPERATOR, PrometheusRelease::V3, "3.", 0),
        (CHART, PrometheusRelease::V2, "2.", 0),
        (AGENT, PrometheusRelease::V2, "2.", 0),
        (OLD, PrometheusRelease::V3, "3.", 1),
    ] {
        let history = shop(&flavor, days(9, SignedDuration::from_mins(2)));
        let Some(server) = PrometheusServer::with_history(release, history).await else { return };
        let url = server.url();
        let (report, exit) = examine(&url, &[]).await;
        let name = flavor.name;
        assert_eq!(report["server"]["kind"], "prometheus", "{name}");
        let server_version = report["server"]["version"].as_str().expect("a version");
        assert!(server_version.starts_with(version), "{name}: {server_version}");
        assert_eq!(report["wantedSeconds"], 8 * 86_400);
        assert_eq!(report["reachesSeconds"], 8 * 86_400, "{name}: {report:#}");
        let (level, words) = finding(&report, "usage").expect("usage");
        let labels = flavor.identity.join(", ");
        let job = flavor.usage[0].1;
        let expected = format!("4 containers are known from job {job}, by the labels {labels}.");
        assert_eq!((level, words), ("ok", &*expected), "{name}");
        let interval = finding(&report, "interval").expect("an interval");
        assert_eq!(interval, ("ok", "They are scraped every 2 min."), "{name}");
        assert_eq!(finding(&report, "replicas").is_some(), flavor.copies.is_some(), "{name}");
        let has_cluster = flavor.usage.contains(&("cluster", "prod"));
        assert_eq!(finding(&report, "cluster").is_some(), has_cluster, "{name}");
        let missing = flavor.states.is_none().then_some("states_missing");
        assert_eq!(codes(&report), Vec::from_iter(missing), "{name}: {report:#}");
        assert_eq!(exit, Some(code), "{name}");

        // Three containers of the largest namespace over a day: CPU at each scrape, memory at every third one.
        let queries = report["queries"].as_array().expect("queries");
        let points: Vec<_> = queries.iter().map(|query| query["points"].as_u64()).collect();
        assert_eq!(points, [Some(3 * 721), Some(3 * 241)], "{name}: {queries:#?}");
        for query in queries {
            assert_eq!(query["series"], 3, "{name}: replicas are merged");
            assert!(query["asked"].as_str().is_some_and(|text| text.contains("\"shop\"")));
        }

        let flags = flags(&report);
        let [_, pod, container] = flavor.identity;
        for expected in [
            "--storage=prometheus".to_owned(),
            format!("--prometheus-address={url}"),
            format!("--prometheus-cadvisor-job-name={job}"),
            format!("--container-pod-name-label={pod}"),
            format!("--container-name-label={container}"),
        ] {
            assert!(flags.contains(&expected), "{name}: {expected} is not among {flags:?}");
        }
        // A flag without effect here is not suggested.
        assert!(!flags.iter().any(|flag| flag.contains("pod-label")), "{name}: {flags:?}");
        let known = crate::support::flags::of_role("recommender");
        for flag in &flags {
            let name = flag.trim_start_matches("--").split('=').next().expect("a name");
            assert!(known.iter().any(|known| known.name == name), "{flag} is not a flag");
        }
        let again: Vec<&str> = flags
            .iter()
            .map(String::as_str)
            .filter(|flag| flag.starts_with("--container-") || flag.contains("-cadvisor-"))
            .collect();
        let (second, exit) = examine(&url, &again).await;
        assert_eq!(finding(&second, "usage"), finding(&report, "usage"), "{name}");
        assert_eq!(exit, Some(code), "{name}");
    }
}

#[tokio::test]
async fn the_text_output_fits_80_columns_and_lists_every_query_on_request() {
    let history = shop(&OPERATOR, days(3, SignedDuration::from_mins(5)));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let address = format!("--prometheus-address={}", server.url());
    let mut lengths = Vec::new();
    for more in [&[][..], &["--queries"]] {
        let output = doctor(&[&[&*address][..], more].concat()).await;
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        for line in text.lines().filter(|line| !line.starts_with("    --")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for words in
            ["History goes back 3 d, not 8 d", "[history_short]", "[interval]", "2 warnings."]
        {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
        assert!(text.contains("rate(container_cpu_usage_seconds_total"), "{text}");
        assert_eq!(text.contains("/api/v1/status/buildinfo"), !more.is_empty(), "{text}");
        lengths.push(text.lines().count());
    }
    let lenient = doctor(&[&address, "--fail-on=problem"]).await;
    assert_eq!(lenient.status.code(), Some(0), "warnings are not failures: {lenient:?}");
    assert!(lengths[0] < 60 && lengths[1] > lengths[0], "{lengths:?}");
}

#[tokio::test]
async fn two_clusters_in_one_server_are_a_problem_until_a_matcher_selects_one() {
    let of = |cluster| {
        let usage: &'static [(&str, &str)] = if cluster == "qa" {
            &[("job", "kubelet"), ("cluster", "qa")]
        } else {
            &[("job", "kubelet"), ("cluster", "prod")]
        };
        LabelFlavor { usage, states: None, ..CHART }
    };
    let history = shop(&of("qa"), days(1, SignedDuration::from_mins(1)));
    let history = shop(&of("prod"), history);
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V2, history).await else {
        return;
    };
    let (mixed, exit) = examine(&server.url(), &["--history-length=1h"]).await;
    let (level, words) = finding(&mixed, "clusters").expect("clusters");
    assert!(level == "problem" && words.contains("cluster (prod, qa)"), "{words}");
    assert!(words.contains("--prometheus-matcher='cluster=\"prod\"'"), "{words}");
    assert_eq!(exit, Some(1));

    let matcher = "--prometheus-matcher=cluster=\"qa\"";
    let (chosen, _) = examine(&server.url(), &["--history-length=1h", matcher]).await;
    let cluster = finding(&chosen, "cluster").expect("a cluster");
    assert_eq!(cluster, ("ok", "All series are from one cluster: cluster is qa."));
    assert!(flags(&chosen).contains(&"--prometheus-matcher='cluster=\"qa\"'".to_owned()));
    for query in chosen["queries"].as_array().expect("queries") {
        assert!(query["asked"].as_str().is_some_and(|text| text.contains("cluster=\"qa\"")));
    }
}

#[tokio::test]
async fn a_server_without_container_series_is_reported_with_a_remedy() {
    let up = |_| Some(1.0);
    let history = days(1, SignedDuration::from_mins(1)).series("up", &[("job", "node")], up);
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let (report, exit) = examine(&server.url(), &[]).await;
    assert_eq!((codes(&report), exit), (vec!["usage_missing"], Some(1)));
    let (_, words) = finding(&report, "usage_missing").expect("reported");
    assert!(words.contains("/metrics/cadvisor"), "{words}");
    assert!(report.get("reachesSeconds").is_none() && report["queries"] == json!([]));
    let set = [
        "--container-pod-name-label=pod_name",
        "--container-name-label=name",
        "--container-namespace-label=namespace",
    ];
    let (report, exit) = examine(&server.url(), &set).await;
    assert_eq!(exit, Some(1));
    assert_eq!(finding(&report, "usage").expect("reported").0, "problem");
    assert!(codes(&report).contains(&"history_none"), "{report:#}");
}

#[tokio::test]
async fn with_two_kubelet_endpoints_the_flags_select_the_job_and_one_endpoint() {
    let mut history = shop(&OPERATOR, days(1, SignedDuration::from_mins(1)));
    for pod in ["web-0", "web-1", "web-2"] {
        let place = [("job", "kubelet"), ("metrics_path", "/metrics/resource")];
        let names = [("namespace", "shop"), ("pod", pod), ("container", "main")];
        let labels = [&place[..], &names].concat();
        history = history.series(MEMORY_METRIC, &labels, |_| Some(1e8));
    }
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let (report, _) = examine(&server.url(), &["--history-length=20h"]).await;
    let job = "--prometheus-cadvisor-job-name=kubelet".to_owned();
    assert!(flags(&report).contains(&job), "{:?}", flags(&report));
    let (again, _) = examine(&server.url(), &["--history-length=20h", &job]).await;
    for report in [&report, &again] {
        let (_, words) = finding(report, "usage").expect("usage");
        assert!(words.contains("from job kubelet at /metrics/cadvisor"), "{words}");
        for query in report["queries"].as_array().expect("queries") {
            let text = query["asked"].as_str().expect("a query");
            assert!(text.contains("metrics_path=\"/metrics/cadvisor\""), "{text}");
        }
    }
}

#[tokio::test]
async fn pods_without_series_are_reported_with_their_vpa() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    create_definitions(&bed).await;
    let namespace = bed.namespace("doctor").await;
    for name in ["web", "ledger"] {
        let vpa = format!(
            "metadata: {{name: {name}}}\n\
             spec: {{targetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}}}\n"
        );
        manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, &vpa).await;
        let deployment = manifests::deployment(name, 2, "100m", "64Mi");
        manifests::create::<Deployment>(bed.client(), &namespace, &deployment).await;
    }
    let mut web = Vec::new();
    for name in ["web-", "ledger-"] {
        let pods = bed.nodes().pods(&namespace, name, 2, "are ready", is_ready).await;
        if name == "web-" {
            web.extend(pods.into_iter().filter_map(|pod| pod.metadata.name));
        }
    }
    let names: Vec<&str> = web.iter().map(String::as_str).collect();
    let history = days(1, SignedDuration::from_mins(1));
    let history = workload(&OPERATOR, history, &namespace, &names);
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let config = format!("--kubeconfig={}", bed.kubeconfig_path().display());
    let wanted = "--history-length=20h";
    let (report, exit) = examine(&server.url(), &[&config, "-n", &namespace, wanted]).await;
    let cluster = &report["cluster"];
    assert_eq!(
        (&cluster["vpas"], &cluster["pods"], &cluster["withSeries"]),
        (&json!(2), &json!(4), &json!(2)),
        "{report:#}"
    );
    assert_eq!(
        cluster["without"],
        json!([{"namespace": namespace, "name": "ledger", "pods": 2, "withSeries": 0}])
    );
    let expected = vec!["history_not_found", "cluster_without"];
    assert_eq!((codes(&report), exit), (expected, Some(1)), "{report:#}");
    let (_, without) = finding(&report, "history_not_found").expect("reported");
    assert!(without.contains(&format!("1 have no history: {namespace}/ledger.")), "{without}");
    let (_, cost) = finding(&report, "history_cost").expect("cost is known");
    assert!(cost.contains(&format!("2 VPAs of namespace {namespace}")), "{cost}");
    let queries = report["queries"].as_array().expect("queries");
    let about = |topic: &str| queries.iter().filter(|query| query["about"] == topic).count();
    assert!(about("CPU") > 0 && about("memory") > 0, "{queries:#?}");
    let is_about_web =
        |query: &Value| query["asked"].as_str().is_some_and(|text| text.contains("web-"));
    assert!(queries.iter().any(is_about_web), "only their pods are queried: {queries:#?}");

    let lost = ["--kubeconfig=/nonexistent", wanted];
    let (report, _) = examine(&server.url(), &lost).await;
    let (level, words) = finding(&report, "cluster_unreadable").expect("reported");
    assert!(level == "warning" && words.contains("--kubeconfig=/nonexistent"), "{words}");
}

#[tokio::test]
async fn dropped_metric_families_are_reported_with_the_consequences() {
    let mut history = days(1, SignedDuration::from_mins(2));
    for metric in [CPU_METRIC, MEMORY_METRIC] {
        history = CHART.usage(history, metric, ["shop", "web-0", "main"], |_| Some(2e8));
    }
    let pod = [("namespace", "shop"), ("pod", "web-0")];
    history = CHART.state(history, "kube_pod_labels", &pod, |_| Some(1.0));
    let Some(server) = PrometheusServer::with_history(PrometheusRelease::V3, history).await else {
        return;
    };
    let (report, _) = examine(&server.url(), &[]).await;
    let findings = report["findings"].as_array().expect("findings");
    let family_findings = findings.iter().filter(|finding| finding["code"] == "states_family");
    let family_findings: Vec<_> = family_findings
        .filter_map(|finding| Some((finding["level"].as_str()?, finding["message"].as_str()?)))
        .collect();
    for (level, family) in [
        ("warning", "kube_pod_owner"),
        ("warning", "kube_pod_container_status_restarts_total"),
        ("ok", "kube_pod_container_status_last_terminated_reason"),
    ] {
        let of = |(known, words): &&(&str, &str)| *known == level && words.starts_with(family);
        assert!(
            family_findings.iter().any(|finding| of(&finding)),
            "{family} in {family_findings:?}"
        );
    }
}

#[test]
fn the_sample_report_follows_its_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE);
    let text = std::fs::read_to_string(path).expect("the sample is in the repository");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(faults(&schema("doctor-prometheus.v1.json"), &value), Vec::<String>::new());
    let mut wrong = value;
    wrong["findings"][0]["level"] = json!("fine");
    wrong["more"] = json!(1);
    assert_eq!(faults(&schema("doctor-prometheus.v1.json"), &wrong).len(), 2);
}
