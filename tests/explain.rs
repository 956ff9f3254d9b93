//! `plimsoll explain vpa` on a real cluster: it prints the recommender's state and its reasons.

mod explanation_annotation;
mod hpa;
mod pod;
mod watermark;

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams};
use plimsoll::{
    cluster::clock::Clock,
    controllers::recommender::RecommenderHandle,
    report::explain::{Agreement, VpaReport},
};
use plimsoll_core::{
    api::VerticalPodAutoscaler, recommender::ResourceExplanation, types::quantity::Quantity,
};
use plimsoll_core::{api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint, types::Time};
use plimsoll_storage::checkpoint::annotation;
use serde_json::{Value, json};

use crate::{
    recommender::in_process::{start, step, wait_for_passes},
    recommender_model::explanations::recompute,
    schema::{faults, schema},
    storage::checkpoint_objects::create_definitions,
    support::{
        MetricsServer, Testbed, clock,
        hollow_nodes::{has_condition, is_ready},
        manifests,
        metrics_server::UsageValue,
        wait,
    },
};

const STEP: Duration = Duration::from_mins(10);
const STEPS: u32 = 60;
const MEBIBYTE: u64 = 1 << 20;
const SAMPLE: &str = "tests/data/explain-vpa.json";

/// The program without this machine's environment variables.
fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).env_clear().env("LANG", "C.UTF-8").stdin(Stdio::null());
    command
}

/// Runs `explain vpa` with a kubeconfig; for commands that end by themselves.
fn explain(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let config = format!("--kubeconfig={}", kubeconfig.display());
    plimsoll(&[&["explain", "vpa", &*config], arguments].concat()).output().expect("it starts")
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn json_of(output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
        panic!("{why}: {output:?}");
    });
    assert_eq!(faults(&schema("explain-vpa.v1.json"), &value), Vec::<String>::new());
    value
}

fn refused(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let printed = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert!(printed.starts_with("plimsoll: ") && output.stdout.is_empty(), "{printed}");
    printed
}

/// A cluster with a VPA and a recommender in the test's process.
struct Fixture {
    bed: Testbed,
    usage: MetricsServer,
    namespace: String,
    clock: Clock,
    nodes: clock::Clock,
    kubeconfig: PathBuf,
}

