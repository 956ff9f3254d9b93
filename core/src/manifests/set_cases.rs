//! Sets of manifests: which objects are edited, and where resources are.

use crate::rightsizing::{report::Report, survey::Resource};

use super::{
    EditPlan, MAX_FILE_BYTES, MAX_FILES, ManifestSet, Placement, Refusal,
    test_reports::{MIB, container, memory, report, resource, set, workload},
    unified_diff,
};

const CHECKOUT: &str = "\
# The shop's checkout.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: checkout
  namespace: shop
  labels:
    app: checkout
spec:
  replicas: 6
  template:
    metadata:
      labels:
        app: checkout
    spec:
      containers:
        - name: main
          image: shop/checkout:1
          resources:
            requests:
              cpu: 500m        # measured in May
              memory: 512Mi
            limits:
              memory: 512Mi
";

fn checkout() -> Report {
    let missing = |title| workload(title, vec![container("main", vec![memory(100)])]);
    report(vec![
        workload(
            "shop/Deployment/checkout",
            vec![container(
                "main",
                vec![
                    resource(Resource::Cpu, set(None, None)),
                    resource(Resource::Memory, set(Some(844 * MIB), Some(844 * MIB))),
                ],
            )],
        ),
        missing("shop/Deployment/search"),
        missing("ml/Deployment/embed"),
        workload("shop/Deployment/unchanged", vec![container("main", vec![])]),
        missing("infra/DaemonSet/logs"),
    ])
}

fn plan(report: &Report, files: &[(&str, &str)]) -> EditPlan {
    let mut manifests = ManifestSet::new(report);
    for (path, text) in files {
        manifests.add(path, text);
    }
    manifests.plan()
}

/// The line of a resource of the first container of a workload.
fn line(plan: &EditPlan, workload: usize, resource: Resource) -> Option<usize> {
    let mut placements = plan.placements.iter();
    let is_it =
        |one: &&Placement| (one.workload, one.container, one.resource) == (workload, 0, resource);
    placements.find(is_it).map(|one| one.line)
}

fn reasons(plan: &EditPlan) -> Vec<(&str, usize, &Refusal)> {
    plan.problems.iter().map(|problem| (&*problem.file, problem.line, &problem.reason)).collect()
}

#[test]
fn the_difference_is_that_of_the_documentation() {
    let plan = plan(&checkout(), &[("deploy/shop/checkout.yaml", CHECKOUT)]);
    let [file] = &plan.files[..] else { panic!("{plan:?}") };
    assert_eq!(
        unified_diff(&file.path, &file.before, &file.after),
        "\
--- deploy/shop/checkout.yaml
+++ deploy/shop/checkout.yaml
@@ -19,6 +19,6 @@
           resources:
             requests:
               cpu: 500m        # measured in May
-              memory: 512Mi
+              memory: 844Mi
             limits:
-              memory: 512Mi
+              memory: 844Mi
"
    );
    assert_eq!(
        plan.summary(),
        "1 file, 2 values. 3 workloads of the cluster are in no file: shop/search, ml/embed, infra/logs."
    );
}

#[test]
fn places_of_all_resources_are_known() {
    let plan = plan(&checkout(), &[("a.yaml", CHECKOUT)]);
    assert_eq!(line(&plan, 0, Resource::Cpu), Some(21));
    assert_eq!(line(&plan, 0, Resource::Memory), Some(22));
    assert_eq!(line(&plan, 1, Resource::Memory), None);
    let bare = CHECKOUT.replace("            requests:\n              cpu: 500m        # measured in May\n              memory: 512Mi\n", "");
    let plan = super::set_cases::plan(&checkout(), &[("a.yaml", &bare)]);
    assert_eq!(line(&plan, 0, Resource::Cpu), Some(19));
    assert_eq!(line(&plan, 0, Resource::Memory), Some(21));
}

