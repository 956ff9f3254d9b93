//! A watch of objects that may not be readable: their kind may not be served, and RBAC may not allow to watch it.

use std::{future::pending, sync::Arc, time::Duration};

use kube::{Api, api::ListParams};
use parking_lot::Mutex;
use tokio::sync::watch::Sender;

use crate::cluster::{
    cache::object_store::ObjectStore,
    watch::{
        ObjectChange, WatchFactory, WatchOptions, WatchableObject, status::WatchStatus, watch,
    },
    write::{AccessReview, AccessRule, check_access},
};
use plimsoll_core::types::ObjectKey;

/// How often a watch that is not possible is tried again.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// Timeout of the list that shows whether the kind is served.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Availability {
    /// Not checked yet, or the watch is not started.
    #[default]
    Unknown,
    Watched,
    /// The kind is not served, or RBAC does not allow to read it. This counts as if there were no objects.
    Unavailable,
}

/// Why objects cannot be watched.
#[derive(Debug, PartialEq, Eq)]
enum Obstacle {
    /// The CRD is not installed.
    NotServed,
    /// These RBAC rules are missing.
    Denied(String),
}

/// Cached objects of a kind that may not be readable. `T` is what is stored of an object `K`.
#[derive(Debug)]
pub(crate) struct OptionalWatch<K, T> {
    group: &'static str,
    stored: fn(K) -> T,
    status: Arc<WatchStatus>,
    availability: Sender<Availability>,
    store: Mutex<ObjectStore<ObjectKey, T>>,
}

