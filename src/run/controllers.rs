//! The watches of the seven kinds of controllers that everybody has: every role follows targets by them.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::tasks::{Stop, Tasks};
use crate::observe::{
    controllers::{
        Controller, Controllers, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob,
        SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
    },
    feed::Feed,
    watch::{Change, Options, Reader, watch},
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
pub(super) fn feeds() -> Vec<Arc<Feed>> {
    KINDS.map(|name| Arc::new(Feed::new(name))).to_vec()
}

/// What all of these watches have in common.
struct Start<'a> {
    reader: &'a Reader,
    only: Option<&'a str>,
    controllers: &'a Arc<Controllers>,
    stop: &'a Stop,
}

/// Starts them, with the feeds from [`feeds`]. They end when told to stop.
pub(super) fn start(
    reader: &Reader,
    only: Option<&str>,
    controllers: &Arc<Controllers>,
    feeds: &[Arc<Feed>],
    stop: &Stop,
    tasks: &mut Tasks,
) {
    let start = Start { reader, only, controllers, stop };
    let mut feeds = feeds.iter();
    start.kind::<SlimDaemonSet>(feeds.next(), tasks);
    start.kind::<SlimDeployment>(feeds.next(), tasks);
    start.kind::<SlimReplicaSet>(feeds.next(), tasks);
    start.kind::<SlimStatefulSet>(feeds.next(), tasks);
    start.kind::<SlimReplicationController>(feeds.next(), tasks);
    start.kind::<SlimJob>(feeds.next(), tasks);
    start.kind::<SlimCronJob>(feeds.next(), tasks);
}

impl Start<'_> {
    fn kind<K>(&self, feed: Option<&Arc<Feed>>, tasks: &mut Tasks)
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
        let objects = self.reader.objects::<K>(self.only);
        let (controllers, ended) = (Arc::clone(self.controllers), self.stop.stopped());
        tasks.spawn(async move {
            let apply = |change| change_controller(&controllers, change);
            watch(objects, Options::default(), &feed, apply, ended).await;
        });
    }
}

fn change_controller<K: Controller>(controllers: &Controllers, change: Change<K>) {
    match change {
        Change::Restart => controllers.restart(K::KIND),
        Change::Put(controller) => {
            controllers.put(&controller);
        }
        Change::Unreadable { namespace, name, .. } => controllers.keep(K::KIND, &namespace, &name),
        Change::Gone { namespace, name, .. } => {
            controllers.gone(K::KIND, &namespace, &name);
        }
        Change::Complete => {
            controllers.complete(K::KIND);
        }
    }
}
