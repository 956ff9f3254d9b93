//! Watches of the seven built-in controller kinds, which all controllers use to resolve targets.

use std::sync::Arc;

use super::shutdown::{ShutdownToken, Tasks};
use crate::cluster::{
    cache::controllers::{
        ControllerCache, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob, SlimReplicaSet,
        SlimReplicationController, SlimStatefulSet,
    },
    watch::{
        ObjectChange, WatchFactory, WatchOptions, WatchableObject, status::WatchStatus, watch,
    },
};

const KINDS: [&str; 7] = [
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "replicationcontrollers",
    "jobs",
    "cronjobs",
];

/// Watch statuses, before the watches are started.
pub(crate) fn watch_statuses() -> Vec<Arc<WatchStatus>> {
    KINDS.map(|name| Arc::new(WatchStatus::new(name))).to_vec()
}

/// Starts watches whose changes are applied to one object. They run until shutdown.
pub(crate) struct WatchStarter<'a, T> {
    pub target: &'a Arc<T>,
    pub watch_factory: &'a WatchFactory,
    pub namespace: Option<&'a str>,
    pub stop: &'a ShutdownToken,
    pub tasks: &'a mut Tasks,
}

impl<T: Send + Sync + 'static> WatchStarter<'_, T> {
    pub fn start<K: WatchableObject>(
        &mut self,
        status: &Arc<WatchStatus>,
        options: WatchOptions,
        apply: fn(&T, ObjectChange<K>),
    ) {
        let objects = self.watch_factory.objects::<K>(self.namespace);
        let (target, status) = (Arc::clone(self.target), Arc::clone(status));
        let stopped = self.stop.cancelled();
        self.tasks.spawn(async move {
            watch(objects, options, &status, |change| apply(&target, change), stopped).await;
        });
    }
}

/// Starts the watches, with statuses from [`watch_statuses`].
pub(crate) fn start(
    watch_factory: &WatchFactory,
    namespace: Option<&str>,
    controllers: &Arc<ControllerCache>,
    statuses: &[Arc<WatchStatus>],
    stop: &ShutdownToken,
    tasks: &mut Tasks,
) {
    let [
        daemon_sets,
        deployments,
        replica_sets,
        stateful_sets,
        replication_controllers,
        jobs,
        cron_jobs,
    ] = statuses
    else {
        return;
    };
    let options = WatchOptions::default;
    let mut watches = WatchStarter { target: controllers, watch_factory, namespace, stop, tasks };
    watches.start(daemon_sets, options(), ControllerCache::apply::<SlimDaemonSet>);
    watches.start(deployments, options(), ControllerCache::apply::<SlimDeployment>);
    watches.start(replica_sets, options(), ControllerCache::apply::<SlimReplicaSet>);
    watches.start(stateful_sets, options(), ControllerCache::apply::<SlimStatefulSet>);
    watches.start(
        replication_controllers,
        options(),
        ControllerCache::apply::<SlimReplicationController>,
    );
    watches.start(jobs, options(), ControllerCache::apply::<SlimJob>);
    watches.start(cron_jobs, options(), ControllerCache::apply::<SlimCronJob>);
}
