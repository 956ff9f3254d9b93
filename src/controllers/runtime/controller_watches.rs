//! Watches of the seven built-in controller kinds, which all controllers use to resolve targets.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::shutdown::{ShutdownToken, Tasks};
use crate::cluster::{
    cache::controllers::{
        Controller, ControllerCache, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob,
        SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
    },
    watch::{WatchFactory, WatchOptions, status::WatchStatus, watch},
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

/// Arguments shared by all of these watches.
struct WatchStarter<'a> {
    watch_factory: &'a WatchFactory,
    namespace: Option<&'a str>,
    controllers: &'a Arc<ControllerCache>,
    stop: &'a ShutdownToken,
}

/// Starts the watches, with statuses from [`watch_statuses`]. They run until shutdown.
pub(crate) fn start(
    watch_factory: &WatchFactory,
    namespace: Option<&str>,
    controllers: &Arc<ControllerCache>,
    statuses: &[Arc<WatchStatus>],
    stop: &ShutdownToken,
    tasks: &mut Tasks,
) {
    let starter = WatchStarter { watch_factory, namespace, controllers, stop };
    let mut statuses = statuses.iter();
    starter.start_kind::<SlimDaemonSet>(statuses.next(), tasks);
    starter.start_kind::<SlimDeployment>(statuses.next(), tasks);
    starter.start_kind::<SlimReplicaSet>(statuses.next(), tasks);
    starter.start_kind::<SlimStatefulSet>(statuses.next(), tasks);
    starter.start_kind::<SlimReplicationController>(statuses.next(), tasks);
    starter.start_kind::<SlimJob>(statuses.next(), tasks);
    starter.start_kind::<SlimCronJob>(statuses.next(), tasks);
}

impl WatchStarter<'_> {
    fn start_kind<K>(&self, status: Option<&Arc<WatchStatus>>, tasks: &mut Tasks)
    where
        K: Controller
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let Some(status) = status.cloned() else { return };
        let objects = self.watch_factory.objects::<K>(self.namespace);
        let (controllers, stopped) = (Arc::clone(self.controllers), self.stop.cancelled());
        tasks.spawn(async move {
            let apply = |change| controllers.apply::<K>(change);
            watch(objects, WatchOptions::default(), &status, apply, stopped).await;
        });
    }
}