#[test]
fn an_object_in_two_files_is_refused() {
    let without_namespace = CHECKOUT.replace("  namespace: shop\n", "");
    let plan = plan(&checkout(), &[("b.yaml", CHECKOUT), ("a.yaml", &without_namespace)]);
    let reason = Refusal::SeveralObjects { file: "b.yaml".into(), line: 2 };
    assert_eq!(reasons(&plan), [("a.yaml", 2, &reason)]);
    assert_eq!(plan.files, []);
    // An object of another namespace is another object.
    let other = CHECKOUT.replace("namespace: shop", "namespace: dev");
    let plan = super::set_cases::plan(&checkout(), &[("b.yaml", CHECKOUT), ("a.yaml", &other)]);
    assert_eq!((plan.files.len(), plan.problems.len()), (1, 0));
    assert_eq!(&*plan.files[0].path, "b.yaml");
}

#[test]
fn an_object_that_can_be_several_workloads_is_refused() {
    let mut report = checkout();
    report.workloads.push(workload("dev/Deployment/checkout", vec![container("main", vec![])]));
    let without_namespace = CHECKOUT.replace("  namespace: shop\n", "");
    let plan = plan(&report, &[("a.yaml", &without_namespace)]);
    assert_eq!(reasons(&plan), [("a.yaml", 2, &Refusal::SeveralWorkloads(2))]);
    let plan = super::set_cases::plan(&report, &[("a.yaml", CHECKOUT)]);
    assert_eq!((plan.files.len(), plan.problems.len()), (1, 0));
    // The namespace does not tell clusters apart.
    let mut report = checkout();
    let mut other = report.workloads[0].clone();
    other.cluster = Some("eu".to_owned());
    report.workloads.push(other);
    let plan = super::set_cases::plan(&report, &[("a.yaml", CHECKOUT)]);
    let reason = Refusal::SeveralClusters(2);
    assert_eq!(reasons(&plan), [("a.yaml", 2, &reason), ("a.yaml", 2, &reason)]);
    assert!(reason.to_string().contains("each of 2 clusters"));
}

#[test]
fn a_template_of_two_workloads_is_refused_and_the_rest_is_edited() {
    let main = |request| vec![container("main", vec![memory(request)])];
    let rollout = "kind: Rollout\nmetadata: {name: web, namespace: shop}\nspec:\n  workloadRef: {kind: Deployment, name: checkout}\n";
    let other = CHECKOUT.replace("checkout", "other");
    let files = [("a.yaml", CHECKOUT), ("b.yaml", rollout), ("c.yaml", &*other)];
    let of = |deployment| {
        report(vec![
            workload("shop/Deployment/checkout", deployment),
            workload("shop/Deployment/other", main(300)),
            workload("shop/Rollout/web", main(200)),
        ])
    };
    let shared = plan(&of(main(100)), &files);
    let [deployment, rollout] = ["Deployment/checkout", "Rollout/web"]
        .map(|title| Refusal::SharedTemplate(format!("shop/{title}")));
    assert_eq!(reasons(&shared), [("a.yaml", 2, &rollout), ("a.yaml", 2, &deployment)]);
    let edited: Vec<_> = shared.files.iter().map(|file| &*file.path).collect();
    assert_eq!(edited, ["c.yaml"]);
    // A Deployment that needs no change, as one that is scaled to zero, does not get in the way.
    let plan = plan(&of(vec![]), &files);
    assert_eq!((plan.files.len(), plan.problems.len()), (2, 0), "{plan:?}");
}

#[test]
fn templates_and_broken_files_are_named_with_their_line() {
    let template = format!("{{{{- if .Values.on }}}}\n{CHECKOUT}{{{{- end }}}}\n");
    let named =
        CHECKOUT.replace("name: checkout\n  namespace", "name: {{ .Release.Name }}-x\n  namespace");
    let broken = format!("{CHECKOUT}  x: [\n");
    let plan = plan(
        &checkout(),
        &[
            ("a.yaml", &template),
            ("b.yaml", &named),
            ("c.yaml", &broken),
            ("values.yaml", "a: {{\n"),
            ("r.yaml", &CHECKOUT.replace("6\n", "6\r")),
        ],
    );
    let found = reasons(&plan);
    assert_eq!(found[0], ("a.yaml", 1, &Refusal::Template));
    assert_eq!(found[1], ("b.yaml", 5, &Refusal::Template));
    assert!(matches!(found[2], ("c.yaml", 24.., Refusal::Syntax(_))), "{found:?}");
    assert_eq!(found[3..], [("r.yaml", 10, &Refusal::LineEnd)]);
    assert_eq!(plan.missing[0], "shop/checkout");
}

