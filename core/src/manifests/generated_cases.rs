//! Generated patches, objects and values.

use proptest::prelude::*;
use serde_json::Value;

use crate::rightsizing::{
    report::{Change, Report},
    survey::{ContainerRole, Resource},
};

use super::{
    helm_values, kustomize, strategic,
    test_reports::{
        MIB, container, cpu, memory, report, resource, set, target, without_limit, workload,
    },
    vpa,
};

fn sample() -> Report {
    let mut init = container("migrate", vec![memory(100)]);
    init.role = ContainerRole::Init;
    let main = container(
        "main",
        vec![
            resource(
                Resource::Cpu,
                Change { request: Some(2000), remove_limit: true, ..Change::default() },
            ),
            resource(Resource::Memory, set(Some(844 * MIB), Some(844 * MIB))),
        ],
    );
    let mut checkout = workload("shop/Deployment/checkout", vec![main, init]);
    checkout.labels.insert("app.kubernetes.io/instance".to_owned(), "shop".to_owned());
    let mut search =
        workload("shop/Deployment/search", vec![container("main", vec![cpu(250), memory(64)])]);
    search.api_version = Some("apps/v1".to_owned());
    search.target_changes.push(target("search", Resource::Cpu, 75));
    report(vec![
        workload("ops/CronJob/reindex", vec![container("run", vec![cpu(100)])]),
        checkout,
        workload("shop/Deployment/kept", vec![container("main", vec![])]),
        search,
        workload("shop/Rollout/web", vec![container("main", vec![cpu(100)])]),
    ])
}

fn file(report: &Report, path: &str) -> String {
    let files = kustomize::component(report);
    let found = files.iter().find(|file| file.path == path);
    found.unwrap_or_else(|| panic!("no {path} in {files:?}")).text.clone()
}

const CHECKOUT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: checkout
  namespace: shop
spec:
  template:
    spec:
      containers:
      - name: main
        resources:
          requests:
            cpu: 2
            memory: 844Mi
          limits:
            cpu: null
            memory: 844Mi
      initContainers:
      - name: migrate
        resources:
          requests:
            memory: 100Mi
";

#[test]
fn a_component_has_a_patch_for_each_workload() {
    assert_eq!(
        file(&sample(), "kustomization.yaml"),
        r#"# Written by plimsoll recommend. Add this folder to the components of an overlay.
# shop/Deployment/search: the cpu target of HorizontalPodAutoscaler search changes with the requests.
# shop/Rollout/web is left out: a patch of this kind would replace the whole list of containers; use --diff
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- path: ops_cronjob_reindex.yaml
  target:
    kind: "^CronJob$"
    name: "^reindex$"
    namespace: "^(ops|default)$"
- path: shop_deployment_checkout.yaml
  target:
    kind: "^Deployment$"
    name: "^checkout$"
    namespace: "^(shop|default)$"
- path: shop_deployment_search.yaml
  target:
    kind: "^Deployment$"
    name: "^search$"
    namespace: "^(shop|default)$"
- patch: "[{\"op\": \"test\", \"path\": \"/spec/metrics/0/resource/name\", \"value\": \"cpu\"}, {\"op\": \"replace\", \"path\": \"/spec/metrics/0/resource/target/averageUtilization\", \"value\": 75}]"
  target:
    kind: "^HorizontalPodAutoscaler$"
    name: "^search$"
    namespace: "^(shop|default)$"
"#
    );
    assert_eq!(file(&sample(), "shop_deployment_checkout.yaml"), CHECKOUT);
    let cron = file(&sample(), "ops_cronjob_reindex.yaml");
    let cron: Value = serde_saphyr::from_str(&cron).expect("YAML");
    let container = &cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "100m");
}

