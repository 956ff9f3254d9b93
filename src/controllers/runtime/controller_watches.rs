//! The watches of the seven kinds of controllers that everybody has: every role follows targets by them.

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
    watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus, watch},
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

/// Watches of them that do not run yet.
pub(crate) fn watch_statuses() -> Vec<Arc<WatchStatus>> {
    KINDS.map(|name| Arc::new(WatchStatus::new(name))).to_vec()
}

/// What all of these watches have in common.
struct WatchStarter<'a> {
    watch_factory: &'a WatchFactory,
    namespace: Option<&'a str>,
    controllers: &'a Arc<ControllerCache>,
    stop: &'a ShutdownToken,
}

/// Starts them, with the feeds from [`feeds`]. They end when told to stop.
pub(crate) fn start(
    reader: &WatchFactory,
    only: Option<&str>,
    controllers: &Arc<ControllerCache>,
    feeds: &[Arc<WatchStatus>],
    stop: &ShutdownToken,
    tasks: &mut Tasks,
) {
    let start = WatchStarter { watch_factory: reader, namespace: only, controllers, stop };
    let mut feeds = feeds.iter();
    start.start_kind::<SlimDaemonSet>(feeds.next(), tasks);
    start.start_kind::<SlimDeployment>(feeds.next(), tasks);
    start.start_kind::<SlimReplicaSet>(feeds.next(), tasks);
    start.start_kind::<SlimStatefulSet>(feeds.next(), tasks);
    start.start_kind::<SlimReplicationController>(feeds.next(), tasks);
    start.start_kind::<SlimJob>(feeds.next(), tasks);
    start.start_kind::<SlimCronJob>(feeds.next(), tasks);
}

impl WatchStarter<'_> {
    fn start_kind<K>(&self, feed: Option<&Arc<WatchStatus>>, tasks: &mut Tasks)
    where
        K: Controller
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let Some(feed) = feed.cloned() else { return };
        let objects = self.watch_factory.objects::<K>(self.namespace);
        let (controllers, ended) = (Arc::clone(self.controllers), self.stop.cancelled());
        tasks.spawn(async move {
            let apply = |change| apply_controller_change(&controllers, change);
            watch(objects, WatchOptions::default(), &feed, apply, ended).await;
        });
    }
}

fn apply_controller_change<K: Controller>(controllers: &ControllerCache, change: ObjectChange<K>) {
    match change {
        ObjectChange::Restart => controllers.restart(K::KIND),
        ObjectChange::Applied(controller) => {
            controllers.put(&controller);
        }
        ObjectChange::Invalid { namespace, name, .. } => {
            controllers.keep_unreadable(K::KIND, &namespace, &name);
        }
        ObjectChange::Deleted { namespace, name, .. } => {
            controllers.remove(K::KIND, &namespace, &name);
        }
        ObjectChange::Synced => {
            controllers.finish_list(K::KIND);
        }
    }
}
