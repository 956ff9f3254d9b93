//! `plimsoll doctor --cluster` on a real API server: each check finds what it is about, and nothing else does.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use plimsoll_core::api::{
    crds,
    role_health::{self, RoleHealth},
};
use serde_json::{Value, json};

use crate::{
    schema::{faults, schema},
    storage::checkpoint_objects::create_definitions,
    support::{
        Testbed,
        bulk_objects::{self, ApiWrite, collection},
        certificates::CertificateAuthority,
        clock::wall_now,
    },
};

const VPA: &str = "autoscaling.k8s.io/v1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// What no API server alone can provide.
const WITHOUT_METRICS: [&str; 4] = ["nodes_cgroup2", "nodes_psi", "metrics_api", "ksm_families"];

/// Runs the checks and returns the ids of those that are not ok, with the exit code.
async fn not_ok(kubeconfig: &Path, flags: &[&str]) -> (BTreeSet<String>, Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(["doctor", "--cluster", "--output=json", "--kubeconfig"]).arg(kubeconfig);
    command.args(flags).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    let run = move || command.output().expect("starts");
    let output = tokio::task::spawn_blocking(run).await.expect("no panic");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"));
    assert_eq!(faults(&schema("doctor-cluster.v1.json"), &report), Vec::<String>::new());
    let findings = report["findings"].as_array().expect("a list").iter();
    let bad = findings.filter(|finding| finding["level"] != "ok");
    let ids = bad.map(|finding| finding["id"].as_str().expect("an id").to_owned());
    (ids.collect(), output.status.code(), report)
}

fn deployment(name: &str, replicas: u32, container: &Value) -> Value {
    let mut main = json!({"name": "main", "image": "web", "resources": {
        "requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}});
    for (key, value) in container.as_object().expect("an object") {
        main[key] = value.clone();
    }
    let labels = json!({"app": name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [main]}}},
    })
}

fn target(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

fn vpa(name: &str, target_name: &str) -> Value {
    json!({
        "apiVersion": VPA, "kind": "VerticalPodAutoscaler", "metadata": {"name": name},
        "spec": {"targetRef": target(target_name)},
    })
}

fn recommendation() -> Value {
    json!({"status": {"recommendation": {"containerRecommendations": [
        {"containerName": "main", "target": {"cpu": "150m", "memory": "96Mi"}}]}}})
}

fn hpa(name: &str, target_name: &str) -> Value {
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 70}}});
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {"scaleTargetRef": target(target_name), "maxReplicas": 3, "metrics": [metric]},
    })
}

fn webhooks(name: &str, bundle: Option<&str>) -> Value {
    let mut config = json!({"url": "https://127.0.0.1:1/"});
    if let Some(bundle) = bundle {
        config["caBundle"] = json!(STANDARD.encode(bundle));
    }
    // It is never called.
    let nowhere = json!({"matchLabels": {"plimsoll-test": "nowhere"}});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{"name": "vpa.example.com", "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "failurePolicy": "Ignore", "clientConfig": config,
            "namespaceSelector": nowhere,
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"]}]}],
    })
}

fn lease(name: &str, spec: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    })
}

fn pod(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "web"}]},
    })
}

/// One thing that is wrong.
struct Fault {
    id: &'static str,
    /// The writes that make it so, one after the other.
    make: Vec<ApiWrite>,
    undo: Vec<ApiWrite>,
    flags: &'static [&'static str],
}

/// Paths of the objects of a namespace.
struct Shop(String);

impl Shop {
    fn list(&self, api_version: &str, plural: &str) -> String {
        collection(api_version, &self.0, plural)
    }

    fn created(&self, id: &'static str, objects: &[(&str, &str, Value)]) -> Fault {
        let make = objects.iter().map(|(api_version, plural, object)| {
            ApiWrite::create(self.list(api_version, plural), object)
        });
        let undo = objects.iter().map(|(api_version, plural, object)| {
            let name = object["metadata"]["name"].as_str().expect("a name");
            ApiWrite::delete(format!("{}/{name}", self.list(api_version, plural)))
        });
        Fault { id, make: make.collect(), undo: undo.collect(), flags: &[] }
    }

    fn status(&self, api_version: &str, plural: &str, name: &str, status: &Value) -> ApiWrite {
        ApiWrite::patch(format!("{}/{name}/status", self.list(api_version, plural)), status)
    }

