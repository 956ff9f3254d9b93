//! What the watermark controller watches: its objects, and pods.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::NamespaceResourceScope;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use super::{
    super::replicas::{Scope, Workloads},
    Role, Stop, Tasks,
};
use crate::observe::{
    feed::Feed,
    watch::{Change, Options, watch},
};
use plimsoll_core::{api::wpa::WatermarkPodAutoscaler, types::compat::Compat};

/// The watches of objects: of each namespace, or of all, in the order of the workloads' own.
#[derive(Debug)]
pub(super) struct Feeds {
    objects: Vec<Arc<Feed>>,
    workloads: Arc<Workloads>,
}

impl Feeds {
    /// Watches that do not run yet.
    pub fn new(workloads: Arc<Workloads>) -> Self {
        let scopes = workloads.scopes.all().iter();
        let objects = scopes.map(|_| Arc::new(Feed::new("watermarkpodautoscalers"))).collect();
        Self { objects, workloads }
    }

    /// Each namespace, or all as one.
    pub fn scopes(&self) -> &[Arc<Scope>] {
        self.workloads.scopes.all()
    }

    /// The watches of objects and pods; all of them are needed.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Feed>> {
        self.objects.iter().zip(self.scopes()).flat_map(|(objects, scope)| [objects, &scope.pods])
    }

    /// Ready once all have told of everything.
    pub async fn synced(&self) {
        for feed in self.all() {
            feed.synced().await;
        }
    }
}

impl Role {
    /// Starts all watches. They end when told to stop.
    pub(super) fn start_feeds(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) {
        for (place, (objects, scope)) in
            self.feeds.objects.iter().zip(self.feeds.scopes()).enumerate()
        {
            self.start_feed(place, objects, stop, tasks, |role, place, change| {
                role.change_object(place, change);
            });
            self.start_feed(place, &scope.pods, stop, tasks, |role, place, change| {
                if let Some(scope) = role.feeds.scopes().get(place) {
                    scope.change_pod(change);
                }
            });
        }
    }

    fn change_object(&self, place: usize, change: Change<WatermarkPodAutoscaler>) {
        // Upstream watches no scales.
        if self.config.compat == Compat::Plimsoll
            && let (Change::Put(object), Some(scope)) = (&change, self.feeds.scopes().get(place))
        {
            let namespace = object.namespace().unwrap_or_default();
            scope.scales.want(&self.workloads.target(&namespace, &object.spec.scale_target_ref));
        }
        self.book.apply(place, change, self.clock.now());
    }

    fn start_feed<K>(
        self: &Arc<Self>,
        place: usize,
        feed: &Arc<Feed>,
        stop: &Stop,
        tasks: &mut Tasks,
        apply: fn(&Self, usize, Change<K>),
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (role, feed, ended) = (Arc::clone(self), Arc::clone(feed), stop.stopped());
        let only = self.feeds.scopes().get(place).and_then(|scope| scope.only.as_deref());
        let objects = self.reader.objects::<K>(only);
        tasks.spawn(async move {
            let apply = |change| apply(&role, place, change);
            watch(objects, Options::default(), &feed, apply, ended).await;
        });
    }
}
