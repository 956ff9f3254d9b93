//! A watermark controller whose metric asks for far more replicas than there are, and one step doubles them: a scale update
//! made twice results in eight replicas, a lost one in two. After a scale update the cooldown is one hour.

use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{FaultSubject, testbed_and_namespace};
use crate::{
    support::{
        Testbed,
        holding_proxy::{
            HeldMoment, HoldPoint,
            RoleWrite::{self, Scale, WpaStatus},
        },
        manifests,
        metrics_server::MetricsServer,
        role_process::RoleProcess,
        wait,
    },
    updater::fixture::deployment,
    watermark_controller::fixture::{METRIC, object, wait_for_deployment},
};

/// The values of a workload's `spec.replicas`, in order.
pub(super) struct ReplicasLog {
    values: Arc<Mutex<Vec<i32>>>,
    task: JoinHandle<()>,
}

impl ReplicasLog {
    pub(super) fn start(bed: &Testbed, namespace: &str) -> Self {
        let api = Api::<Deployment>::namespaced(bed.client(), namespace);
        let values: Arc<Mutex<Vec<i32>>> = Arc::default();
        let recorded = Arc::clone(&values);
        let task = tokio::spawn(async move {
            let watch =
                watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            // The watch returns errors while the server is away.
            let each = watch.for_each(|deployment| {
                if let Ok(deployment) = deployment {
                    let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(0);
                    let mut recorded = recorded.lock().expect("no panic");
                    if recorded.last() != Some(&replicas) {
                        recorded.push(replicas);
                    }
                }
                std::future::ready(())
            });
            each.await;
        });
        Self { values, task }
    }

    pub(super) fn values(&self) -> MutexGuard<'_, Vec<i32>> {
        self.values.lock().expect("no panic")
    }

    /// Waits until `spec.replicas` has this value.
    pub(super) async fn wait_for_replicas(&self, replicas: i32) {
        let description = format!("spec.replicas is {replicas}");
        wait::until(&description, || async {
            (self.values().last() == Some(&replicas)).then_some(())
        })
        .await;
    }
}

impl Drop for ReplicasLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A watermark controller with a workload of two replicas.
pub struct WatermarkController {
    bed: Testbed,
    namespace: String,
    _usage: MetricsServer,
    replicas: ReplicasLog,
}

impl FaultSubject for WatermarkController {
    const ROLE: &str = "watermark";
    const LEASE: Option<&str> = Some("watermarkpodautoscaler-lock");
    const WITHOUT_LEASE: &[&str] = &["--enable-leader-election=false"];
    const ACTION: RoleWrite = Scale;
    const ACTIONS: Option<usize> = Some(1);
    const CRASHES: &[HeldMoment] = &[
        (WpaStatus, HoldPoint::Request),
        // From here on it is persisted, and not made.
        (WpaStatus, HoldPoint::Answer),
        (Scale, HoldPoint::Request),
        // From here on it is made, and not reported.
        (Scale, HoldPoint::Answer),
    ];
    const LEADER_METRICS: &[&str] = &["plimsoll_max_replicas", "wpa_controller_max_replicas"];

    async fn new(name: &str, private: bool) -> Option<Self> {
        let (bed, namespace) = testbed_and_namespace(name, private).await?;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        usage.set_external(&namespace, METRIC, &[("app", "web")], 10_000.0);
        deployment(&bed, &namespace, "web", 2).await;
        // A concurrent status write would cause a conflict and a retry of the scale update.
        wait_for_deployment(&bed, &namespace, "web", 2).await;
        let wanted = object(
            "web",
            json!({"upscaleForbiddenWindowSeconds": 3600, "downscaleForbiddenWindowSeconds": 3600}),
        );
        let yaml = serde_json::to_string(&wanted).expect("JSON is YAML");
        manifests::create::<WatermarkPodAutoscaler>(bed.client(), &namespace, &yaml).await;
        let replicas = ReplicasLog::start(&bed, &namespace);
        replicas.wait_for_replicas(2).await;
        Some(Self { bed, namespace, _usage: usage, replicas })
    }

    fn bed(&self) -> &Testbed {
        &self.bed
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        vec![
            "--period=500ms".to_owned(),
            "--health-port=0".to_owned(),
            "--client-qps=0".to_owned(),
            format!("--leader-elect-resource-namespace={}", self.namespace),
            format!("--metrics-addr=127.0.0.1:{port}"),
        ]
    }

    async fn assert_done_once(&self, process: &RoleProcess, _unmade: usize) {
        self.replicas.wait_for_replicas(4).await;
        process.wait_for_increase("plimsoll_watermark_reconciles_total", &[], 4).await;
        assert_eq!(*self.replicas.values(), [2, 4]);
        let api = Api::<WatermarkPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        let status = api.get("web").await.expect("exists").status.expect("valid status");
        assert_eq!((status.desired_replicas, status.scaling_events_count), (4, 1), "{status:#?}");
        assert!(status.last_scale_time.is_some(), "{status:#?}");
    }
}
