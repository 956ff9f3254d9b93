//! Edits of single manifests: the text before and after.

use crate::rightsizing::{
    report::{Change, ResourceReport},
    survey::Resource,
};

use super::{
    EditPlan, ManifestSet, Refusal,
    test_reports::{
        MIB, container, cpu, memory, report, resource, set, target, without_limit, workload,
    },
};

const HEAD: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      containers:\n";

/// Plans the edits of one container of `shop/Deployment/web`.
fn plan(text: &str, resources: &[ResourceReport]) -> EditPlan {
    let report =
        report(vec![workload("shop/Deployment/web", vec![container("main", resources.to_vec())])]);
    let mut manifests = ManifestSet::new(&report);
    manifests.add("web.yaml", text);
    manifests.plan()
}

/// Checks the edit of a text, and that a second edit changes nothing.
fn assert_edit(before: &str, resources: &[ResourceReport], after: &str) {
    let first = plan(before, resources);
    assert_eq!(first.problems, [], "{before}");
    let [file] = &first.files[..] else { panic!("no edit of\n{before}") };
    assert_eq!(file.after, after);
    let second = plan(after, resources);
    assert_eq!(second.problems, [], "{after}");
    assert_eq!(second.files, [], "the second edit of\n{after}");
}

/// The same for the lines of a container.
fn assert_container(before: &str, resources: &[ResourceReport], after: &str) {
    assert_edit(&format!("{HEAD}{before}"), resources, &format!("{HEAD}{after}"));
}

fn both() -> [ResourceReport; 2] {
    [
        resource(Resource::Cpu, set(Some(250), None)),
        resource(Resource::Memory, set(Some(844 * MIB), Some(844 * MIB))),
    ]
}

#[test]
fn only_the_bytes_of_values_are_replaced() {
    assert_container(
        "      - name: main   # the one\n        resources:\n            limits: { memory: '512Mi' }  # x\n            requests:\n                cpu:   500m        # measured in May\n\n                \"memory\": \"512Mi\"",
        &both(),
        "      - name: main   # the one\n        resources:\n            limits: { memory: '844Mi' }  # x\n            requests:\n                cpu:   250m        # measured in May\n\n                \"memory\": \"844Mi\"",
    );
}

#[test]
fn equal_amounts_are_left_as_they_are_written() {
    let text = format!(
        "{HEAD}      - name: main\n        resources: {{requests: {{cpu: 0.25, memory: 864256Ki}}, limits: {{memory: 884998144}}}}\n"
    );
    let plan = plan(&text, &both());
    assert_eq!((plan.files, plan.problems), (vec![], vec![]));
}

#[test]
fn json_stays_json() {
    let before = r#"{"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [
  {"name": "main", "resources": {
    "requests": {
      "cpu": 1
    },
    "limits": {}
  }}]}}}}"#;
    let after = r#"{"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [
  {"name": "main", "resources": {
    "requests": {
      "cpu": "250m",
      "memory": "844Mi"
    },
    "limits": {"memory": "844Mi"}
  }}]}}}}"#;
    assert_edit(before, &both(), after);
    let whole = [resource(Resource::Cpu, set(Some(2000), None))];
    assert_edit(
        &before.replace("\"cpu\": 1", "\"cpu\": \"1\""),
        &whole,
        &before.replace("\"cpu\": 1", "\"cpu\": \"2\""),
    );
    assert_edit(before, &whole, &before.replace("\"cpu\": 1", "\"cpu\": 2"));
    let bare = r#"{"kind": "Pod", "metadata": {"name": "x"}, "a": null}"#;
    assert_eq!(plan(bare, &both()).files, []);
}

