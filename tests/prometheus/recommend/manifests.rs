//! `--write` changes in the cluster exactly what the report says, also by the judgement of the API server, and the report
//! is the same without the API server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use plimsoll_core::types::quantity::Quantity;
use serde_json::{Value, json};

use super::{
    process::{Finished, recommend},
    states::{HASH, WorkloadStates},
};
use crate::{
    prometheus::recommender::fixture::{CORES, Fixture, with_usage},
    support::prometheus_server::History,
};

/// The manifests as a team keeps them.
const MANIFESTS: &str = "\
# The shop. Numbers were measured in May.
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {memory: 512Mi}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: search
  labels: {app.kubernetes.io/part-of: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: search}}
  template:
    metadata: {labels: {app: search}}
    spec:
      containers:
        - name: proxy   # has no history
          image: example/proxy
          resources: {requests: {cpu: 10m, memory: 16Mi}}
        - name: main
          image: example/search
          env: [{name: CACHE, value: 512Mi}]
          resources:
            requests:
              cpu: \"4\"        # for the sale
              memory: 2Gi
            limits:
              memory: 4Gi
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: later}
spec:
  replicas: 1
  selector: {matchLabels: {app: later}}
  template:
    metadata: {labels: {app: later}}
    spec:
      containers:
        - name: main
          image: example/later
          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 64Mi}}
";

const MEBIBYTE: i64 = 1 << 20;

const NAMES: [&str; 2] = ["search", "later"];

/// The history of a Prometheus with kube-state-metrics.
fn states(mut history: History, namespace: &str, end: jiff::Timestamp) -> History {
    let mebibytes = |count: i64| (count * MEBIBYTE) as f64;
    for (name, cores, bytes, limit) in [
        ("search", 4.0, mebibytes(2048), Some(mebibytes(4096))),
        ("later", 0.05, mebibytes(64), Some(mebibytes(64))),
        ("web", 0.1, mebibytes(64), None),
    ] {
        let pods = [format!("{name}-{HASH}-x2x4z")];
        if name == "search" {
            history = with_usage(history, namespace, &pods[0], CORES, end);
        }
        let requests = [cores, bytes];
        let states = WorkloadStates {
            namespace,
            kind: "Deployment",
            name,
            pods: &pods,
            requests,
            memory_limit: limit,
        };
        history = states.add_to(history);
    }
    history
}