#[test]
fn only_built_in_kinds_merge_containers_by_name() {
    let web = |kind: &str, version: Option<&str>| {
        let title = format!("shop/{kind}/web");
        let mut web = workload(&title, vec![container("main", vec![cpu(250)])]);
        web.api_version = version.map(str::to_owned);
        report(vec![web])
    };
    for (kind, version, is_patched) in [
        ("StatefulSet", None, true),
        ("StatefulSet", Some("apps/v1"), true),
        ("StatefulSet", Some("apps.kruise.io/v1beta1"), false),
        ("DaemonSet", Some("apps.kruise.io/v1alpha1"), false),
        ("CloneSet", None, false),
        ("CronJob", Some("batch/v1"), true),
    ] {
        let report = web(kind, version);
        let files = kustomize::component(&report);
        assert_eq!(files.len() == 2, is_patched, "{kind} {version:?}: {files:?}");
        assert_eq!(files[0].text.contains("web is left out: a patch"), !is_patched, "{kind}");
        assert_eq!(strategic::stream(&report).contains("spec:"), is_patched, "{kind} {version:?}");
    }
}

#[test]
fn a_target_is_left_out_if_series_do_not_tell_its_index() {
    let mut report = sample();
    report.workloads[3].api_version = None;
    let kustomization = file(&report, "kustomization.yaml");
    assert!(!kustomization.contains("/spec/metrics/"), "{kustomization}");
    assert!(
        kustomization.contains(
            "# shop/Deployment/search: cpu of container main is left out: the target of \
             HorizontalPodAutoscaler/search has to change in the same step, and its index in spec.metrics is \
             unknown without the API server\n"
        ),
        "{kustomization}"
    );
    let search = file(&report, "shop_deployment_search.yaml");
    assert!(search.contains("memory: 64Mi") && !search.contains("cpu:"), "{search}");
}

#[test]
fn init_containers_keep_their_order() {
    let init = |name, resources| {
        let mut init = container(name, resources);
        init.role = ContainerRole::Init;
        init
    };
    let containers = vec![
        init("first", vec![]),
        init("second", vec![memory(64)]),
        init("third", vec![]),
        container("main", vec![]),
    ];
    let mut ordered = workload("shop/Deployment/web", containers);
    assert!(strategic::stream(&report(vec![ordered.clone()])).contains("order is unknown"));
    ordered.api_version = Some("apps/v1".to_owned());
    let stream = strategic::stream(&report(vec![ordered]));
    let patch: Value = serde_saphyr::from_str(&stream).expect("YAML");
    assert_eq!(
        patch["spec"]["template"]["spec"],
        serde_json::json!({"initContainers": [
            {"name": "first"}, {"name": "second", "resources": {"requests": {"memory": "64Mi"}}}
        ]})
    );
}

#[test]
fn clusters_have_components_of_their_own() {
    let mut report = sample();
    let mut other = report.workloads[1].clone();
    for (cluster, workload) in [("eu", &mut report.workloads[1]), ("../us", &mut other)] {
        workload.cluster = Some(cluster.to_owned());
    }
    report.workloads = vec![report.workloads[1].clone(), other];
    let paths: Vec<_> = kustomize::component(&report).into_iter().map(|file| file.path).collect();
    assert_eq!(
        paths,
        [
            "_.._us/kustomization.yaml",
            "_.._us/shop_deployment_checkout.yaml",
            "eu/kustomization.yaml",
            "eu/shop_deployment_checkout.yaml"
        ]
    );
}

#[test]
fn the_stream_leaves_out_what_an_autoscaler_has_to_follow() {
    let stream = strategic::stream(&sample());
    assert!(stream.contains(&format!("---\n{CHECKOUT}")), "{stream}");
    assert!(stream.contains(
        "# shop/Deployment/search: cpu of container main is left out: the target of HorizontalPodAutoscaler/search has to change in the same step\n"
    ), "{stream}");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&stream).expect("YAML");
    let search = documents.iter().find(|one| one["metadata"]["name"] == "search").expect("a patch");
    let resources = &search["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(resources, &serde_json::json!({"requests": {"memory": "64Mi"}}));
}