#[test]
fn missing_keys_are_inserted_like_their_neighbours() {
    // A missing value beside another one.
    assert_container(
        "      - name: main\n        resources:\n          requests:\n            cpu: 1 # one\n            # next\n          claims: []\n",
        &[memory(844)],
        "      - name: main\n        resources:\n          requests:\n            cpu: 1 # one\n            memory: 844Mi\n            # next\n          claims: []\n",
    );
    // A missing section, with wide indentation.
    assert_container(
        "      - name: main\n        resources:\n            # keep\n            limits:\n                memory: 1Gi",
        &[cpu(250), memory(844)],
        "      - name: main\n        resources:\n            # keep\n            limits:\n                memory: 1Gi\n            requests:\n              cpu: 250m\n              memory: 844Mi",
    );
    // No resources at all.
    assert_container(
        "      - name: main\n        image: a:b # tag\n        args: [x]\n      - name: other\n",
        &both(),
        "      - name: main\n        image: a:b # tag\n        resources:\n          requests:\n            cpu: 250m\n            memory: 844Mi\n          limits:\n            memory: 844Mi\n        args: [x]\n      - name: other\n",
    );
    // A list that is not indented, without an image and without a final line break.
    assert_container(
        "      - args:\n        - |\n          text\n        name: main",
        &[cpu(250)],
        "      - args:\n        - |\n          text\n        name: main\n        resources:\n          requests:\n            cpu: 250m",
    );
    // Flow style.
    assert_container(
        "      - {name: main, resources: {limits: {cpu: 1, }}}\n",
        &[memory(844)],
        "      - {name: main, resources: {limits: {cpu: 1, }, requests: {memory: 844Mi}}}\n",
    );
    assert_container(
        "      - {name: main}\n",
        &[memory(844)],
        "      - {name: main, resources: {requests: {memory: 844Mi}}}\n",
    );
}

#[test]
fn empty_mappings_are_filled() {
    for empty in ["", " {}", " { }", " null", " ~", " "] {
        assert_container(
            &format!(
                "      - name: main\n        resources:{empty} # none yet\n        image: x\n"
            ),
            &[cpu(250)],
            &format!(
                "      - name: main\n        resources:{} # none yet\n          requests:\n            cpu: 250m\n        image: x\n",
                if empty == " " { " " } else { "" }
            ),
        );
    }
    assert_container(
        "      - name: main\n        resources:\n          limits:\n          requests: {}\n",
        &both(),
        "      - name: main\n        resources:\n          limits:\n            memory: 844Mi\n          requests:\n            cpu: 250m\n            memory: 844Mi\n",
    );
    assert_container(
        "      - name: main\n        resources: {requests: {memory: }, limits: null}\n",
        &[resource(Resource::Memory, set(Some(844 * MIB), Some(844 * MIB)))],
        "      - name: main\n        resources: {requests: {memory: 844Mi }, limits: {memory: 844Mi}}\n",
    );
}

#[test]
fn limits_are_removed_with_their_lines() {
    let removed = [without_limit(Resource::Cpu)];
    assert_container(
        "      - name: main\n        resources:\n          limits:\n            # the leak\n            memory: 1Gi\n            cpu: 2 # two\n          requests:\n            cpu: 1",
        &removed,
        "      - name: main\n        resources:\n          limits:\n            # the leak\n            memory: 1Gi\n          requests:\n            cpu: 1",
    );
    // The last limit takes the key along, and a comment between stays.
    assert_container(
        "      - name: main\n        resources:\n          requests:\n            cpu: 1\n          limits:\n            # why\n            cpu: 2",
        &removed,
        "      - name: main\n        resources:\n          requests:\n            cpu: 1\n            # why",
    );
    assert_container(
        "      - name: main\n        resources:\n          limits:\n            cpu: 2\n",
        &removed,
        "      - name: main\n        resources:\n          limits: {}\n",
    );
    let all = [without_limit(Resource::Cpu), without_limit(Resource::Memory)];
    for (before, wanted, after) in [
        (
            "{limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1}}",
            &removed[..],
            "{limits: {memory: 1Gi}, requests: {cpu: 1}}",
        ),
        (
            "{limits: {memory: 1Gi, cpu: 1}, requests: {cpu: 1}}",
            &removed,
            "{limits: {memory: 1Gi}, requests: {cpu: 1}}",
        ),
        ("{limits: {memory: 1Gi, cpu: 1, x/y: 1}}", &all, "{limits: {x/y: 1}}"),
        ("{limits: {x/y: 1, memory: 1Gi, cpu: 1,}}", &all, "{limits: {x/y: 1,}}"),
        ("{limits: {memory: 1Gi, cpu: 1}}", &all, "{limits: {}}"),
        ("{requests: {cpu: 1}, limits: {memory: 1Gi, cpu: 1}}", &all, "{requests: {cpu: 1}}"),
        ("{limits: {memory: 1Gi}, requests: {cpu: 1}}", &all, "{requests: {cpu: 1}}"),
    ] {
        let container = |resources| format!("      - name: main\n        resources: {resources}\n");
        assert_container(&container(before), wanted, &container(after));
    }
    assert_container(
        "      - name: main\n        resources:\n          requests: {cpu: 1}\n          limits: {cpu: 2} # two\n",
        &removed,
        "      - name: main\n        resources:\n          requests: {cpu: 1}\n",
    );
}