#[tokio::test]
async fn written_manifests_change_nothing_else_in_the_cluster() {
    let Some(fixture) = Fixture::with_past(8 * 24 + 1, states).await else { return };
    let client = fixture.bed.client();
    let deployments = Api::<Deployment>::namespaced(client.clone(), &fixture.namespace);
    for manifest in documents(MANIFESTS) {
        if manifest["kind"] == "Deployment" {
            apply(&deployments, &manifest, false).await;
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let deploy = folder.path().join("deploy");
    fs::create_dir(&deploy).expect("a folder");
    let file = deploy.join("shop.yaml");
    fs::write(&file, MANIFESTS).expect("a file");
    let kubeconfig = fixture.bed.kubeconfig_path();
    let report = folder.path().join("report.json");
    let (write, json) =
        (format!("--write={}", deploy.display()), format!("-ojson={}", report.display()));
    let written =
        run(&fixture, &kubeconfig, &["--source=cluster", &write, &json, "--fail-on=change"]).await;
    assert_eq!(written.code, Some(1), "{written:?}");
    assert_eq!(written.stdout, "", "{written:?}");

    let edited = fs::read_to_string(&file).expect("a file");
    assert_ne!(edited, MANIFESTS);
    for comment in ["# The shop.", "# has no history", "# for the sale"] {
        assert!(edited.contains(comment), "{edited}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&report).expect("a file")).expect("JSON");
    let mut changed_amounts = 0;
    for manifest in documents(&edited) {
        let name = manifest["metadata"]["name"].as_str().expect("a name");
        if !NAMES.contains(&name) {
            continue;
        }
        let live = deployments.get(name).await.expect("exists");
        let before = serde_json::to_value(live).expect("JSON");
        let after = apply(&deployments, &manifest, true).await;
        let expected = expected_changes(&report, name, &before);
        let changes = changes(&before, &after);
        assert_eq!(changes, expected, "{name}: {edited}");
        changed_amounts += changes.len();
    }
    // All requests, and both limits in proportion.
    assert_eq!(changed_amounts, 6, "{edited}");

    // Applied twice, there is nothing left to do.
    let again = ["--source=cluster", &*write, "--fail-on=change"];
    let again = run(&fixture, &kubeconfig, &again).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(fs::read_to_string(&file).expect("a file"), edited);

    the_rows_are_the_same_without_the_api_server(&fixture, folder.path()).await;
    what_is_forbidden_is_named(&fixture, folder.path()).await;
}

async fn the_rows_are_the_same_without_the_api_server(fixture: &Fixture, folder: &Path) {
    let kubeconfig = fixture.bed.kubeconfig_path();
    let text = fs::read_to_string(&kubeconfig).expect("a kubeconfig");
    let closed = folder.join("closed");
    fs::write(&closed, text.replace(&fixture.bed.address(), "https://127.0.0.1:1"))
        .expect("a file");
    let columns = "--columns=namespace,kind,name,replicas,container,resource,request,limit,target,lower,upper,\
                   new_request,new_limit,risk,risk_reasons,waste,samples,oom_kills,throttled_share,memory_peak";
    let rows = async |kubeconfig: &Path, source: &str| {
        let run = run(fixture, kubeconfig, &[source, "-ocsv", columns]).await;
        assert_eq!(run.code, Some(0), "{run:?}");
        let mut lines: Vec<String> = run.stdout.lines().map(ToOwned::to_owned).collect();
        // kube-state-metrics knows nothing of the container that never ran.
        lines.retain(|line| !line.contains(",proxy,"));
        lines.sort();
        lines
    };
    let with = rows(&kubeconfig, "--source=prometheus").await;
    assert_eq!(with.len(), 1 + 2 * 3, "{with:#?}");
    assert_eq!(rows(&closed, "--source=prometheus").await, with);
    assert_eq!(rows(&kubeconfig, "--source=cluster").await, with);
}

/// A user with the rights on one of two namespaces, and without those on VPAs and nodes.
async fn what_is_forbidden_is_named(fixture: &Fixture, folder: &Path) {
    let (bed, namespace) = (&fixture.bed, &fixture.namespace);
    let other = bed.namespace("hidden").await;
    let account = bed.service_account(namespace, "amy").await;
    let rules = json!([{
        "apiGroups": ["", "apps", "batch", "autoscaling"],
        "resources": ["pods", "replicationcontrollers", "limitranges", "deployments", "replicasets",
            "statefulsets", "daemonsets", "jobs", "cronjobs", "horizontalpodautoscalers"],
        "verbs": ["list"],
    }]);
    let role = json!({"metadata": {"name": "amy"}, "rules": rules});
    let binding = json!({
        "metadata": {"name": "amy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "amy"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "amy"}],
    });
    create::<Role>(bed.client(), namespace, role).await;
    create::<RoleBinding>(bed.client(), namespace, binding).await;
    let kubeconfig = folder.join("amy");
    fs::write(&kubeconfig, &account.kubeconfig).expect("a file");
    let own = run(fixture, &kubeconfig, &["--source=cluster"]).await;
    assert_eq!(own.code, Some(0), "VPAs are not needed: {own:?}");
    let words: Vec<_> = own.stdout.split_whitespace().collect();
    let remark = "could not read verticalpodautoscalers.autoscaling.k8s.io";
    assert!(words.join(" ").contains(remark), "{own:?}");
    let more = format!("-n{other}");
    let both = run(fixture, &kubeconfig, &["--source=cluster", &more, "-ocsv"]).await;
    assert_eq!(both.code, Some(4), "{both:?}");
    assert!(
        both.stderr.contains(&format!("deployments.apps in namespace {other}: forbidden")),
        "{both:?}"
    );
    assert!(both.stdout.contains(",search,"), "{both:?}");
    // An administrator may act as the user, who may not act as an administrator.
    let name = format!("--as=system:serviceaccount:{namespace}:amy");
    let as_amy = run(fixture, &bed.kubeconfig_path(), &["--source=cluster", &more, &name]).await;
    assert_eq!(as_amy.code, Some(4), "{as_amy:?}");
    let refused = run(fixture, &kubeconfig, &["--source=cluster", "--as=admin"]).await;
    assert_eq!((refused.code, &*refused.stdout), (Some(1), ""), "{refused:?}");
    assert!(refused.stderr.contains("HTTP 403"), "{refused:?}");
}

async fn create<K>(client: Client, namespace: &str, object: Value)
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object");
    let api = Api::<K>::namespaced(client, namespace);
    api.create(&PostParams::default(), &object).await.expect("created");
}

/// Runs the command at the end of the history.
async fn run(fixture: &Fixture, kubeconfig: &Path, more: &[&str]) -> Finished {
    let address = format!("--prometheus-address={}", fixture.proxy.url());
    let until = format!("--until={}", fixture.clock.now());
    let namespace = format!("--namespace={}", fixture.namespace);
    recommend(kubeconfig, &[&[&*address, &*until, &*namespace], more].concat()).await
}

fn documents(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("\n---\n");
    documents.map(|document| serde_saphyr::from_str(document).expect("YAML")).collect()
}

/// Applies a manifest as `kubectl apply --server-side`, or only asks what would change, as `kubectl diff --server-side`.
async fn apply(deployments: &Api<Deployment>, manifest: &Value, is_dry_run: bool) -> Value {
    let name = manifest["metadata"]["name"].as_str().expect("a name");
    let parameters = PatchParams { dry_run: is_dry_run, ..PatchParams::apply("kubectl") };
    let applied = deployments.patch(name, &parameters, &Patch::Apply(manifest)).await;
    serde_json::to_value(applied.expect("is applied")).expect("JSON")
}

/// The amounts before and after, by their place. Anything else that changes is text.
type Changes = BTreeMap<String, [String; 2]>;

fn changes(before: &Value, after: &Value) -> Changes {
    let (before, after) = (leaves(before), leaves(after));
    let places: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |of: &BTreeMap<String, Value>, place| of.get(place).map_or(String::new(), text);
    let pairs = places
        .into_iter()
        .map(|place| (place.clone(), [value(&before, place), value(&after, place)]));
    pairs.filter(|(_, [before, after])| before != after).collect()
}

fn text(value: &Value) -> String {
    let quantity = value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    quantity.map_or_else(|| value.to_string(), |amount| amount.as_f64().to_string())
}

/// All values of an object that a user sets, by their pointers.
fn leaves(object: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut rest = vec![(String::new(), object)];
    while let Some((place, value)) = rest.pop() {
        let is_bookkeeping = matches!(
            &*place,
            "/status"
                | "/metadata/managedFields"
                | "/metadata/generation"
                | "/metadata/resourceVersion"
        );
        if is_bookkeeping {
            continue;
        }
        match value {
            Value::Object(fields) => {
                rest.extend(fields.iter().map(|(name, value)| (format!("{place}/{name}"), value)));
            }
            Value::Array(items) => {
                let items = items.iter().enumerate();
                rest.extend(items.map(|(index, value)| (format!("{place}/{index}"), value)));
            }
            value => {
                found.insert(place, value.clone());
            }
        }
    }
    found
}

/// What the report recommends for a Deployment, as changes of the live object.
fn expected_changes(report: &Value, name: &str, live: &Value) -> Changes {
    let find = |list: &Value, name: &str| {
        let items = list.as_array().expect("a list").iter().enumerate();
        items
            .clone()
            .find(|(_, item)| item["name"] == name)
            .map(|(index, item)| (index, item.clone()))
    };
    let (_, workload) = find(&report["workloads"], name).expect("the workload");
    let template = "/spec/template/spec/containers";
    let mut changes = Changes::new();
    for container in workload["containers"].as_array().expect("containers") {
        let own = container["name"].as_str().expect("a name");
        let (index, _) = find(live.pointer(template).expect("containers"), own).expect("it exists");
        for row in container["resources"].as_array().expect("rows") {
            let resource = row["resource"].as_str().expect("a name");
            // Manifests have whole mebibytes, rounded up.
            let written = |amount: i64| match resource {
                "cpu" => format!("{amount}m"),
                _ => format!("{}Mi", (amount + MEBIBYTE - 1) / MEBIBYTE),
            };
            for (field, part) in [("request", "requests"), ("limit", "limits")] {
                let Some(amount) = row["change"][field].as_i64() else { continue };
                let place = format!("{template}/{index}/resources/{part}/{resource}");
                let before = live.pointer(&place).map_or(String::new(), text);
                let after = text(&json!(written(amount)));
                changes.insert(place, [before, after]);
            }
        }
    }
    changes
}
