//! Watches of VPAs, HPAs and WPAs. Of each object only what pages show is kept, and snapshots share it.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{NamespaceResourceScope, api::autoscaling::v2::HorizontalPodAutoscaler};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use parking_lot::Mutex;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, wpa::WatermarkPodAutoscaler},
    rightsizing::survey::Unread,
    types::{ObjectKey, interner::Interner},
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use crate::{
    cluster::{
        cache::object_store::ObjectStore,
        clock::Clock,
        list_stream::error_message,
        watch::{ObjectChange, WatchFactory, WatchOptions, status::WatchStatus, watch},
    },
    controllers::runtime::shutdown::TaskGroup,
    ui::{
        facts::{AutoscalerFacts, VpaFacts},
        snapshot::Vpas,
    },
};

/// How long to wait before a kind is looked for again that the API server does not serve, or may not be listed.
const PROBE_INTERVAL: Duration = Duration::from_mins(2);
/// The first snapshot is made after this time, even if VPAs are not known yet.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

type Store<T> = Mutex<ObjectStore<ObjectKey, Arc<T>>>;

/// The objects of the watches.
pub(super) struct Watches {
    client: Client,
    clock: Clock,
    vpas: Watched<VpaFacts>,
    hpas: Watched<AutoscalerFacts>,
    wpas: Watched<AutoscalerFacts>,
    /// The texts of VPAs.
    texts: Mutex<Interner<str>>,
}

/// The objects of one kind.
struct Watched<T> {
    what: &'static str,
    store: Store<T>,
    status: WatchStatus,
    /// Why there is no watch.
    error: Mutex<Option<String>>,
}

impl<T> Watched<T> {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            store: Mutex::default(),
            status: WatchStatus::new(what),
            error: Mutex::new(None),
        }
    }

    fn unread(&self) -> Option<Unread> {
        let error = self.error.lock().clone();
        let failing =
            || self.status.is_failing().then(|| "the watch fails and is retried".to_owned());
        let why = error.or_else(failing)?;
        Some(Unread { what: self.what.to_owned(), why })
    }

    fn all<C: FromIterator<(ObjectKey, Arc<T>)>>(&self) -> C {
        let store = self.store.lock();
        store.iter().map(|(key, object)| (key.clone(), Arc::clone(object))).collect()
    }
}

impl Watches {
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            vpas: Watched::new("verticalpodautoscalers"),
            hpas: Watched::new("horizontalpodautoscalers"),
            wpas: Watched::new("watermarkpodautoscalers"),
            texts: Mutex::default(),
        }
    }

    pub fn start(self: &Arc<Self>, tasks: &mut TaskGroup) {
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move {
            let read = |vpa: VerticalPodAutoscaler| {
                let facts = VpaFacts::of(&vpa, &mut this.texts.lock());
                (ObjectKey::new(Arc::clone(&facts.namespace), Arc::clone(&facts.name)), facts)
            };
            this.follow(&this.vpas, read).await;
        });
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move {
            let read = |hpa: HorizontalPodAutoscaler| (key_of(&hpa), AutoscalerFacts::of_hpa(&hpa));
            this.follow(&this.hpas, read).await;
        });
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move {
            let read = |wpa: WatermarkPodAutoscaler| {
                (key_of(&wpa), AutoscalerFacts::of_wpa(&wpa, this.clock.now()))
            };
            this.follow(&this.wpas, read).await;
        });
    }

    /// Watches a kind as soon as it can be listed.
    async fn follow<K, T>(
        &self,
        watched: &Watched<T>,
        read: impl Fn(K) -> (ObjectKey, T) + Send + Sync,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned + Send + 'static,
        T: Send + Sync,
    {
        let api = Api::<K>::all(self.client.clone());
        loop {
            match api.list_metadata(&ListParams::default().limit(1)).await {
                Ok(_) => break,
                // Without the CRD there are no objects.
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    *watched.error.lock() = None;
                }
                Err(error) => *watched.error.lock() = Some(error_message(&error)),
            }
            sleep(PROBE_INTERVAL).await;
        }
        *watched.error.lock() = None;
        let objects = WatchFactory::dedicated(self.client.clone()).objects::<K>(None);
        let apply = |change: ObjectChange<K>| {
            let change = change.map(|object| {
                let (key, facts) = read(object);
                (key, Some(Arc::new(facts)))
            });
            watched.store.lock().apply(change, |namespace, name| ObjectKey::new(namespace, name));
        };
        let never = std::future::pending();
        watch(objects, WatchOptions::default(), &watched.status, apply, never).await;
    }

    /// Waits until VPAs are known, but not forever: they may be forbidden or not installed.
    pub async fn wait_for_vpas(&self) {
        let _ = tokio::time::timeout(SYNC_TIMEOUT, self.vpas.status.wait_until_synced()).await;
    }

    pub fn vpas(&self) -> Vpas {
        self.vpas.all()
    }

    pub fn autoscalers(&self) -> Vec<Arc<AutoscalerFacts>> {
        let (hpas, wpas): (Vec<_>, Vec<_>) = (self.hpas.all(), self.wpas.all());
        hpas.into_iter().chain(wpas).map(|(_, object)| object).collect()
    }

    /// The namespaces with VPAs that change running pods.
    pub fn namespaces_with_updates(&self) -> BTreeSet<String> {
        let store = self.vpas.store.lock();
        let changes = |vpa: &&Arc<VpaFacts>| !matches!(&*vpa.update_mode, "Off" | "Initial");
        let changing = store.iter().map(|(_, vpa)| vpa).filter(changes);
        changing.map(|vpa| vpa.namespace.as_ref().to_owned()).collect()
    }

    /// The kinds that could not be read.
    pub fn unread(&self) -> Vec<Unread> {
        let of_replicas = [self.hpas.unread(), self.wpas.unread()];
        self.vpas.unread().into_iter().chain(of_replicas.into_iter().flatten()).collect()
    }
}

fn key_of(object: &impl Resource) -> ObjectKey {
    ObjectKey::new(object.namespace().unwrap_or_default(), object.name_any())
}