#[test]
fn a_request_that_came_from_the_limit_is_kept() {
    let mut wanted = without_limit(Resource::Memory);
    wanted.request = Some(512 * MIB);
    assert_container(
        "      - name: main\n        resources:\n          limits:\n            memory: 512Mi\n",
        &[wanted],
        "      - name: main\n        resources:\n          requests:\n            memory: 512Mi\n",
    );
}

#[test]
fn a_limit_is_removed_and_another_one_added() {
    let wanted = [
        resource(
            Resource::Cpu,
            Change { request: Some(250), remove_limit: true, ..Change::default() },
        ),
        resource(Resource::Memory, set(None, Some(844 * MIB))),
    ];
    for (before, after) in [
        (
            "        resources:\n          limits:\n            cpu: 1\n",
            "        resources:\n          limits:\n            memory: 844Mi\n          requests:\n            cpu: 250m\n",
        ),
        (
            "        resources: {limits: {cpu: 1}}\n",
            "        resources: {limits: {memory: 844Mi}, requests: {cpu: 250m}}\n",
        ),
    ] {
        let name = "      - name: main\n";
        assert_container(&format!("{name}{before}"), &wanted, &format!("{name}{after}"));
    }
}

#[test]
fn all_kinds_with_pods_are_found() {
    let containers = |indent: usize| {
        let pad = " ".repeat(indent);
        format!(
            "{pad}initContainers:\n{pad}- name: main\n{pad}  resources: {{requests: {{cpu: 1}}}}\n"
        )
    };
    for (kind, name, text) in [
        ("Pod", "x", format!("kind: Pod\nmetadata: {{name: x}}\nspec:\n{}", containers(2))),
        (
            "Job",
            "x",
            format!(
                "kind: Job\nmetadata: {{name: x}}\nspec:\n  template:\n    spec:\n{}",
                containers(6)
            ),
        ),
        (
            "CronJob",
            "x",
            format!(
                "kind: CronJob\nmetadata: {{name: x, namespace: shop}}\nspec:\n  jobTemplate:\n    spec:\n      template:\n        spec:\n{}",
                containers(10)
            ),
        ),
        (
            "Deployment",
            "x",
            format!(
                "kind: List\nitems:\n- kind: Other\n  metadata: {{name: x}}\n- kind: Deployment\n  metadata: {{name: x}}\n  spec:\n    template:\n      spec:\n{}",
                containers(8)
            ),
        ),
        (
            "Rollout",
            "x",
            format!(
                "kind: Rollout\nmetadata: {{name: x}}\nspec:\n  template:\n    spec:\n{}",
                containers(6)
            ),
        ),
        (
            "Rollout",
            "x",
            format!(
                "kind: Rollout\nmetadata: {{name: x}}\nspec:\n  workloadRef: {{apiVersion: apps/v1, kind: Deployment, name: y}}\n---\nkind: Deployment\nmetadata: {{name: y}}\nspec:\n  template:\n    spec:\n{}",
                containers(6)
            ),
        ),
    ] {
        let report = report(vec![workload(
            &format!("shop/{kind}/{name}"),
            vec![container("main", vec![cpu(250)])],
        )]);
        let mut manifests = ManifestSet::new(&report);
        manifests.add("a.yaml", &text);
        let plan = manifests.plan();
        assert_eq!(plan.problems, [], "{text}");
        assert_eq!(plan.files[0].after, text.replace("cpu: 1", "cpu: 250m"), "{kind}");
    }
}

