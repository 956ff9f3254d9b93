//! A controller that sets replicas, of any kind of object. Its metric asks for far more replicas than there are, and what it may add
//! at once doubles them: a scale update made twice, or one that is not remembered, results in six replicas or more, a lost
//! one in two.

use std::{
    marker::PhantomData,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::task::JoinHandle;

use super::{FaultSubject, testbed_and_namespace};
use crate::{
    support::{
        Testbed,
        holding_proxy::{
            HeldMoment, HoldPoint,
            RoleWrite::{self, Scale},
        },
        metrics_server::MetricsServer,
        role_process::RoleProcess,
        wait,
    },
    updater::fixture::deployment,
    watermark_controller::fixture::wait_for_deployment,
};

/// A kind of object whose controller sets replicas.
pub trait AutoscalerKind {
    /// The subcommand of its controller.
    const ROLE: &str;
    /// The Lease of its controller.
    const LEASE: &str;
    /// The flag for a single replica without a Lease.
    const WITHOUT_LEASE: &[&str];
    /// The write that records a scale update before it is made.
    const RECORD: RoleWrite;
    /// The points at which its controller crashes, one after the other.
    const CRASHES: &[HeldMoment] = &[
        (Self::RECORD, HoldPoint::Request),
        // From here on it is recorded, and not made.
        (Self::RECORD, HoldPoint::Answer),
        (Scale, HoldPoint::Request),
        // From here on it is made, and not reported.
        (Scale, HoldPoint::Answer),
    ];
    /// Metrics that only the leader exports.
    const LEADER_METRICS: &[&str];
    /// The counter of reconciles.
    const RECONCILES: &str;

    /// Makes the workload `web` need far more replicas.
    fn load(usage: &MetricsServer, namespace: &str);

    /// Creates the object of that workload, which has two replicas and may get two more.
    async fn create(bed: &Testbed, namespace: &str);

    /// Flags that limit its controller to this namespace and make it work as often as possible, with metrics on this port.
    fn flags(namespace: &str, port: u16) -> Vec<String>;

    /// Asserts that the object records one scale update from two to four replicas.
    async fn assert_recorded_once(bed: &Testbed, namespace: &str);
}

/// The values of a workload's `spec.replicas`, in order.
struct ReplicasLog {
    values: Arc<Mutex<Vec<i32>>>,
    task: JoinHandle<()>,
}

impl ReplicasLog {
    fn start(bed: &Testbed, namespace: &str) -> Self {
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

    fn values(&self) -> MutexGuard<'_, Vec<i32>> {
        self.values.lock().expect("no panic")
    }

    /// Waits until `spec.replicas` has this value.
    async fn wait_for_replicas(&self, replicas: i32) {
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

/// The controller of a kind, with a workload of two replicas.
pub struct ReplicaController<K> {
    bed: Testbed,
    namespace: String,
    _usage: MetricsServer,
    replicas: ReplicasLog,
    kind: PhantomData<K>,
}

impl<K: AutoscalerKind> FaultSubject for ReplicaController<K> {
    const ROLE: &str = K::ROLE;
    const LEASE: Option<&str> = Some(K::LEASE);
    const WITHOUT_LEASE: &[&str] = K::WITHOUT_LEASE;
    const ACTION: RoleWrite = Scale;
    const ACTIONS: Option<usize> = Some(1);
    const CRASHES: &[HeldMoment] = K::CRASHES;
    const LEADER_METRICS: &[&str] = K::LEADER_METRICS;

    async fn new(name: &str, private: bool) -> Option<Self> {
        let (bed, namespace) = testbed_and_namespace(name, private).await?;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        K::load(&usage, &namespace);
        deployment(&bed, &namespace, "web", 2).await;
        // A concurrent status write would cause a conflict and a retry of the scale update.
        wait_for_deployment(&bed, &namespace, "web", 2).await;
        K::create(&bed, &namespace).await;
        let replicas = ReplicasLog::start(&bed, &namespace);
        replicas.wait_for_replicas(2).await;
        Some(Self { bed, namespace, _usage: usage, replicas, kind: PhantomData })
    }

    fn bed(&self) -> &Testbed {
        &self.bed
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        let mut flags = K::flags(&self.namespace, port);
        flags.push(format!("--leader-elect-resource-namespace={}", self.namespace));
        flags
    }

    async fn assert_done_once(&self, process: &RoleProcess, _unmade: usize) {
        self.replicas.wait_for_replicas(4).await;
        process.wait_for_increase(K::RECONCILES, &[], 4).await;
        assert_eq!(*self.replicas.values(), [2, 4]);
        K::assert_recorded_once(&self.bed, &self.namespace).await;
    }
}
