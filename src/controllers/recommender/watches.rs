//! The watches of the recommender, and how their events change its state.

use std::sync::Arc;

use kube::Api;

use super::{Recommender, ShutdownToken};
use crate::{
    cluster::{
        cache::eviction_events::watch_evictions,
        watch::{
            WatchOptions, maybe_object::MaybeObject, partial_objects::PartialNode,
            status::WatchStatus, watch,
        },
    },
    controllers::runtime::controller_watches::{self, WatchStarter},
};

/// The status of each watch, in the order in which startup waits for them.
#[derive(Debug)]
pub struct Watches {
    pub vpas: Arc<WatchStatus>,
    /// Pods that are not pending.
    pub pods: Arc<WatchStatus>,
    /// The seven built-in controller kinds.
    pub controllers: Vec<Arc<WatchStatus>>,
    pub evictions: Arc<WatchStatus>,
    /// Nodes, if recommendations are capped to the largest node.
    pub nodes: Option<Arc<WatchStatus>>,
}

impl Watches {
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

    pub fn start(
        &self,
        recommender: &Arc<Recommender>,
        stop: &ShutdownToken,
        tasks: &mut super::Tasks,
    ) {
        let namespace = recommender.config.scope.only.as_deref();
        let watch_factory = &recommender.watch_factory;
        let mut watches =
            WatchStarter { target: recommender, watch_factory, namespace, stop, tasks };
        watches.start(&self.vpas, WatchOptions::default(), |role, change| {
            let needs_lookup = role.state.lock().apply_vpa_change(change);
            if needs_lookup {
                role.history_wanted.notify_one();
                role.target_wanted.notify_one();
            }
        });
        // A pending pod uses nothing yet, and does not count as matching.
        let field_selector = Some("status.phase!=Pending".to_owned());
        let pod_options = WatchOptions { field_selector, ..WatchOptions::default() };
        watches.start(&self.pods, pod_options, |role, change| {
            role.state.lock().apply_pod_change(change);
        });
        let (controllers, statuses) = (&recommender.controllers, &self.controllers);
        controller_watches::start(watch_factory, namespace, controllers, statuses, stop, tasks);
        {
            let (role, stopped) = (Arc::clone(recommender), stop.cancelled());
            tasks.spawn(async move {
                let namespaces = role.config.scope.only.as_deref();
                let apply = |eviction| role.state.lock().add_eviction(&eviction);
                watch_evictions(&role.client, namespaces, &role.watches.evictions, apply, stopped)
                    .await;
            });
        }
        if self.nodes.is_some() {
            let (role, stopped) = (Arc::clone(recommender), stop.cancelled());
            let nodes: Api<MaybeObject<PartialNode>> = Api::all(recommender.client.clone());
            tasks.spawn(async move {
                let Some(status) = &role.watches.nodes else { return };
                let apply = |change| role.state.lock().apply_node_change(change);
                watch(nodes, WatchOptions::default(), status, apply, stopped).await;
            });
        }
    }
}