    /// What is there all the time, and wrong in nothing.
    fn healthy(&self, bundle: &str) -> Vec<ApiWrite> {
        let range = json!({"type": "Container", "max": {"memory": "4Gi"}});
        let ranges = json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "wide"}, "spec": {"limits": [range]}});
        vec![
            ApiWrite::create(WEBHOOKS, &webhooks("vpa-webhook-config", Some(bundle))),
            ApiWrite::create(self.list("v1", "limitranges"), &ranges),
            ApiWrite::create(
                self.list("apps/v1", "deployments"),
                &deployment("web", 3, &json!({})),
            ),
            ApiWrite::create(
                self.list("apps/v1", "deployments"),
                &deployment("api", 1, &json!({})),
            ),
            ApiWrite::create(self.list(VPA, "verticalpodautoscalers"), &vpa("web", "web")),
            self.status(VPA, "verticalpodautoscalers", "web", &recommendation()),
            ApiWrite::create(
                self.list("autoscaling/v2", "horizontalpodautoscalers"),
                &hpa("api", "api"),
            ),
        ]
    }

    fn autoscaler_faults(&self) -> Vec<Fault> {
        let vpas = "verticalpodautoscalers";
        let wpa = json!({
            "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
            "metadata": {"name": "api"}, "spec": {"scaleTargetRef": target("api"), "maxReplicas": 3},
        });
        vec![
            self.created("vpa_target_missing", &[(VPA, vpas, vpa("gone", "gone"))]),
            self.created("two_vpas_one_workload", &[(VPA, vpas, vpa("web-2", "web"))]),
            self.created(
                "hpa_same_metric",
                &[("autoscaling/v2", "horizontalpodautoscalers", hpa("web", "web"))],
            ),
            self.created(
                "wpa_and_hpa",
                &[("datadoghq.com/v1alpha1", "watermarkpodautoscalers", wpa)],
            ),
            self.created(
                "single_replica_skipped",
                &[
                    ("apps/v1", "deployments", deployment("one", 1, &json!({}))),
                    (VPA, vpas, vpa("one", "one")),
                ],
            ),
        ]
    }

    fn workload_faults(&self) -> Vec<Fault> {
        let vpas = "verticalpodautoscalers";
        let budget = json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
        });
        let mut blocking =
            self.created("pdb_blocks_all", &[("policy/v1", "poddisruptionbudgets", budget)]);
        let status = json!({"status": {"observedGeneration": 1, "expectedPods": 3,
            "desiredHealthy": 3, "currentHealthy": 3, "disruptionsAllowed": 0}});
        blocking.make.push(self.status("policy/v1", "poddisruptionbudgets", "web", &status));

        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"name": "full"}, "spec": {"hard": {"requests.cpu": "1"}}});
        let mut full = self.created("quota_without_room", &[("v1", "resourcequotas", quota)]);
        let status =
            json!({"status": {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "990m"}}});
        full.make.push(self.status("v1", "resourcequotas", "full", &status));

        let range = json!({"type": "Container", "max": {"memory": "64Mi"}});
        let range = json!({"apiVersion": "v1", "kind": "LimitRange",
            "metadata": {"name": "narrow"}, "spec": {"limits": [range]}});

        let variable = json!([{"name": "GOMEMLIMIT", "value": "500MiB"}]);
        let go = deployment("go", 2, &json!({"env": variable}));
        let mut go = self.created(
            "gomemlimit_static",
            &[("apps/v1", "deployments", go), (VPA, vpas, vpa("go", "go"))],
        );
        go.make.push(self.status(VPA, vpas, "go", &recommendation()));

        let java = deployment("java", 2, &json!({"command": ["java", "-Xmx2g", "-jar", "a.jar"]}));
        vec![
            blocking,
            full,
            self.created("limitrange_fights", &[("v1", "limitranges", range)]),
            go,
            self.created("xmx_above_limit", &[("apps/v1", "deployments", java)]),
        ]
    }

    fn webhook_faults(&self, bundle: &str) -> Vec<Fault> {
        let own = format!("{WEBHOOKS}/vpa-webhook-config");
        let healthy = webhooks("vpa-webhook-config", Some(bundle));
        let injector = webhooks("z-sidecar-injector", Some(bundle));
        let without = webhooks("vpa-webhook-config", None);
        let owner = |api_version: &str, kind: &str, name: &str| {
            json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "1",
                "controller": true}])
        };
        let labels = json!({"app": "web"});
        let replica_set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": "web-1", "ownerReferences": owner("apps/v1", "Deployment", "web")},
            "spec": {"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "web"}]}}},
        });
        let mut running = pod("web-1-a", &labels);
        running["metadata"]["ownerReferences"] = owner("apps/v1", "ReplicaSet", "web-1");
        let live = self.created(
            "webhook_answers",
            &[("apps/v1", "replicasets", replica_set), ("v1", "pods", running)],
        );
        let fault = |id, make, undo| Fault { id, make: vec![make], undo: vec![undo], flags: &[] };
        vec![
            fault(
                "webhook_registered",
                ApiWrite::delete(own.clone()),
                ApiWrite::create(WEBHOOKS, &healthy),
            ),
            fault(
                "webhook_order",
                ApiWrite::create(WEBHOOKS, &injector),
                ApiWrite::delete(format!("{WEBHOOKS}/z-sidecar-injector")),
            ),
            fault(
                "ca_expiring",
                ApiWrite::patch(own.clone(), &json!({"webhooks": without["webhooks"]})),
                ApiWrite::patch(own, &json!({"webhooks": healthy["webhooks"]})),
            ),
            // The webhook is not called for this namespace.
            Fault { flags: &["--live"], ..live },
        ]
    }

    fn role_faults(&self) -> Vec<Fault> {
        let leases = collection("coordination.k8s.io/v1", "kube-system", "leases");
        let lease_fault = |id, name: &str, spec: &Value, annotations: &Value| Fault {
            id,
            make: vec![ApiWrite::create(leases.clone(), &lease(name, spec, annotations))],
            undo: vec![ApiWrite::delete(format!("{leases}/{name}"))],
            flags: &[],
        };
        let held = |renewed: jiff::Timestamp| {
            json!({"holderIdentity": "plimsoll-updater-0", "leaseDurationSeconds": 3600,
                "renewTime": format!("{renewed:.6}")})
        };
        let now = wall_now();
        let old = RoleHealth { version: "0.0.1".to_owned(), ..RoleHealth::new("updater", 60.0) };
        let old = serde_json::to_string(&old).expect("JSON");
        let ours = |component: &str| json!({"app.kubernetes.io/name": "plimsoll", "app.kubernetes.io/component": component});
        vec![
            lease_fault("leases", "vpa-recommender-lease", &json!({}), &json!({})),
            lease_fault(
                "clock_skew",
                "vpa-updater",
                &held(now + jiff::SignedDuration::from_hours(1)),
                &json!({}),
            ),
            lease_fault(
                "version_skew",
                "vpa-updater",
                &held(now),
                &json!({role_health::ANNOTATION: old}),
            ),
            self.created(
                "two_updaters",
                &[
                    ("v1", "pods", pod("ours", &ours("all-in-one"))),
                    ("v1", "pods", pod("theirs", &json!({"app": "vpa-updater"}))),
                ],
            ),
            self.created("rights", &[("v1", "pods", pod("recommender", &ours("recommender")))]),
        ]
    }
}