#[test]
fn limits_hold() {
    let report = checkout();
    let mut manifests = ManifestSet::new(&report);
    manifests.add("large.yaml", &format!("{CHECKOUT}#{}", "x".repeat(MAX_FILE_BYTES)));
    for _ in 0..MAX_FILES + 5 {
        manifests.add("other.yaml", "a: 1\n");
    }
    manifests.add("late.yaml", CHECKOUT);
    let plan = manifests.plan();
    assert_eq!(
        reasons(&plan),
        [("large.yaml", 1, &Refusal::TooLarge), ("other.yaml", 1, &Refusal::TooManyFiles)]
    );
    assert_eq!(plan.files, []);
}

#[test]
fn a_container_that_something_else_adds_is_refused() {
    let plan = plan(&checkout(), &[("a.yaml", &CHECKOUT.replace("name: main", "name: other"))]);
    assert_eq!(reasons(&plan), [("a.yaml", 2, &Refusal::ContainerMissing)]);
    let plan = super::set_cases::plan(
        &checkout(),
        &[("a.yaml", "kind: Deployment\nmetadata: {name: checkout}\n")],
    );
    assert_eq!(reasons(&plan), [("a.yaml", 1, &Refusal::NoPodTemplate)]);
}

#[test]
fn a_patch_for_kustomize_is_edited_like_an_object() {
    let patch = "kind: Deployment\nmetadata:\n  name: checkout\nspec:\n  template:\n    spec:\n      containers:\n      - name: sidecar\n      - name: main\n";
    let kustomization = "resources: [../base]\npatches:\n- path: patch.yaml\n";
    let files = [("prod/patch.yaml", patch), ("prod/kustomization.yaml", kustomization)];
    let plan = plan(&checkout(), &files);
    assert_eq!(plan.problems, []);
    assert_eq!(
        plan.files[0].after,
        format!(
            "{patch}        resources:\n          requests:\n            memory: 844Mi\n          limits:\n            memory: 844Mi\n"
        )
    );
}

#[test]
fn objects_with_patches_that_cannot_be_edited_are_refused() {
    let operation = "op: replace\n  path: /spec/template/spec/containers/0/resources/limits/memory\n  value: 1Gi\n";
    let file = format!("- {operation}");
    let inline = format!(
        "patches:\n- target: {{kind: Deployment, name: 'check.*'}}\n  patch: |-\n    - {}",
        operation.replace('\n', "\n    ")
    );
    let merge = "patches:\n- patch: |\n    kind: Deployment\n    metadata: {name: checkout}\n    spec: {template: {spec: {containers: [{name: main, resources: {limits: {cpu: 1}}}]}}}\n";
    let legacy = "patchesJson6902:\n- target: {kind: Deployment, name: checkout}\n  path: ../patches/p.yaml\n";
    for (kustomization, reason) in [
        (&*inline, Some(Refusal::JsonPatch)),
        (merge, Some(Refusal::InlinePatch)),
        (legacy, Some(Refusal::JsonPatch)),
        (&*legacy.replace("kind: Deployment", "kind: StatefulSet"), None),
        (&*legacy.replace("name: checkout", "name: other"), None),
        (&*legacy.replace("p.yaml", "q.yaml"), None),
        (&*inline.replace("/resources/", "/env/"), None),
    ] {
        let files = [
            ("base/checkout.yaml", CHECKOUT),
            ("patches/p.yaml", &*file),
            ("prod/kustomization.yaml", kustomization),
        ];
        let plan = plan(&checkout(), &files);
        let found = plan.problems.first().map(|problem| problem.reason.clone());
        assert_eq!(found, reason, "{kustomization}");
        assert_eq!(plan.files.is_empty(), reason.is_some());
    }
}
