//! `plimsoll explain pod` on a real cluster: its verdict is the reason that a running updater has for the pod.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Output,
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    ResourceExt,
    api::{Api, ListParams, Patch, PatchParams},
};
use plimsoll::report::explain::PodReport;
use plimsoll_core::types::Time;
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{
        DisruptionBudget, SkipReason,
        guard::{BudgetKind, Health, Rollout, WorkloadState, disruption_budget, workload_state},
    },
};
use serde_json::{Value, json};
use strum::VariantNames as _;

use super::{plimsoll, refused, text};
use crate::{
    recommender::upstream_rbac::grant,
    schema::{faults, schema},
    support::{Testbed, clock::wall_now, manifests, wait},
    updater::fixture::{self, deployment, pods, testbed_and_namespace, vpa, wait_for_ready_pods},
};

const SAMPLE: &str = "tests/data/explain-pod.json";

/// A namespace of a cluster, and the program's access to it.
struct Fixture {
    bed: Testbed,
    namespace: String,
    kubeconfig: PathBuf,
}

impl Fixture {
    async fn new(name: &str) -> Option<Self> {
        let (bed, namespace) = testbed_and_namespace(name).await?;
        let kubeconfig = bed.kubeconfig_path();
        Some(Self { bed, namespace, kubeconfig })
    }

    /// Runs `explain pod` for a pod of the namespace, which also contains the Leases.
    fn ask(&self, pod: &str, more: &[&str]) -> Output {
        let namespace = &self.namespace;
        let lease = format!("--leader-elect-resource-namespace={namespace}");
        let beats = format!("--recommender-heartbeat-namespace={namespace}");
        let own = [&*lease, &*beats, "--use-admission-controller-status=false"];
        self.ask_with(pod, &[&own[..], more].concat())
    }

    fn ask_with(&self, pod: &str, flags: &[&str]) -> Output {
        let config = format!("--kubeconfig={}", self.kubeconfig.display());
        let name = format!("{}/{pod}", self.namespace);
        let words = [&["explain", "pod", &*config, &*name], flags].concat();
        plimsoll(&words).output().expect("it starts")
    }

    /// The report and the exit code.
    fn report(&self, pod: &str, more: &[&str]) -> (PodReport, Option<i32>) {
        let output = self.ask(pod, &[more, &["-o", "json"]].concat());
        (read(&output), output.status.code())
    }

    /// The names of a workload's pods, in order.
    async fn names(&self, workload: &str) -> Vec<String> {
        let pods = pods(&self.bed.client(), &self.namespace, workload).await;
        let mut names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        names.sort_unstable();
        names
    }

    /// The resourceVersions of all objects that could be written.
    async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        let (client, all) = (self.bed.client(), ListParams::default());
        let api = Api::<Pod>::namespaced(client.clone(), &self.namespace);
        let found = api.list(&all).await.expect("a list").items.into_iter();
        let found = found.map(|one| one.metadata).chain({
            let api = Api::<VerticalPodAutoscaler>::namespaced(client.clone(), &self.namespace);
            api.list(&all).await.expect("a list").items.into_iter().map(|one| one.metadata)
        });
        let found = found.chain({
            let api = Api::<Lease>::namespaced(client.clone(), &self.namespace);
            api.list(&all).await.expect("a list").items.into_iter().map(|one| one.metadata)
        });
        for metadata in found {
            let version = metadata.resource_version.expect("has a version");
            versions.insert(metadata.uid.expect("has a uid"), version);
        }
        versions
    }

    async fn annotate(&self, vpa: &str, key: &str, value: &str) {
        let api = Api::<VerticalPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        api.patch(vpa, &PatchParams::default(), &patch).await.expect("is annotated");
    }

    /// Records on a VPA that its workload was changed just now.
    async fn record_recent_change(&self, name: &str) {
        let now = Time::from(wall_now());
        let rollout = Rollout {
            began: now,
            last: now,
            streak: 0,
            wave: now,
            touched: 1,
            // An eviction would be checked for its effect, and pods this young for the resources that it gave them.
            evicted: 0,
            before: Health::default(),
            target: Vec::new(),
        };
        let vpa = fixture::read(&self.bed, &self.namespace, name).await;
        let noted = WorkloadState { rollout: Some(rollout), ..WorkloadState::default() };
        let noted = noted.write(&vpa.spec.target_ref).expect("it fits");
        self.annotate(name, workload_state::ANNOTATION, &noted).await;
    }
}

