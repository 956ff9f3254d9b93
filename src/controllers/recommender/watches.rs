//! The watches of the recommender, and what their changes do to its state.

use std::sync::Arc;

use kube::Api;

use super::{Recommender, ShutdownToken};
use crate::{
    cluster::{
        cache::eviction_events::watch_evictions,
        watch::{
            WatchOptions,
            maybe_object::MaybeObject,
            partial_objects::{PartialNode, PartialPod},
            status::WatchStatus,
            watch,
        },
    },
    controllers::runtime::controller_watches,
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// The watches by name, in the order in which they are waited for.
#[derive(Debug)]
pub struct Watches {
    /// VPAs.
    pub vpas: Arc<WatchStatus>,
    /// Pods that are not pending.
    pub pods: Arc<WatchStatus>,
    /// The seven kinds of controllers that everybody has.
    pub controllers: Vec<Arc<WatchStatus>>,
    /// Evictions.
    pub evictions: Arc<WatchStatus>,
    /// Nodes, where recommendations are kept within the largest.
    pub nodes: Option<Arc<WatchStatus>>,
}

impl Watches {
    /// Watches that do not run yet.
    pub fn new(nodes: bool) -> Self {
        let feed = |name| Arc::new(WatchStatus::new(name));
        Self {
            vpas: feed("verticalpodautoscalers"),
            pods: feed("pods"),
            controllers: controller_watches::watch_statuses(),
            evictions: feed("evictions"),
            nodes: nodes.then(|| feed("nodes")),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        let first = [&self.vpas, &self.pods, &self.evictions];
        first.into_iter().chain(&self.controllers).chain(&self.nodes)
    }

    /// Those without which nothing is decided. Evictions are an extra, and may be forbidden.
    pub fn required(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.all().filter(|feed| !Arc::ptr_eq(feed, &self.evictions))
    }

    /// Waits until each of those has read a whole list.
    pub async fn wait_for_sync(&self) {
        for feed in self.required() {
            feed.wait_until_synced().await;
        }
    }
}

impl Recommender {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_watches(self: &Arc<Self>, stop: &ShutdownToken, tasks: &mut super::Tasks) {
        let only = self.config.scope.only.as_deref();
        let reader = &self.watch_factory;
        {
            let (role, ended) = (Arc::clone(self), stop.cancelled());
            let vpas = reader.objects::<VerticalPodAutoscaler>(only);
            tasks.spawn(async move {
                let apply = |change| {
                    let is_news = role.state.lock().apply_vpa_change(change);
                    if is_news {
                        role.history_wanted.notify_one();
                        role.target_wanted.notify_one();
                    }
                };
                watch(vpas, WatchOptions::default(), &role.watches.vpas, apply, ended).await;
            });
        }
        {
            let (role, ended) = (Arc::clone(self), stop.cancelled());
            let pods = reader.objects::<PartialPod>(only);
            // A pod that was not started yet uses nothing, and is not counted among those that match.
            let fields = Some("status.phase!=Pending".to_owned());
            tasks.spawn(async move {
                let apply = |change| role.state.lock().apply_pod_change(change);
                let options = WatchOptions { field_selector: fields, ..WatchOptions::default() };
                watch(pods, options, &role.watches.pods, apply, ended).await;
            });
        }
        controller_watches::start(
            reader,
            only,
            &self.controllers,
            &self.watches.controllers,
            stop,
            tasks,
        );
        {
            let (role, ended) = (Arc::clone(self), stop.cancelled());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let apply = |eviction| role.state.lock().add_eviction(&eviction);
                watch_evictions(&role.client, only, &role.watches.evictions, apply, ended).await;
            });
        }
        if self.watches.nodes.is_some() {
            let (role, ended) = (Arc::clone(self), stop.cancelled());
            let nodes: Api<MaybeObject<PartialNode>> = Api::all(self.client.clone());
            tasks.spawn(async move {
                let Some(feed) = &role.watches.nodes else { return };
                let apply = |change| role.state.lock().apply_node_change(change);
                watch(nodes, WatchOptions::default(), feed, apply, ended).await;
            });
        }
    }
}
