//! kustomize builds the component of `recommend -o kustomize=DIR` on top of a base.

use std::{fs, path::Path};

use plimsoll::report::recommend::manifest_files::write_component;
use plimsoll_core::{manifests::kustomize::component, rightsizing::report::Report};
use serde_json::{Value, json};

use super::rendered_manifests::{kustomize_path, of_kind};

/// A base without namespaces, as overlays expect them.
const BASE: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      initContainers:
      - {name: before, image: i}
      - {name: init, image: i}
      - {name: after, image: i}
      containers:
      - name: sidecar
        image: s
      - name: main
        image: m
        resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 1Gi, cpu: 2}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: other}
spec: {template: {spec: {containers: [{name: main, image: m}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-2}
spec: {template: {spec: {containers: [{name: main, image: m}]}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  metrics:
  - {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 60}}}
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
";

fn report() -> Report {
    let resource = |resource: &str, change: Value| json!({"resource": resource, "change": change, "risk": "ok", "waste": "ok"});
    let container = |name: &str, role: &str, resources: Value| json!({"name": name, "role": role, "resources": resources, "oomKills": 0});
    let workload = |name: &str, targets: Value, containers: Value| json!({"namespace": "shop", "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "targetChanges": targets, "containers": containers});
    let main = container(
        "main",
        "main",
        json!([
            resource("cpu", json!({"request": 250, "removeLimit": true})),
            resource("memory", json!({"request": 884_998_144, "limit": 884_998_144})),
        ]),
    );
    let init = json!([resource("memory", json!({"request": 67_108_864}))]);
    let before = container("before", "init", json!([]));
    let init = container("init", "init", init);
    let sidecar = container("sidecar", "main", json!([]));
    let target = json!({
        "kind": "HorizontalPodAutoscaler", "name": "web", "metric": 1, "resource": "cpu", "percent": 60, "newPercent": 240
    });
    let totals = json!({
        "workloads": 2, "containers": 3, "cpu": {"requested": 0, "needed": 0},
        "memory": {"requested": 0, "needed": 0}, "risk": {}, "waste": {}, "unsaid": {}
    });
    serde_json::from_value(json!({
        "schemaVersion": 1, "kind": "recommend", "version": "0", "at": "2026-11-26T00:00:00Z", "sources": [],
        "settings": [], "totals": totals, "namespaces": {}, "unread": [], "remarks": [],
        "workloads": [
            workload("web", json!([target]), json!([sidecar, main.clone(), before, init])),
            // Not in the base: the component is for the whole cluster.
            workload("gone", json!([]), json!([main])),
        ],
    }))
    .expect("a report")
}

fn write(folder: &Path, name: &str, text: &str) {
    fs::create_dir_all(folder).expect("created");
    fs::write(folder.join(name), text).expect("written");
}

#[test]
fn a_recommended_component_patches_a_base() {
    let folder = tempfile::tempdir().expect("a folder");
    let (base, overlay) = (folder.path().join("base"), folder.path().join("overlay"));
    write(&base, "kustomization.yaml", "resources: [base.yaml]\n");
    write(&base, "base.yaml", BASE);
    write(&overlay, "kustomization.yaml", "resources: [../base]\ncomponents: [../component]\n");
    write_component(&folder.path().join("component"), &component(&report())).expect("written");
    let Some(objects) = kustomize_path(&overlay) else { return };

    let named = |name: &str, namespace: Option<&str>| {
        let deployments = of_kind(&objects, "Deployment");
        let found = deployments.into_iter().find(|one| {
            one["metadata"]["name"] == name && one["metadata"]["namespace"].as_str() == namespace
        });
        found.unwrap_or_else(|| panic!("no {name} in {objects:?}"))
    };
    let (web, other) = (named("web", None), named("web", Some("other")));
    let second = named("web-2", None);
    let pods = &web["spec"]["template"]["spec"];
    assert_eq!(
        pods["containers"],
        json!([
            {"name": "sidecar", "image": "s"},
            {"name": "main", "image": "m", "resources": {
                "requests": {"cpu": "250m", "memory": "844Mi"}, "limits": {"memory": "844Mi"}
            }},
        ])
    );
    assert_eq!(
        pods["initContainers"],
        json!([
            {"name": "before", "image": "i"},
            {"name": "init", "image": "i", "resources": {"requests": {"memory": "64Mi"}}},
            {"name": "after", "image": "i"},
        ])
    );
    for unchanged in [other, second] {
        let container = &unchanged["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container, &json!({"name": "main", "image": "m"}));
    }
    let metrics = &of_kind(&objects, "HorizontalPodAutoscaler")[0]["spec"]["metrics"];
    assert_eq!(metrics[0]["resource"]["target"]["averageUtilization"], 60);
    assert_eq!(metrics[1]["resource"]["target"]["averageUtilization"], 240);
}
