//! The watches of the recommender, and how their events change its state.

use std::{future::pending, sync::Arc};

use kube::Api;

use super::Shared;
use crate::{
    cluster::{
        cache::{controllers::ControllerCache, eviction_events::watch_evictions},
        watch::{
            WatchFactory, WatchOptions, maybe_object::MaybeObject, partial_objects::PartialNode,
            status::WatchStatus,
        },
    },
    controllers::runtime::watch_set::WatchSet,
};

pub(super) const VPAS: &str = "verticalpodautoscalers";
pub(super) const PODS: &str = "pods";

pub(super) struct Watches {
    pub set: WatchSet,
    pub vpas: Arc<WatchStatus>,
    /// Evictions are optional, and may be forbidden.
    evictions: Arc<WatchStatus>,
}

impl Watches {
    /// Watches that are not started yet.
    pub fn new(
        shared: &Arc<Shared>,
        controllers: &Arc<ControllerCache>,
        factory: WatchFactory,
    ) -> Self {
        let mut set = WatchSet::new(factory);
        let namespace = shared.config.scope.only.as_deref();
        let changed = Arc::clone(shared);
        let vpas = set.add(VPAS, namespace, WatchOptions::default(), move |change| {
            changed.state.lock().apply_vpa_change(change);
        });
        // A pending pod uses nothing yet, and does not count as matching.
        let field_selector = Some("status.phase!=Pending".to_owned());
        let options = WatchOptions { field_selector, ..WatchOptions::default() };
        let changed = Arc::clone(shared);
        set.add(PODS, namespace, options, move |change| {
            changed.state.lock().apply_pod_change(change);
        });
        set.add_controllers(controllers, namespace);
        if shared.config.cap_to_largest_node {
            let nodes: Api<MaybeObject<PartialNode>> = Api::all(shared.client.clone());
            let changed = Arc::clone(shared);
            set.add_source("nodes", nodes, WatchOptions::default(), move |change| {
                changed.state.lock().apply_node_change(change);
            });
        }
        let evictions = Arc::new(WatchStatus::new("evictions"));
        let (changed, status) = (Arc::clone(shared), Arc::clone(&evictions));
        set.add_task(async move {
            let namespace = changed.config.scope.only.as_deref();
            let apply = |eviction| changed.state.lock().add_eviction(&eviction);
            watch_evictions(&changed.client, namespace, &status, apply, pending()).await;
        });
        Self { set, vpas, evictions }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<WatchStatus>> {
        self.set.required.iter().chain([&self.evictions])
    }
}