impl Fixture {
    async fn new() -> Option<Self> {
        let begin = clock::wall_now() - STEP * (STEPS + 4);
        let nodes = clock::Clock::frozen_at(begin);
        let bed =
            Testbed::private_with(&[], nodes.clone()).await.filter(Testbed::has_controllers)?;
        let kubeconfig = bed.kubeconfig_path();
        let undefined = refused(&explain(&kubeconfig, &["shop/web"]), 1);
        assert!(undefined.contains("apply the output of `plimsoll crds`"), "{undefined}");
        create_definitions(&bed).await;
        bed.nodes().add("node", "8", "16Gi").await;
        let usage = MetricsServer::serve(&bed).await;
        let namespace = bed.namespace("shop").await;
        let vpa = "
metadata: {name: web}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  resourcePolicy: {containerPolicies: [{containerName: main, maxAllowed: {cpu: '2'}}]}
";
        manifests::create::<VerticalPodAutoscaler>(bed.client(), &namespace, vpa).await;
        let web = manifests::deployment("web", 2, "100m", "256Mi");
        manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
        bed.nodes().pods(&namespace, "web-", 2, "are ready", is_ready).await;
        usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.3, memory: 200 * MEBIBYTE });
        usage.at(begin);
        let clock = Clock::fake(Time::from(begin));
        Some(Self { bed, usage, namespace, clock, nodes, kubeconfig })
    }

    async fn run_steps(&self, running: &RecommenderHandle, steps: u32) {
        for _ in 0..steps {
            self.usage.at(self.clock.now().later(STEP).into());
            self.nodes.step(STEP.try_into().expect("a short step"));
            step(running, &self.clock, STEP).await;
        }
    }

    /// OOM-kills a container, and waits until its pod reports it and is ready again.
    async fn kill(&self) {
        let pods = self.bed.nodes().pods(&self.namespace, "web-", 2, "are ready", is_ready).await;
        let name = pods[0].metadata.name.clone().expect("a name");
        self.bed.nodes().oom_kill(&self.namespace, &name, "main").await;
        let restarted = |pod: &k8s_openapi::api::core::v1::Pod| {
            let statuses =
                pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            let first = statuses.and_then(|all| all.first());
            first.is_some_and(|status| status.restart_count > 0)
                && has_condition(pod, "Ready", "True")
        };
        self.bed
            .nodes()
            .pod(&self.namespace, &name, "is OOM-killed and ready again", restarted)
            .await;
    }

    fn explain(&self, arguments: &[&str]) -> Output {
        explain(&self.kubeconfig, arguments)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explanation_from_a_checkpoint_matches_the_status_and_its_own_steps() {
    let Some(fixture) = Fixture::new().await else { return };
    let name = format!("{}/web", fixture.namespace);
    let json = ["-o", "json"];

    let young = json_of(&fixture.explain(&[&[&*name], &json[..]].concat()));
    assert_eq!(young["history"]["records"], json!([]));
    assert_eq!(young["containers"][0]["cpu"]["agreement"], "unwritten");

    let running = start(&fixture.bed, &fixture.clock, &["--bounds-dead-band=0"]).await;
    wait_for_passes(&running, 1).await;
    fixture.run_steps(&running, STEPS / 2).await;
    fixture.kill().await;
    fixture.run_steps(&running, STEPS / 2).await;
    wait::until("everything is written", || async {
        (running.pending_statuses() == 0).then_some(())
    })
    .await;
    running.stop().await;

    let output = fixture.explain(&[&[&*name], &json[..]].concat());
    let value = json_of(&output);
    assert_eq!(output.status.code(), Some(0), "{:#}", value["findings"]);
    let report: VpaReport = serde_json::from_value(value.clone()).expect("a report");
    assert_eq!(report.history.records.len(), 1, "{:?}", report.history);
    assert_eq!(value["history"]["records"][0]["form"], "exact");
    assert!(value["history"]["records"][0]["written"].is_string(), "{value:#}");
    let main = &report.containers[0];
    assert_eq!((main.pods, report.pods), (2, 2));
    assert_eq!(main.kills.iter().map(|kill| kill.counted).collect::<Vec<_>>(), [Some(true)]);
    for (resource, is_cpu) in [(&main.cpu, true), (&main.memory, false)] {
        let resource = resource.as_ref().expect("is recommended");
        assert_eq!(resource.agreement, Agreement::Same, "{resource:#?}");
        let again = recompute(&resource.chain, is_cpu);
        let numbers = resource.recomputed;
        let all = [numbers.target, numbers.lower, numbers.upper, numbers.uncapped];
        assert_eq!([again.target, again.lower, again.upper, again.uncapped].map(Some), all);
    }
    assert!(main.memory.as_ref().is_some_and(|memory| memory.chain.bump.is_some()));
    if std::env::var_os("UPDATE").is_some() {
        let sample = serde_json::to_string_pretty(&value).expect("JSON") + "\n";
        let sample = sample.replace(&fixture.namespace, "shop");
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE), sample).expect("writes");
    }

    assert_text_output(&fixture, &name);
    assert_other_flags_are_reported(&fixture, &name);
    assert_suggestion(&fixture);
    assert_upstream_explanation(&fixture, &name).await;
}

fn assert_text_output(fixture: &Fixture, name: &str) {
    let output = fixture.explain(&[name]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    assert!(output.stderr.is_empty(), "{output:?}");
    for line in printed.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.trim_end() == line && !line.contains('\x1b'), "{line:?}");
    }
    for words in [
        "CONTAINER main",
        "in status",
        "recomputed",
        "OOM kill",
        "max_allowed: p95 reads",
        "CONDITIONS",
    ] {
        assert!(printed.contains(words), "{words} is not in\n{printed}");
    }
    // The same by flags, like kubectl.
    let by_flag = fixture.explain(&["web", "--namespace", &fixture.namespace, "--context=bed"]);
    assert_eq!(by_flag.status.code(), Some(0), "{by_flag:?}");
    let elsewhere = fixture.explain(&[name, "-n", "default"]);
    assert!(refused(&elsewhere, 2).contains("set only one of them"));
}

fn assert_other_flags_are_reported(fixture: &Fixture, name: &str) {
    let output = fixture.explain(&[name, "--recommendation-margin-fraction=0.9", "-o=json"]);
    let value = json_of(&output);
    assert_eq!(output.status.code(), Some(1), "{value:#}");
    assert_eq!(value["findings"][0]["code"], "numbers_differ", "{value:#}");
    let local = fixture.explain(&[name, "--storage=local:/nonexistent"]);
    assert!(refused(&local, 1).contains("no such directory"));
}