#[test]
fn what_needs_a_guess_is_refused_with_its_line() {
    type Wanted = fn() -> Vec<ResourceReport>;
    let request: Wanted = || vec![memory(844)];
    let removal: Wanted = || vec![without_limit(Resource::Memory)];
    let quoted = |text: &str| text.to_owned();
    for (lines, wanted, line, reason) in [
        (
            "resources: {requests: {memory: &m 1Gi}, limits: {memory: *m}}",
            request,
            10,
            Refusal::Anchor,
        ),
        (
            "resources: {limits: {memory: &m 1Gi}, requests: {memory: *m}}",
            request,
            10,
            Refusal::Alias,
        ),
        ("resources: {limits: &r {memory: 1Gi}, requests: *r}", request, 10, Refusal::Alias),
        (
            "resources:\n          requests: &r\n            memory: 1Gi\n          limits: *r",
            request,
            12,
            Refusal::Anchor,
        ),
        (
            "env: &e {memory: 1Gi}\n        resources:\n          requests:\n            <<: *e",
            request,
            13,
            Refusal::MergeKey,
        ),
        ("env: &e {memory: 1Gi}\n        <<: {resources: *e}", request, 11, Refusal::MergeKey),
        ("resources: {requests: {memory: !x 1Gi}}", request, 10, Refusal::Tag),
        (
            "resources:\n          requests:\n            memory: 1Gi\n            memory: 2Gi",
            request,
            13,
            Refusal::DuplicateKey(quoted("memory")),
        ),
        (
            "resources:\n          requests:\n            memory: |\n              1Gi",
            request,
            13,
            Refusal::NotScalar(quoted("1Gi")),
        ),
        (
            "resources: {requests: {memory: \"{{ .Values.memory }}\"}}",
            request,
            10,
            Refusal::Template,
        ),
        ("resources: {requests: {memory: {{ .memory }} }}", request, 10, Refusal::Template),
        ("resources: {{ .resources }}", request, 10, Refusal::Template),
        (
            "resources: {requests: {memory: '${MEMORY}'}}",
            request,
            10,
            Refusal::NotQuantity(quoted("'${MEMORY}'")),
        ),
        ("resources: [1]", request, 10, Refusal::NotMapping(quoted("[1]"))),
        (
            "resources: {requests: {memory: 1Mi}, limits: {memory: 512Mi}}",
            request,
            10,
            Refusal::RequestAboveLimit { request: quoted("844Mi"), limit: quoted("512Mi") },
        ),
        (
            "resources: {requests: {cpu: 1}, # c\n         limits: {memory: 1Gi}}",
            removal,
            10,
            Refusal::Comment,
        ),
        (
            "resources:\n          requests: {cpu: 1}\n          limits: {memory:\n             1Gi}",
            removal,
            12,
            Refusal::Layout,
        ),
        ("resources: &r {}", request, 10, Refusal::Layout),
    ] {
        let text = format!("{HEAD}      - name: main\n        {lines}\n");
        let plan = plan(&text, &wanted());
        let [problem] = &plan.problems[..] else { panic!("{plan:?} of\n{text}") };
        assert_eq!((&problem.reason, problem.line), (&reason, line), "{text}");
        assert_eq!(problem.subject.as_deref(), Some("shop/Deployment/web, container main, memory"));
        assert_eq!(plan.files, []);
    }
}

#[test]
fn an_anchor_without_an_alias_stays() {
    assert_container(
        "      - name: main\n        resources: &r {requests: {memory: &m !!str 1Gi}}\n",
        &[memory(844)],
        "      - name: main\n        resources: &r {requests: {memory: &m !!str 844Mi}}\n",
    );
}

#[test]
fn an_exact_request_is_written_if_rounding_would_exceed_the_limit() {
    assert_container(
        "      - name: main\n        resources: {requests: {memory: 1G}, limits: {memory: 999999999}}\n",
        &[resource(Resource::Memory, set(Some(999_999_000), None))],
        "      - name: main\n        resources: {requests: {memory: 999999000}, limits: {memory: 999999999}}\n",
    );
}