fn read(output: &Output) -> PodReport {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|why| {
        panic!("{why}: {output:?}");
    });
    assert_eq!(faults(&schema("explain-pod.v1.json"), &value), Vec::<String>::new());
    serde_json::from_value(value).expect("a report")
}

fn verdict_word(report: &PodReport) -> &str {
    report.verdict.reason.as_deref().unwrap_or(&report.verdict.action)
}

#[tokio::test]
async fn explain_pod_decides_like_a_running_updater_and_writes_nothing() {
    let Some(fixture) = Fixture::new("explain-pod").await else { return };
    let (bed, namespace) = (&fixture.bed, &fixture.namespace);
    deployment(bed, namespace, "web", 4).await;
    vpa(bed, namespace, "web", "Recreate", "250m").await;
    let names = fixture.names("web").await;
    let versions = fixture.versions().await;

    let (first, code) = fixture.report(&names[0], &[]);
    assert_eq!((verdict_word(&first), code), ("evict", Some(0)), "{first:#?}");
    let need = first.need.as_ref().expect("is recommended for");
    assert_eq!(need.word.as_deref(), Some("outside_range"));
    let cpu = first.containers[0].cpu.expect("is requested");
    let amount = |text: &str| Some(text.parse().expect("a quantity"));
    assert_eq!((cpu.request, cpu.target), (amount("100m"), amount("250m")));
    let order = first.order.as_ref().expect("has a position");
    assert_eq!((order.place, order.candidates, order.before.len()), (Some(1), 4, 0));
    let group = first.group.expect("has a controller");
    assert_eq!((group.live, group.wanted, group.up, group.may_be_down), (4, 4, 4, 2));
    assert_eq!(
        first.workload.as_ref().map(|it| (&*it.kind, &*it.name)),
        Some(("Deployment", "web"))
    );
    assert_eq!(first.controller.as_ref().map(|it| &*it.kind), Some("ReplicaSet"));

    // One pod goes first, and the others wait for its outcome: they are too young for the next one to follow.
    let (second, code) = fixture.report(&names[1], &[]);
    assert_eq!((verdict_word(&second), code), ("cool_down", Some(1)), "{second:#?}");
    assert_eq!(second.order.expect("has a position").before[0].pod, names[0]);
    let third = fixture.report(&names[2], &["--cool-down=0"]).0;
    assert_eq!(
        verdict_word(&third),
        "unproven",
        "no eviction has had an observed effect: {third:#?}"
    );
    let hasty = ["--cool-down=0", "--max-unproven-evictions=0"];
    let third = fixture.report(&names[2], &hasty).0;
    assert_eq!(verdict_word(&third), "budget", "two of four may be down: {third:#?}");
    assert_eq!(third.order.expect("has a position").before.len(), 2);
    assert_eq!(fixture.versions().await, versions);

    fixture.record_recent_change("web").await;
    let versions = fixture.versions().await;
    let (resting, code) = fixture.report(&names[0], &[]);
    assert_eq!((verdict_word(&resting), code), ("cool_down", Some(1)), "{resting:#?}");
    assert_eq!(resting.findings[0].code, "cool_down");
    assert_eq!(resting.need.as_ref().and_then(|need| need.word.as_deref()), Some("outside_range"));
    let rollout = resting.guards.as_ref().and_then(|guards| guards.rollout).expect("is remembered");
    assert_eq!((rollout.touched, rollout.evicted), (1, 0));
    update_sample(&fixture, &resting);
    assert_text_output(&fixture, &names[0]);

    let running = fixture::start(bed.client(), namespace, &["--dry-run"]).await;
    let same = format!("plimsoll_updater_skipped_pods{{reason=\"{}\"}} 4", verdict_word(&resting));
    wait::until("a running updater reports the same verdict", || async {
        fixture::metrics(&running).await.contains(&same).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(fixture.versions().await, versions);
}

/// `UPDATE=1` writes the sample in the repository.
fn update_sample(fixture: &Fixture, report: &PodReport) {
    if std::env::var_os("UPDATE").is_some() {
        let sample = serde_json::to_string_pretty(report).expect("JSON") + "\n";
        let sample = sample.replace(&fixture.namespace, "shop");
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE), sample).expect("writes");
    }
}