impl<K: WatchableObject, T: Send + 'static> OptionalWatch<K, T> {
    /// A watch that is not started. `resource` is the plural name of the kind, `stored` converts an object.
    pub fn new(group: &'static str, resource: &'static str, stored: fn(K) -> T) -> Self {
        Self {
            group,
            stored,
            status: Arc::new(WatchStatus::new(resource)),
            availability: Sender::default(),
            store: Mutex::default(),
        }
    }

    /// Reads the stored objects; `None` until they are known.
    pub fn read<R>(&self, read: impl FnOnce(&ObjectStore<ObjectKey, T>) -> R) -> Option<R> {
        let availability = *self.availability.borrow();
        let store = self.store.lock();
        match availability {
            Availability::Unknown => None,
            Availability::Watched => store.is_synced().then(|| read(&store)),
            Availability::Unavailable => Some(read(&store)),
        }
    }

    /// Whether all objects are listed, or cannot be read.
    pub fn are_known(&self) -> bool {
        self.read(|_| ()).is_some()
    }

    /// Waits until all objects are listed, or it is clear that they cannot be read.
    pub async fn wait_until_known(&self) {
        let mut availability = self.availability.subscribe();
        let checked = availability.wait_for(|now| *now != Availability::Unknown).await;
        // Fails only when the sender is gone, which lives as long as `self`.
        let is_watched = checked.is_ok_and(|now| *now == Availability::Watched);
        if is_watched {
            self.status.wait_until_synced().await;
        }
    }

    /// The status of the watch, if the objects can be read.
    pub fn watch_status(&self) -> Option<&Arc<WatchStatus>> {
        (*self.availability.borrow() == Availability::Watched).then_some(&self.status)
    }

    /// Watches one namespace, or all, as soon as that is possible. While it is not, logs `consequence`.
    pub async fn run(
        self: Arc<Self>,
        factory: WatchFactory,
        namespace: Option<String>,
        consequence: &'static str,
    ) {
        let namespace = namespace.as_deref();
        self.wait_until_possible(&factory, namespace, consequence).await;
        let (objects, options) = (factory.objects::<K>(namespace), WatchOptions::default());
        watch(objects, options, &self.status, |change| self.apply(change), pending()).await;
    }

    async fn wait_until_possible(
        &self,
        factory: &WatchFactory,
        namespace: Option<&str>,
        consequence: &str,
    ) {
        let mut last = None;
        while let Some(obstacle) = self.obstacle(factory, namespace).await {
            self.availability.send_replace(Availability::Unavailable);
            if last.as_ref() != Some(&obstacle) {
                let kind = K::kind(&());
                match &obstacle {
                    Obstacle::NotServed => {
                        tracing::info!("{kind}s are not served, so {consequence}");
                    }
                    Obstacle::Denied(rules) => tracing::warn!(
                        "cannot watch {kind}s, so {consequence}; RBAC rules are missing: {rules}"
                    ),
                }
            }
            last = Some(obstacle);
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        self.availability.send_replace(Availability::Watched);
    }

    /// Why the objects cannot be watched. The watch itself retries all other errors.
    async fn obstacle(&self, factory: &WatchFactory, namespace: Option<&str>) -> Option<Obstacle> {
        let rules = AccessRule::for_watch(self.group, self.status.name, namespace);
        let reviews = check_access(&factory.client, &rules).await;
        if reviews.contains(&AccessReview::Denied) {
            let rules = rules.map(|rule| rule.to_string()).join(", ");
            return Some(Obstacle::Denied(rules));
        }
        let objects: Api<K> = factory.api(namespace);
        let parameters = ListParams::default().limit(1);
        match tokio::time::timeout(LIST_TIMEOUT, objects.list_metadata(&parameters)).await {
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Some(Obstacle::NotServed),
            _ => None,
        }
    }

    fn apply(&self, change: ObjectChange<K>) {
        self.store.lock().apply_object(change, self.stored);
    }

    #[cfg(test)]
    pub fn store_list(&self, objects: impl IntoIterator<Item = K>) {
        self.availability.send_replace(Availability::Watched);
        self.apply(ObjectChange::Restart);
        objects.into_iter().for_each(|object| self.apply(ObjectChange::Applied(object)));
        self.apply(ObjectChange::Synced);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use http::{Method, Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{Client, ResourceExt as _, client::Body};
    use serde_json::json;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;

    type Names = OptionalWatch<ConfigMap, String>;

    fn names() -> Names {
        OptionalWatch::new("", "configmaps", |object: ConfigMap| object.name_any())
    }

    fn config_map(name: &str) -> ConfigMap {
        let object = json!({"metadata": {"name": name, "namespace": "n"}});
        serde_json::from_value(object).expect("a ConfigMap")
    }

    fn read(watch: &Names) -> Option<Vec<String>> {
        watch.read(|store| store.in_namespace("n").cloned().collect())
    }

    #[test]
    fn objects_are_known_once_they_are_listed_or_cannot_be_read() {
        let watch = names();
        assert_eq!((watch.are_known(), read(&watch)), (false, None), "it is not started");
        watch.availability.send_replace(Availability::Unavailable);
        assert_eq!(read(&watch), Some(Vec::new()));
        assert!(watch.watch_status().is_none());
        watch.availability.send_replace(Availability::Watched);
        watch.apply(ObjectChange::Applied(config_map("a")));
        assert_eq!((watch.are_known(), read(&watch)), (false, None), "the list is not complete");
        watch.apply(ObjectChange::Synced);
        assert_eq!((watch.are_known(), read(&watch)), (true, Some(vec!["a".to_owned()])));
        assert!(watch.watch_status().is_some());
    }

    /// A cluster in which the kind cannot be watched the first times, and has one object from then on.
    fn factory(denied: usize, not_served: usize) -> WatchFactory {
        let (reviews, lists) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let server = service_fn(move |request: Request<Body>| {
            let (code, body) = if *request.method() == Method::POST {
                // There are two reviews each time.
                let allowed = reviews.fetch_add(1, Ordering::Relaxed) >= 2 * denied;
                (201, json!({"spec": {}, "status": {"allowed": allowed}}))
            } else if lists.fetch_add(1, Ordering::Relaxed) < not_served {
                (404, json!({"kind": "Status", "status": "Failure", "code": 404}))
            } else {
                (
                    200,
                    json!({"kind": "ConfigMapList", "apiVersion": "v1",
                    "metadata": {"resourceVersion": "1"}, "items": [config_map("a")]}),
                )
            };
            let body = Body::from(body.to_string().into_bytes());
            ready(Response::builder().status(code).body(body))
        });
        WatchFactory::dedicated(Client::new(server, "default"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_not_possible_is_tried_again_every_minute() {
        for (denied, not_served) in [(0, 0), (2, 0), (0, 3), (1, 2)] {
            let (watch, started) = (names(), Instant::now());
            let (factory, failures) = (factory(denied, not_served), denied + not_served);
            let mut possible =
                pin!(watch.wait_until_possible(&factory, Some("n"), "nothing follows"));
            if failures > 0 {
                let early = tokio::time::timeout(Duration::from_secs(1), &mut possible).await;
                assert!(early.is_err() && watch.are_known(), "nothing waits for it meanwhile");
            }
            possible.await;
            assert!(!watch.are_known(), "now there may be objects");
            assert_eq!(started.elapsed(), RETRY_INTERVAL * u32::try_from(failures).expect("few"));
        }
    }
}
