//! The watches of a controller. They start together, once all controllers of a process are built.

use std::{fmt::Debug, future::pending, sync::Arc};

use futures::future::BoxFuture;
use kube::Resource;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{optional_watch::OptionalWatch, shutdown::TaskGroup};
use crate::cluster::{
    cache::controllers::{
        Controller, ControllerCache, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob,
        SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
    },
    watch::{
        ObjectChange, WatchFactory, WatchOptions, WatchSource, WatchableObject,
        status::WatchStatus, watch,
    },
};

pub(crate) struct WatchSet {
    pub factory: WatchFactory,
    /// The watches that must be synced before the controller decides.
    pub required: Vec<Arc<WatchStatus>>,
    /// Tasks that have not started.
    tasks: Mutex<Vec<BoxFuture<'static, ()>>>,
}

impl WatchSet {
    pub fn new(factory: WatchFactory) -> Self {
        Self { factory, required: Vec::new(), tasks: Mutex::default() }
    }

    /// Adds a required watch of one namespace, or of all.
    pub fn add<K: WatchableObject>(
        &mut self,
        name: &'static str,
        namespace: Option<&str>,
        options: WatchOptions,
        apply: impl FnMut(ObjectChange<K>) + Send + 'static,
    ) -> Arc<WatchStatus> {
        let objects = self.factory.objects::<K>(namespace);
        self.add_source(name, objects, options, apply)
    }

    /// Adds a required watch of these objects.
    pub fn add_source<K>(
        &mut self,
        name: &'static str,
        objects: impl Into<WatchSource<K>>,
        options: WatchOptions,
        apply: impl FnMut(ObjectChange<K>) + Send + 'static,
    ) -> Arc<WatchStatus>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let status = Arc::new(WatchStatus::new(name));
        self.required.push(Arc::clone(&status));
        let (objects, watched) = (objects.into(), Arc::clone(&status));
        self.add_task(async move { watch(objects, options, &watched, apply, pending()).await });
        status
    }

    /// Adds required watches of the seven built-in kinds of controllers, by which targets are resolved.
    pub fn add_controllers(&mut self, controllers: &Arc<ControllerCache>, namespace: Option<&str>) {
        self.add_kind::<SlimDaemonSet>("daemonsets", controllers, namespace);
        self.add_kind::<SlimDeployment>("deployments", controllers, namespace);
        self.add_kind::<SlimReplicaSet>("replicasets", controllers, namespace);
        self.add_kind::<SlimStatefulSet>("statefulsets", controllers, namespace);
        let name = "replicationcontrollers";
        self.add_kind::<SlimReplicationController>(name, controllers, namespace);
        self.add_kind::<SlimJob>("jobs", controllers, namespace);
        self.add_kind::<SlimCronJob>("cronjobs", controllers, namespace);
    }

    fn add_kind<K: Controller + WatchableObject>(
        &mut self,
        name: &'static str,
        controllers: &Arc<ControllerCache>,
        namespace: Option<&str>,
    ) {
        let controllers = Arc::clone(controllers);
        self.add(name, namespace, WatchOptions::default(), move |change| {
            controllers.apply::<K>(change);
        });
    }

    /// Adds a watch of objects that may not be readable, which is not required.
    pub fn add_optional<K: WatchableObject, T: Send + 'static>(
        &self,
        objects: &Arc<OptionalWatch<K, T>>,
        namespace: Option<&str>,
        consequence: &'static str,
    ) {
        let (factory, namespace) = (self.factory.clone(), namespace.map(str::to_owned));
        self.add_task(Arc::clone(objects).run(factory, namespace, consequence));
    }

    pub fn add_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().push(Box::pin(task));
    }

    /// Starts all watches. They run until shutdown.
    pub fn start(&self, tasks: &mut TaskGroup) {
        for task in self.tasks.lock().drain(..) {
            tasks.spawn_cancellable(task);
        }
    }

    /// Waits until all required watches have completed their first list.
    pub async fn wait_until_synced(&self) {
        for status in &self.required {
            status.wait_until_synced().await;
        }
    }
}