fn assert_suggestion(fixture: &Fixture) {
    let namespace = &*fixture.namespace;
    let printed = refused(&fixture.explain(&["wbe", "-n", namespace]), 1);
    assert!(printed.ends_with("did you mean web?\n"), "{printed}");
    let printed = refused(&fixture.explain(&["web"]), 1);
    assert!(
        printed.contains("default/web not found: no VerticalPodAutoscalers in namespace default"),
        "{printed}"
    );
}

async fn assert_upstream_explanation(fixture: &Fixture, name: &str) {
    let api = Api::<Checkpoint>::namespaced(fixture.bed.client(), &fixture.namespace);
    let without = Patch::Merge(json!({"metadata": {"annotations": {annotation::KEY: null}}}));
    api.patch("web-main", &PatchParams::default(), &without).await.expect("is changed");
    let output = fixture.explain(&[name, "-o", "json"]);
    let value = json_of(&output);
    assert_eq!(value["history"]["records"][0]["form"], "upstream");
    // A weight of 1e-4 moves no percentile here, but all memory samples are in open windows.
    let cpu = &value["containers"][0]["cpu"];
    assert_eq!(cpu["status"]["target"], cpu["recomputed"]["target"], "{value:#}");
    assert_eq!(value["findings"], json!([]));
    assert!(text(&fixture.explain(&[name])).contains("upstream's form"));
    api.delete("web-main", &kube::api::DeleteParams::default()).await.expect("is removed");
    let output = fixture.explain(&[name, "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json_of(&output)["findings"][0]["code"], "history_missing");
}

#[test]
fn an_unreachable_api_server_is_a_one_line_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mute = listener.local_addr().expect("an address").port();
    // Connections to the first port are refused, and the other one never responds.
    for port in [1, mute] {
        let file = folder.path().join(format!("config-{port}"));
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             clusters: [{{name: x, cluster: {{server: 'https://127.0.0.1:{port}'}}}}]\n\
             users: [{{name: x, user: {{token: t}}}}]\n\
             contexts: [{{name: x, context: {{cluster: x, user: x, namespace: shop}}}}]\n"
        );
        std::fs::write(&file, config).expect("writes");
        let printed = refused(&explain(&file, &["web"]), 1);
        assert!(printed.contains("shop/web") && printed.contains(&port.to_string()), "{printed}");
        let printed = refused(&explain(&file, &["web", "--context=other"]), 1);
        assert!(printed.contains("other"), "{printed}");
    }
    let printed = refused(&explain(&folder.path().join("missing"), &["web"]), 1);
    assert!(printed.contains("--kubeconfig="), "{printed}");
}

#[test]
fn explain_rejects_unsupported_kinds_and_malformed_names() {
    let printed = refused(&plimsoll(&["explain", "dpa", "web"]).output().expect("starts"), 2);
    for words in ["unrecognized subcommand 'dpa'", "'vpa'", "'hpa'", "'wpa'"] {
        assert!(printed.contains(words), "{words} is not in {printed}");
    }
    let printed = refused(&plimsoll(&["explain", "vpa", "a/b/c"]).output().expect("starts"), 2);
    assert!(printed.contains("NAMESPACE/NAME"), "{printed}");
}

#[test]
fn the_sample_report_follows_its_schema_and_its_targets_follow_from_its_steps() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE);
    let text = std::fs::read_to_string(path).expect("the sample is in the repository");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(faults(&schema("explain-vpa.v1.json"), &value), Vec::<String>::new());
    let mut wrong = value.clone();
    wrong["containers"][0]["cpu"]["agreement"] = json!("perhaps");
    wrong["more"] = json!(1);
    assert_eq!(faults(&schema("explain-vpa.v1.json"), &wrong).len(), 2);
    let report: VpaReport = serde_json::from_value(value).expect("a report");
    let check = |chain: &ResourceExplanation, is_cpu, target: Option<Quantity>| {
        assert_eq!(Some(recompute(chain, is_cpu).target), target);
    };
    for container in &report.containers {
        for (resource, is_cpu) in [(&container.cpu, true), (&container.memory, false)] {
            let resource = resource.as_ref().expect("is recommended");
            check(&resource.chain, is_cpu, resource.recomputed.target);
        }
    }
}