fn assert_text_output(fixture: &Fixture, pod: &str) {
    let output = fixture.ask(pod, &[]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(output.stderr.is_empty(), "{output:?}");
    for line in printed.lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.trim_end() == line && !line.contains('\x1b'), "{line:?}");
    }
    for words in ["BLOCKED  cool_down", "UPDATE NEEDED  outside_range", "CONTAINER main", "GUARDS"]
    {
        assert!(printed.contains(words), "{words} is not in\n{printed}");
    }
}

#[tokio::test]
async fn a_pod_that_no_vpa_changes_is_explained_with_the_reason() {
    let Some(fixture) = Fixture::new("explain-lonely").await else { return };
    let (bed, namespace) = (&fixture.bed, &fixture.namespace);
    let lone = manifests::pod("lone", "Always", "100m", "64Mi");
    manifests::create::<Pod>(bed.client(), namespace, &lone).await;
    deployment(bed, namespace, "web", 1).await;
    wait::until("it runs", || async {
        let pod = Api::<Pod>::namespaced(bed.client(), namespace).get("lone").await.ok()?;
        (pod.status?.phase? == "Running").then_some(())
    })
    .await;
    let name = fixture.names("web").await.remove(0);

    let (lone, code) = fixture.report("lone", &[]);
    assert_eq!((verdict_word(&lone), code), ("no_controller", Some(0)), "{lone:#?}");
    let (none, code) = fixture.report(&name, &[]);
    assert_eq!((verdict_word(&none), code), ("no_vpa", Some(0)), "{none:#?}");
    assert!(none.verdict.message.contains("Deployment web"), "{none:#?}");
    vpa(bed, namespace, "web", "Off", "250m").await;
    let (off, code) = fixture.report(&name, &[]);
    assert_eq!((verdict_word(&off), code), ("vpa_off", Some(0)), "{off:#?}");
    assert_eq!(off.vpa.expect("a VPA matches the pod").update_mode, "Off");

    let printed = refused(&fixture.ask("lon", &[]), 1);
    assert!(printed.ends_with("did you mean lone?\n"), "{printed}");
    let printed = refused(&fixture.ask("lone", &["-n", "default"]), 2);
    assert!(printed.contains("set only one of them"), "{printed}");
}

#[tokio::test]
async fn pdbs_and_cluster_budgets_block_a_pod_before_any_request() {
    let Some(fixture) = Fixture::new("explain-budgets").await else { return };
    let (bed, namespace) = (&fixture.bed, &fixture.namespace);
    deployment(bed, namespace, "web", 3).await;
    vpa(bed, namespace, "web", "Recreate", "250m").await;
    let name = fixture.names("web").await.remove(0);
    let budget = "
metadata: {name: web}
spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}
";
    manifests::create::<PodDisruptionBudget>(bed.client(), namespace, budget).await;
    wait::until("the budget is counted", || async {
        let api = Api::<PodDisruptionBudget>::namespaced(bed.client(), namespace);
        let status = api.get("web").await.ok()?.status?;
        (status.expected_pods == 3).then_some(())
    })
    .await;
    let (held, code) = fixture.report(&name, &[]);
    assert_eq!((verdict_word(&held), code), ("disruption_budget", Some(1)), "{held:#?}");

    // Changes that other updaters recorded in the Lease count as well.
    let mut spent = DisruptionBudget::default();
    let now = Time::from(wall_now());
    for _ in 0..2 {
        spent.record(namespace, BudgetKind::Disruption, true, now);
    }
    let lease = json!({"metadata": {
        "name": "vpa-updater", "annotations": {disruption_budget::ANNOTATION: spent.write().expect("it fits")},
    }});
    manifests::create::<Lease>(bed.client(), namespace, &lease.to_string()).await;
    let (full, code) = fixture.report(&name, &["--max-namespace-disruptions-per-hour=2"]);
    assert_eq!((verdict_word(&full), code), ("namespace_budget", Some(1)), "{full:#?}");
    let changes = full.guards.expect("are reported").changes;
    assert_eq!((changes[0].made, changes[0].allowed), (2, Some(2)), "{changes:?}");
}