/// The definition of VPAs without a field.
fn definition_fault() -> Fault {
    let wanted = crds().expect("definitions").remove(1);
    let wanted = serde_json::to_value(wanted).expect("JSON");
    let mut lacking = wanted.clone();
    let schema = &mut lacking["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["spec"]["properties"].as_object_mut().expect("fields");
    fields.remove("startupBoost").expect("it has the field");
    let path = format!("{DEFINITIONS}/verticalpodautoscalers.autoscaling.k8s.io");
    let versions = |of: &Value| json!({"spec": {"versions": of["spec"]["versions"]}});
    Fault {
        id: "crds_served",
        make: vec![ApiWrite::patch(path.clone(), &versions(&lacking))],
        undo: vec![ApiWrite::patch(path, &versions(&wanted))],
        flags: &[],
    }
}

#[tokio::test]
async fn each_fault_of_a_cluster_is_found_by_the_check_that_is_about_it() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    create_definitions(&bed).await;
    let shop = Shop(bed.namespace("shop").await);
    let (client, kubeconfig) = (bed.client(), bed.kubeconfig_path());
    let bundle = CertificateAuthority::new("doctor").certificate();
    // In this order: a status needs its object.
    for write in shop.healthy(&bundle) {
        bulk_objects::send(&client, [write]).await;
    }
    let always: BTreeSet<String> = WITHOUT_METRICS.map(ToOwned::to_owned).into();
    let (ids, exit, report) = not_ok(&kubeconfig, &["--fail-on=problem"]).await;
    assert_eq!(ids, always, "{report:#}");
    // There is no metrics API.
    assert_eq!(exit, Some(1), "{report:#}");

    let mut faults = vec![definition_fault()];
    faults.extend(shop.autoscaler_faults());
    faults.extend(shop.workload_faults());
    faults.extend(shop.webhook_faults(&bundle));
    faults.extend(shop.role_faults());
    for Fault { id, make, undo, flags } in faults {
        for write in make {
            bulk_objects::send(&client, [write]).await;
        }
        let (mut ids, _, report) = not_ok(&kubeconfig, flags).await;
        ids.retain(|id| !always.contains(id));
        assert_eq!(ids, BTreeSet::from([id.to_owned()]), "{report:#}");
        for write in undo {
            bulk_objects::send(&client, [write]).await;
        }
    }
    let (ids, ..) = not_ok(&kubeconfig, &[]).await;
    assert_eq!(ids, always, "everything is as before");

    // An account without permissions learns what it lacks, and nothing is taken for fine.
    let account = bed.service_account(&shop.0, "nobody").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, &account.kubeconfig).expect("writes");
    let (_, exit, report) = not_ok(&file, &[]).await;
    let findings = report["findings"].as_array().expect("a list");
    let ok = findings.iter().filter(|finding| finding["level"] == "ok");
    let ok: Vec<_> = ok.map(|finding| finding["id"].as_str().expect("an id")).collect();
    assert_eq!((ok, exit), (vec!["api_version"], Some(4)), "{report:#}");
}
