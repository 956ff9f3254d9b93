//! Owners of pods that are one workload: `--group-by-owner`.

use plimsoll_core::rightsizing::survey::OwnerGroup;

use super::*;

const ARGO: &str = "argoproj.io/v1alpha1";
const SPARK: &str = "sparkoperator.k8s.io/v1beta2";
const WORKFLOWS: &str = "/apis/argoproj.io/v1alpha1/workflows";
const CRON_WORKFLOWS: &str = "/apis/argoproj.io/v1alpha1/cronworkflows";

fn by(kinds: &[&str]) -> SurveyScope {
    let owner_kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
    let groups = OwnerGroups { owner_kinds, ..OwnerGroups::default() };
    SurveyScope { groups, ..SurveyScope::default() }
}

fn run(name: &str, of: [&str; 3], phase: &str) -> Value {
    let [version, kind, owner_name] = of;
    let main = json!([container("main", "100m", "64Mi")]);
    let mut pod = pod(name, owner(version, kind, owner_name), main);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["status"]["phase"] = json!(phase);
    pod
}

fn members(group: Option<&OwnerGroup>) -> Vec<String> {
    let members = group.into_iter().flat_map(|group| &group.members);
    let mut names: Vec<String> =
        members.map(|one| format!("{}/{} {}", one.kind, one.name, one.pods.len())).collect();
    names.sort_unstable();
    names
}

/// A CronWorkflow with a Workflow that has ended and one that runs, and a Spark application with an executor.
fn cluster() -> Cluster {
    let served = |kind: &str, plural: &str| json!([{"name": plural, "kind": kind, "singularName": "", "namespaced": true, "verbs": []}]);
    let both = [served("Workflow", "workflows"), served("CronWorkflow", "cronworkflows")];
    let argo: Value = both.iter().filter_map(|one| one.as_array().cloned()).flatten().collect();
    let of_cron = || owner(ARGO, "CronWorkflow", "nightly");
    Cluster::default()
        .serving("argoproj.io/v1alpha1", argo)
        .serving("sparkoperator.k8s.io/v1beta2", served("SparkApplication", "sparkapplications"))
        .with(CRON_WORKFLOWS, controller("nightly", json!([]), json!({})))
        .with(WORKFLOWS, controller("nightly-1", of_cron(), json!({})))
        .with(WORKFLOWS, controller("nightly-2", of_cron(), json!({})))
        .with(PODS, run("nightly-1-a", [ARGO, "Workflow", "nightly-1"], "Succeeded"))
        .with(PODS, run("nightly-2-a", [ARGO, "Workflow", "nightly-2"], "Running"))
        .with(PODS, run("nightly-2-b", [ARGO, "Workflow", "nightly-2"], "Running"))
        .with(PODS, run("pi-driver", [SPARK, "SparkApplication", "pi"], "Running"))
        .with(PODS, run("pi-exec-1", ["v1", "Pod", "pi-driver"], "Running"))
}

#[tokio::test]
async fn everything_below_an_owner_of_a_kind_is_one_workload() {
    let alone = cluster().survey(&SurveyScope::default()).await;
    assert_eq!(
        lines(&alone),
        [
            "Pod/pi-driver v1 x1 [pi-exec-1] main 100/64",
            "SparkApplication/pi sparkoperator.k8s.io/v1beta2 x1 [pi-driver] main 100/64",
            "Workflow/nightly-2 argoproj.io/v1alpha1 x2 [nightly-2-a nightly-2-b] main 100/64",
        ]
    );
    let survey = cluster().survey(&by(&["cronworkflow", "SparkApplication"])).await;
    assert_eq!((survey.unread.len(), survey.remarks.len()), (0, 0), "{survey:?}");
    let find = |name: &str| survey.workloads.iter().find(|one| *one.name == *name).expect(name);
    assert_eq!(survey.workloads.len(), 2, "{:?}", lines(&survey));
    let nightly = find("nightly");
    assert_eq!(nightly.pods, ["nightly-2-a", "nightly-2-b"].map(Box::<str>::from));
    let expected = ["Workflow/nightly-1 0", "Workflow/nightly-2 2"];
    assert_eq!(members(nightly.group.as_ref()), expected, "one that has ended is a run too");
    let expected = ["Pod/pi-driver 1", "SparkApplication/pi 1"];
    assert_eq!(members(find("pi").group.as_ref()), expected);
    assert_eq!(find("pi").group.as_ref().map(|group| &*group.by), Some("owner"));
}

#[tokio::test]
async fn pods_that_run_all_the_time_are_no_runs() {
    let main = json!([container("main", "100m", "64Mi")]);
    let strimzi = "core.strimzi.io/v1beta2";
    let survey = Cluster::default()
        .serving(
            "core.strimzi.io/v1beta2",
            json!([{"name": "strimzipodsets", "kind": "StrimziPodSet",
            "singularName": "", "namespaced": true, "verbs": []}]),
        )
        .with(
            "/apis/core.strimzi.io/v1beta2/strimzipodsets",
            controller("brokers", owner(strimzi, "Kafka", "events"), json!({})),
        )
        .with(PODS, pod("brokers-0", owner(strimzi, "StrimziPodSet", "brokers"), main))
        .survey(&by(&["Kafka"]))
        .await;
    assert_eq!(lines(&survey), ["Kafka/events core.strimzi.io/v1beta2 x1 [brokers-0] main 100/64"]);
    assert_eq!(survey.workloads[0].group, None);
}

#[tokio::test]
async fn a_kind_that_owns_nothing_is_named() {
    let survey = cluster().survey(&by(&["CronWorkflow", "TaskRun"])).await;
    let expected = "--group-by-owner=TaskRun: no pod and no controller has such an owner";
    assert_eq!(survey.remarks, [expected]);
}
