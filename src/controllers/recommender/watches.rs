//! The watches of the recommender, and how their events change its state.

use std::sync::Arc;

use kube::{Api, Client};

use super::Shared;
use crate::{
    cluster::{
        cache::{controllers::ControllerCache, eviction_events::watch_evictions},
        watch::{
            WatchFactory, WatchOptions, maybe_object::MaybeObject, partial_objects::PartialNode,
            status::WatchStatus, watch,
        },
    },
    controllers::runtime::{
        controller_watches::{self, WatchStarter},
        shutdown::{ShutdownToken, Tasks},
    },
};

/// The status of each watch, in the order in which startup waits for them.
#[derive(Debug)]
pub(super) struct WatchStatuses {
    pub vpas: Arc<WatchStatus>,
    /// Pods that are not pending.
    pub pods: Arc<WatchStatus>,
    /// The seven built-in controller kinds.
    pub controllers: Vec<Arc<WatchStatus>>,
    pub evictions: Arc<WatchStatus>,
    /// Nodes, if recommendations are capped to the largest node.
    pub nodes: Option<Arc<WatchStatus>>,
}

impl WatchStatuses {
    /// Watches that are not started yet.
    pub fn new(nodes: bool) -> Self {
        let status = |name| Arc::new(WatchStatus::new(name));
        Self {
            vpas: status("verticalpodautoscalers"),
            pods: status("pods"),
            controllers: controller_watches::watch_statuses(),
            evictions: status("evictions"),
            nodes: nodes.then(|| status("nodes")),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        let first = [&self.vpas, &self.pods, &self.evictions];
        first.into_iter().chain(&self.controllers).chain(&self.nodes)
    }

    /// The watches that must be synced before decisions. Evictions are optional, and may be forbidden.
    pub fn required(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.all().filter(|status| !Arc::ptr_eq(status, &self.evictions))
    }

    pub async fn wait_for_sync(&self) {
        for status in self.required() {
            status.wait_until_synced().await;
        }
    }
}

/// The watches, and what their events change.
pub(super) struct Watches {
    pub statuses: Arc<WatchStatuses>,
    pub shared: Arc<Shared>,
    pub controllers: Arc<ControllerCache>,
    pub watch_factory: WatchFactory,
    pub client: Client,
}

impl Watches {
    pub fn start(&self, stop: &ShutdownToken, tasks: &mut Tasks) {
        let Self { statuses, shared, controllers, watch_factory, client } = self;
        let namespace = shared.config.scope.only.as_deref();
        let mut watches = WatchStarter { target: shared, watch_factory, namespace, stop, tasks };
        watches.start(&statuses.vpas, WatchOptions::default(), |shared, change| {
            shared.state.lock().apply_vpa_change(change);
        });
        // A pending pod uses nothing yet, and does not count as matching.
        let field_selector = Some("status.phase!=Pending".to_owned());
        let pod_options = WatchOptions { field_selector, ..WatchOptions::default() };
        watches.start(&statuses.pods, pod_options, |shared, change| {
            shared.state.lock().apply_pod_change(change);
        });
        let kinds = &statuses.controllers;
        controller_watches::start(watch_factory, namespace, controllers, kinds, stop, tasks);
        {
            let (shared, client) = (Arc::clone(shared), client.clone());
            let (status, stopped) = (Arc::clone(&statuses.evictions), stop.cancelled());
            tasks.spawn(async move {
                let namespace = shared.config.scope.only.as_deref();
                let apply = |eviction| shared.state.lock().add_eviction(&eviction);
                watch_evictions(&client, namespace, &status, apply, stopped).await;
            });
        }
        if let Some(status) = &statuses.nodes {
            let (shared, status) = (Arc::clone(shared), Arc::clone(status));
            let nodes: Api<MaybeObject<PartialNode>> = Api::all(client.clone());
            let stopped = stop.cancelled();
            tasks.spawn(async move {
                let apply = |change| shared.state.lock().apply_node_change(change);
                watch(nodes, WatchOptions::default(), &status, apply, stopped).await;
            });
        }
    }
}
