//! The watches of the recommender, and what their changes do to its state.

use std::sync::Arc;

use kube::Api;

use super::{Role, Stop};
use crate::{
    observe::{
        eviction::watch_evictions,
        feed::Feed,
        guard::Guarded,
        slim::{SlimNode, SlimPod},
        watch::{Options, watch},
    },
    run::controllers,
};
use plimsoll_core::api::VerticalPodAutoscaler;

/// The watches by name, in the order in which they are waited for.
#[derive(Debug)]
pub struct Feeds {
    /// VPAs.
    pub vpas: Arc<Feed>,
    /// Pods that are not pending.
    pub pods: Arc<Feed>,
    /// The seven kinds of controllers that everybody has.
    pub controllers: Vec<Arc<Feed>>,
    /// Evictions.
    pub evictions: Arc<Feed>,
    /// Nodes, where recommendations are kept within the largest.
    pub nodes: Option<Arc<Feed>>,
}

impl Feeds {
    /// Watches that do not run yet.
    pub fn new(nodes: bool) -> Self {
        let feed = |name| Arc::new(Feed::new(name));
        Self {
            vpas: feed("verticalpodautoscalers"),
            pods: feed("pods"),
            controllers: controllers::feeds(),
            evictions: feed("evictions"),
            nodes: nodes.then(|| feed("nodes")),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Feed>> {
        let first = [&self.vpas, &self.pods, &self.evictions];
        first.into_iter().chain(&self.controllers).chain(&self.nodes)
    }

    /// Those without which nothing is decided. Evictions are an extra, and may be forbidden.
    pub fn needed(&self) -> impl Iterator<Item = &Arc<Feed>> {
        self.all().filter(|feed| !Arc::ptr_eq(feed, &self.evictions))
    }

    /// Waits until each of those has read a whole list.
    pub async fn synced(&self) {
        for feed in self.needed() {
            feed.synced().await;
        }
    }
}

impl Role {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_feeds(self: &Arc<Self>, stop: &Stop, tasks: &mut super::Tasks) {
        let only = self.config.scope.only.as_deref();
        let reader = &self.reader;
        {
            let (role, ended) = (Arc::clone(self), stop.stopped());
            let vpas = reader.objects::<VerticalPodAutoscaler>(only);
            tasks.spawn(async move {
                let apply = |change| {
                    let is_news = role.state.lock().change_vpa(change);
                    if is_news {
                        role.news.notify_one();
                        role.found.notify_one();
                    }
                };
                watch(vpas, Options::default(), &role.feeds.vpas, apply, ended).await;
            });
        }
        {
            let (role, ended) = (Arc::clone(self), stop.stopped());
            let pods = reader.objects::<SlimPod>(only);
            // A pod that was not started yet uses nothing, and is not counted among those that match.
            let fields = Some("status.phase!=Pending".to_owned());
            tasks.spawn(async move {
                let apply = |change| role.state.lock().change_pod(change);
                let options = Options { fields, ..Options::default() };
                watch(pods, options, &role.feeds.pods, apply, ended).await;
            });
        }
        controllers::start(reader, only, &self.controllers, &self.feeds.controllers, stop, tasks);
        {
            let (role, ended) = (Arc::clone(self), stop.stopped());
            tasks.spawn(async move {
                let only = role.config.scope.only.as_deref();
                let apply = |eviction| role.state.lock().add_eviction(&eviction);
                watch_evictions(&role.client, only, &role.feeds.evictions, apply, ended).await;
            });
        }
        if self.feeds.nodes.is_some() {
            let (role, ended) = (Arc::clone(self), stop.stopped());
            let nodes: Api<Guarded<SlimNode>> = Api::all(self.client.clone());
            tasks.spawn(async move {
                let Some(feed) = &role.feeds.nodes else { return };
                let apply = |change| role.state.lock().change_node(change);
                watch(nodes, Options::default(), feed, apply, ended).await;
            });
        }
    }
}