#[test]
fn a_new_limit_below_the_request_that_stays_is_refused() {
    let limit = |limit| [resource(Resource::Memory, set(None, Some(limit * MIB)))];
    let lines = "      - name: main\n        resources: {requests: {memory: 900Mi}, limits: {memory: 1Gi}}\n";
    let plan = plan(&format!("{HEAD}{lines}"), &limit(512));
    assert_eq!(plan.files, []);
    let reason =
        Refusal::RequestAboveLimit { request: "900Mi".to_owned(), limit: "512Mi".to_owned() };
    assert_eq!(plan.problems.iter().map(|one| &one.reason).collect::<Vec<_>>(), [&reason]);
    assert_container(lines, &limit(900), &lines.replace("1Gi", "900Mi"));
}

#[test]
fn a_comment_on_the_last_entry_stays_with_it() {
    let lines = |comment: &str, end: &str| {
        format!(
            "      - name: main\n        resources:\n          requests: {{\n            cpu: 1{comment}\n          }}{end}\n"
        )
    };
    let refused = plan(&format!("{HEAD}{}", lines(" # measured", "")), &[memory(844)]);
    assert_eq!(refused.files, []);
    assert_eq!(
        refused.problems.iter().map(|one| &one.reason).collect::<Vec<_>>(),
        [&Refusal::Comment]
    );
    let without = lines("", " # measured");
    assert_container(
        &without,
        &[memory(844)],
        &without.replace("cpu: 1", "cpu: 1,\n            memory: 844Mi"),
    );
}

#[test]
fn targets_change_with_requests_or_not_at_all() {
    let mut with_target = workload("shop/Deployment/web", vec![container("main", vec![cpu(250)])]);
    with_target.target_changes.push(target("web", Resource::Cpu, 75));
    let report = report(vec![with_target]);
    let deployment =
        format!("{HEAD}      - name: main\n        resources: {{requests: {{cpu: 1}}}}\n");
    let edited = deployment.replace("cpu: 1", "cpu: 250m");
    let v2 = "kind: HorizontalPodAutoscaler\nmetadata: {name: web, namespace: shop}\nspec:\n  metrics:\n  - type: Resource\n    resource: {name: memory, target: {averageUtilization: 50}}\n  - type: Resource\n    resource:\n      name: cpu\n      target:\n        averageUtilization: 60 # of May\n";
    let v1 = "kind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: {targetCPUUtilizationPercentage: 60}\n";
    for autoscaler in [v2, v1] {
        let mut manifests = ManifestSet::new(&report);
        manifests.add("hpa.yaml", autoscaler);
        manifests.add("web.yaml", &deployment);
        let plan = manifests.plan();
        assert_eq!(plan.problems, []);
        assert_eq!(plan.files[0].after, autoscaler.replace("60", "75"));
        assert_eq!(plan.files[1].after, edited);
        assert_eq!(plan.summary(), "2 files, 2 values.");
    }
    for (autoscaler, reasons) in [
        ("", vec![Refusal::AutoscalerMissing("web".into()), together()]),
        (&*v2.replace("name: cpu", "name: other"), vec![Refusal::MetricMissing, together()]),
        (&*v2.replace("60", "'60%'"), vec![Refusal::NotNumber("'60%'".to_owned()), together()]),
    ] {
        let mut manifests = ManifestSet::new(&report);
        manifests.add("hpa.yaml", autoscaler);
        manifests.add("web.yaml", &deployment);
        let plan = manifests.plan();
        assert_eq!(plan.files, []);
        for reason in reasons {
            assert!(
                plan.problems.iter().any(|problem| problem.reason == reason),
                "{:?}",
                plan.problems
            );
        }
    }
    // Nor is the target changed if the request is refused.
    let mut manifests = ManifestSet::new(&report);
    manifests.add("hpa.yaml", v2);
    manifests.add("web.yaml", &deployment.replace("cpu: 1", "cpu: !x 1"));
    let plan = manifests.plan();
    assert_eq!((plan.files.len(), plan.problems.len()), (0, 2), "{:?}", plan.problems);
}

fn together() -> Refusal {
    Refusal::ChangesTogether("shop/HorizontalPodAutoscaler/web, cpu".to_owned())
}