#[tokio::test]
async fn permission_for_one_namespace_is_enough_and_unreadable_parts_are_named() {
    let Some(mut fixture) = Fixture::new("explain-reader").await else { return };
    let (bed, namespace) = (&fixture.bed, &fixture.namespace);
    deployment(bed, namespace, "web", 3).await;
    vpa(bed, namespace, "web", "InPlaceOrRecreate", "250m").await;
    let name = fixture.names("web").await.remove(0);
    let account = bed.service_account(namespace, "reader").await;
    grant(&bed.client(), &reading(namespace)).await;
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("config");
    std::fs::write(&kubeconfig, &account.kubeconfig).expect("writes");
    fixture.kubeconfig = kubeconfig;

    let output = fixture.ask_with(&name, &["-o", "json"]);
    let report = read(&output);
    assert_eq!((verdict_word(&report), output.status.code()), ("resize", Some(0)), "{report:#?}");
    let guards = report.guards.expect("are reported");
    assert_eq!(guards.recommender.state, "unreadable");
    assert_eq!(guards.admission_controller.state, "unreadable");
    let notes = report.notes.join("\n");
    for words in ["Lease kube-system/vpa-updater", "PodDisruptionBudgets", "namespace kube-system"]
    {
        assert!(notes.contains(words), "{words} is not in {notes}");
    }
    assert!(
        wait_for_ready_pods(&fixture.bed, &fixture.namespace, "web", 3).await.len() == 3,
        "nothing was changed"
    );
}

/// The permissions to explain pods of a namespace.
fn reading(namespace: &str) -> String {
    let resources = [
        ("''", "[pods, limitranges, replicationcontrollers]"),
        ("apps", "[deployments, replicasets, statefulsets, daemonsets]"),
        ("batch", "[jobs, cronjobs]"),
        ("autoscaling.k8s.io", "[verticalpodautoscalers]"),
    ];
    let rule = |(group, resources): &(&str, &str)| {
        format!("- {{apiGroups: [{group}], resources: {resources}, verbs: [get, list, watch]}}\n")
    };
    let rules: String = resources.iter().map(rule).collect();
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reader, namespace: {namespace}}}
rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reader, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}
subjects: [{{kind: ServiceAccount, name: reader, namespace: {namespace}}}]
"
    )
}

#[test]
fn the_sample_pod_report_follows_its_schema() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SAMPLE);
    let text = std::fs::read_to_string(path).expect("the sample is in the repository");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(faults(&schema("explain-pod.v1.json"), &value), Vec::<String>::new());
    let mut wrong = value.clone();
    wrong["verdict"]["action"] = json!("perhaps");
    wrong["more"] = json!(1);
    assert_eq!(faults(&schema("explain-pod.v1.json"), &wrong).len(), 2);
    let reasons = &schema("explain-pod.v1.json")["properties"]["verdict"]["properties"]["reason"];
    for word in SkipReason::VARIANTS {
        let known = reasons["enum"].as_array().expect("a list");
        assert!(known.contains(&json!(word)), "{word} is not in the schema");
    }
    let report: PodReport = serde_json::from_value(value.clone()).expect("a report");
    assert_eq!(serde_json::to_value(&report).expect("JSON"), value, "it is all there");
}

#[test]
fn invalid_flags_are_rejected_before_any_request() {
    let refuse = |flags: &[&str], code| {
        let words = [&["explain", "pod", "web-0", "--kubeconfig=/nonexistent"], flags].concat();
        refused(&plimsoll(&words).output().expect("starts"), code)
    };
    assert!(refuse(&["--change-window=sometimes"], 1).contains("--change-window"));
    assert!(refuse(&["--evict-tolerance=1"], 2).contains("--eviction-tolerance"));
    assert!(refuse(&[], 1).contains("/nonexistent"));
}
