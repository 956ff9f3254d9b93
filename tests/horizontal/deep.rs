//! A scripted hour of many HorizontalPodAutoscalers with every source, beside kube-controller-manager. The hour is
//! compressed: a pass a second stands for one in fifteen, and windows and policy periods are shorter in proportion.

mod board;
mod scripted_load;
mod stepped_week;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, rbac::v1::ClusterRoleBinding,
};
use kube::api::{Api, PostParams};
use plimsoll::{
    cli::horizontal_config,
    cluster::clock::Clock,
    controllers::{self, horizontal::HorizontalHandle},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::scripted_load::{PHASE, Source, Workload, serve};
use super::{comparisons, exported_series};
use crate::{
    deploy::audit_log::AuditLog,
    support::{MetricsServer, Testbed, hollow_nodes::is_ready, manifests, wait},
};

const NAMESPACES: usize = 10;
const IN_A_NAMESPACE: usize = 20;
/// How often the load of each workload changes.
const PHASES: u64 = 4;
/// Passes after the last change of load. A decision has two periods and a minute to be made by the other controller.
const LAST_PASSES: u64 = 65;
/// The interval between two steps of the script.
const STEP: Duration = Duration::from_secs(1);
/// The timeout of the script, for a slow machine.
const PATIENCE: Duration = Duration::from_mins(40);
/// The namespace of the role and its Lease.
const OWN: &str = "kube-system";
/// The account of the role. It may do everything, so that nothing but the role itself prevents a write.
const ACCOUNT: &str = "horizontal";

/// The behaviors, of which each object has one.
fn behavior(index: usize) -> Value {
    let policies = |kind: &str, value: i32, period: i32| json!([{"type": kind, "value": value, "periodSeconds": period}]);
    match index % 5 {
        // The defaults: a window of five minutes, which is longer than a phase.
        0 => Value::Null,
        1 => json!({"scaleDown": {"stabilizationWindowSeconds": 20}}),
        2 => json!({
            "scaleUp": {"stabilizationWindowSeconds": 10, "policies": policies("Pods", 1, 10)},
            "scaleDown": {"stabilizationWindowSeconds": 0, "policies": policies("Percent", 50, 20)},
        }),
        3 => json!({"scaleDown": {"selectPolicy": "Disabled"}}),
        _ => json!({"scaleUp": {"tolerance": "0.05"},
            "scaleDown": {"stabilizationWindowSeconds": 20, "tolerance": "0.2"}}),
    }
}

/// The cluster, with an object for each workload.
struct ScriptedHour {
    bed: Testbed,
    audit: AuditLog,
    workloads: Vec<Workload>,
    /// The pass of the script.
    pass: Arc<AtomicU64>,
    _metrics: MetricsServer,
}

impl ScriptedHour {
    /// Creates everything. Returns `None` after reporting what is missing.
    async fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let flags = AuditLog::flags(folder.path());
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let bed = Testbed::private_with(&flags, crate::support::Clock::wall()).await;
        let bed = bed.filter(Testbed::has_controllers)?;
        bed.nodes().add("one", "256", "1024Gi").await;
        let mut workloads = Vec::new();
        for _ in 0..NAMESPACES {
            let namespace = bed.namespace("hour").await;
            for _ in 0..IN_A_NAMESPACE {
                workloads.push(Workload::new(&namespace, workloads.len()));
            }
        }
        let metrics = MetricsServer::serve(&bed).await;
        let pass = Arc::new(AtomicU64::new(0));
        serve(&metrics, bed.nodes().view(), &workloads, Arc::clone(&pass));
        let audit = AuditLog::of(bed.process_guard().folder());
        let hour = Self { bed, audit, workloads, pass, _metrics: metrics };
        for workload in &hour.workloads {
            let deployment = manifests::deployment(&workload.name, 2, "100m", "128Mi");
            let client = hour.bed.client();
            manifests::create::<Deployment>(client, &workload.namespace, &deployment).await;
        }
        for workload in &hour.workloads {
            let (namespace, prefix) = (&workload.namespace, format!("{}-", workload.name));
            hour.bed.nodes().pods(namespace, &prefix, 2, "are ready", is_ready).await;
        }
        for (index, workload) in hour.workloads.iter().enumerate() {
            let (name, source) = (&workload.name, workload.source);
            let mut object = json!({"metadata": {"name": name}, "spec": {
                "minReplicas": 2, "maxReplicas": 8, "metrics": [source.spec(name)],
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            }});
            object["spec"]["behavior"] = behavior(index / Source::ALL.len());
            let object = object.to_string();
            let client = hour.bed.client();
            manifests::create::<HorizontalPodAutoscaler>(client, &workload.namespace, &object)
                .await;
        }
        Some(hour)
    }

    /// Starts the role with the credentials of its account.
    async fn start(&self) -> HorizontalHandle {
        let account = self.bed.service_account(OWN, ACCOUNT).await;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": OWN}],
        }))
        .expect("a binding");
        let bindings = Api::<ClusterRoleBinding>::all(self.bed.client());
        bindings.create(&PostParams::default(), &binding).await.expect("a new binding");
        let flags = [
            "--address=127.0.0.1:0",
            "--horizontal-pod-autoscaler-sync-period=1s",
            &format!("--leader-elect-resource-namespace={OWN}"),
        ];
        let config = horizontal_config(&flags).expect("valid flags");
        controllers::start(config, account.client, Clock::wall()).await.expect("it starts")
    }

    /// The writes of the role by the audit log, except questions about its own rights.
    fn writes(&self) -> Vec<String> {
        let account = format!("{OWN}/{ACCOUNT}");
        let requests = self.audit.requests().into_iter();
        let writes = requests.filter(|request| {
            request.account == account
                && !matches!(&*request.verb, "get" | "list" | "watch")
                && request.group != "authorization.k8s.io"
        });
        let text = |request: crate::deploy::audit_log::AuditedRequest| {
            format!("{} {}/{}", request.verb, request.resource, request.name)
        };
        writes.map(text).collect()
    }

    /// The replicas of all Deployments by name.
    async fn replicas(&self) -> BTreeMap<String, i32> {
        let deployments = Api::<Deployment>::all(self.bed.client());
        let list = deployments.list(&kube::api::ListParams::default()).await.expect("a list");
        let replicas = list.into_iter().filter_map(|deployment| {
            Some((deployment.metadata.name?, deployment.spec?.replicas.unwrap_or_default()))
        });
        replicas.collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_about_200_objects_agree_through_a_scripted_hour_and_only_the_lease_is_written() {
    let Some(hour) = ScriptedHour::new().await else { return };
    let count = hour.workloads.len();
    let role = hour.start().await;
    wait::until("the role has decided about every object", || async {
        let decided = exported_series(&role, "plimsoll_effective", "name").await;
        (decided.len() == count).then_some(())
    })
    .await;
    let (first, most) = (role.reconciles(), Mutex::new(BTreeMap::new()));
    wait::often(STEP, PATIENCE, "the hour is over", || async {
        let pass = (role.reconciles() - first) / count as u64;
        hour.pass.store(pass.min(PHASES * PHASE), Ordering::Relaxed);
        for (name, replicas) in hour.replicas().await {
            let mut most = most.lock().await;
            let most = most.entry(name).or_insert(replicas);
            *most = replicas.max(*most);
        }
        let is_over = pass >= PHASES * PHASE + LAST_PASSES;
        if is_over { Ok(()) } else { Err(format!("pass {pass}")) }
    })
    .await;

    let (results, most) = (comparisons(&role).await, most.into_inner());
    let all: f64 = results.values().sum();
    let passes = (PHASES * PHASE) as f64 * count as f64;
    assert!(all >= passes, "{all} of {passes} decisions were compared: {results:?}");
    assert_eq!(results["unexplained"], 0.0, "{results:?}");
    // How many decisions upstream makes later than ours depends on how busy the machine is.
    let on_time = all - results.get("later").copied().unwrap_or_default();
    assert!(results["same"] >= 0.99 * on_time && on_time >= 0.9 * all, "{results:?}");
    let scaled = most.values().filter(|most| **most > 2).count();
    assert!(scaled >= count * 9 / 10, "only {scaled} of {count} were ever scaled up: {most:?}");
    let writes = hour.writes();
    let lease = "leases/plimsoll-horizontal";
    assert!(writes.iter().any(|write| write.ends_with(lease)), "the log is complete: {writes:?}");
    let others: Vec<_> = writes.iter().filter(|write| !write.ends_with(lease)).collect();
    assert!(others.is_empty(), "{others:?}");
    tokio::time::timeout(Duration::from_mins(1), role.stop()).await.expect("it stops");
}