#[test]
fn values_are_comments_by_release() {
    let mut report = sample();
    // An annotation of Helm, never a label.
    report.workloads[0].labels.insert("meta.helm.sh/release-name".to_owned(), "x".to_owned());
    let text = helm_values::values(&report);
    assert!(
        text.starts_with("# Where a chart has these values is up to the chart.\n\n#"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
    assert!(text.contains("\n# Release shop in namespace shop\n# Deployment/checkout, container main\n#   resources:\n#     requests:\n#       cpu: 2\n"), "{text}");
    assert!(text.contains("\n# No release in namespace ops\n"), "{text}");
    assert!(text.contains("# shop/Deployment/search: set the cpu target of HorizontalPodAutoscaler/search from 60 to 75 % in the same step\n"), "{text}");
}

#[test]
fn vpas_only_recommend() {
    let mut report = sample();
    report.workloads.push(workload("shop/StatefulSet/checkout", vec![]));
    report.workloads.push(workload("shop/Pod/bare", vec![]));
    report.workloads[2].vpa = Some("kept".to_owned());
    let text = vpa::objects(&report);
    assert!(text.starts_with(
        "---\napiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata:\n  name: reindex\n  namespace: ops\nspec:\n  targetRef:\n    apiVersion: batch/v1\n    kind: CronJob\n    name: reindex\n  updatePolicy:\n    updateMode: \"Off\"\n---\n"
    ), "{text}");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    let names: Vec<_> =
        documents.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["reindex", "checkout", "search", "checkout-statefulset"]);
    for comment in [
        "# shop/Deployment/kept is left out: it has a VerticalPodAutoscaler\n",
        "# shop/Rollout/web is left out: it has an unknown API version\n",
        "# shop/Pod/bare is left out: it has no controller\n",
    ] {
        assert!(text.contains(comment), "{text}");
    }
}

proptest! {
    /// Whatever names are, all outputs are read as what was meant, and paths stay in the folder.
    #[test]
    fn hostile_names_stay_names(name in ".{1,40}", namespace in ".{1,20}", in_container in ".{1,20}", label in ".{0,20}") {
        let mut hostile = workload("a/Deployment/b", vec![container(&in_container, vec![cpu(250), without_limit(Resource::Memory)])]);
        hostile.name.clone_from(&name);
        hostile.namespace.clone_from(&namespace);
        hostile.labels.insert("app.kubernetes.io/instance".to_owned(), label);
        hostile.api_version = Some("apps/v1".to_owned());
        hostile.target_changes.push(target(&name, Resource::Cpu, 75));
        let mut rollout = hostile.clone();
        rollout.kind = "Rollout".to_owned();
        rollout.api_version = None;
        let report = report(vec![hostile, rollout]);

        for file in kustomize::component(&report) {
            prop_assert!(!file.path.starts_with('.') && !file.path.contains(['/', '\\', '\0']), "{}", file.path);
            let read: Value = serde_saphyr::from_str(&file.text).expect("YAML");
            if file.path == "kustomization.yaml" {
                prop_assert_eq!(read["patches"].as_array().map(Vec::len), Some(2));
            } else {
                prop_assert_eq!(&read["metadata"]["name"], &Value::from(name.clone()));
                prop_assert_eq!(&read["metadata"]["namespace"], &Value::from(namespace.clone()));
                let container = &read["spec"]["template"]["spec"]["containers"][0];
                prop_assert_eq!(&container["name"], &Value::from(in_container.clone()));
            }
        }
        let vpas: Vec<Value> = serde_saphyr::from_multiple(&vpa::objects(&report)).expect("YAML");
        prop_assert_eq!(vpas.iter().filter(|one| !one.is_null()).count(), 1);
        let stream: Vec<Value> = serde_saphyr::from_multiple(&strategic::stream(&report)).expect("YAML");
        prop_assert!(stream.iter().filter(|one| !one.is_null()).count() <= 1);
        let values = helm_values::values(&report);
        prop_assert!(values.lines().all(|line| line.is_empty() || line.starts_with('#')));
        prop_assert!(values.is_ascii());
    }
}
