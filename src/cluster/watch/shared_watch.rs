//! One watch for all controllers of a process that need the same kind: the server sends each change once, and every
//! subscriber decodes the fields that it needs.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{
    ObjectChange, WatchOptions,
    field_selector::FieldFilter,
    raw_object::{ObjectHead, RawObject},
    watch_loop::{WatchEvent, WatchSink, watch_forever},
};
use crate::cluster::watch::maybe_object::MaybeObject;

/// The number of changes that may wait for a subscriber. The watch waits for the slowest one.
const SUBSCRIBER_BUFFER: usize = 8;
/// Controllers start together: waiting briefly gets them one list instead of one each.
const STARTUP_DELAY: Duration = Duration::from_millis(50);

type Subscriber = mpsc::Sender<WatchEvent<Arc<str>>>;

/// The running watches, by the URL of the resource.
#[derive(Default)]
struct SharedWatches(Mutex<HashMap<String, mpsc::UnboundedSender<Subscriber>>>);

/// Creates watches: dedicated ones, or shared ones of the process.
#[derive(Clone)]
pub struct WatchFactory {
    pub client: Client,
    shared_watches: Option<Arc<SharedWatches>>,
}

impl WatchFactory {
    /// For a controller that is alone in its process.
    pub const fn dedicated(client: Client) -> Self {
        Self { client, shared_watches: None }
    }

    /// For all controllers of a process: a kind that several of them watch is watched once.
    pub fn shared(client: Client) -> Self {
        Self { client, shared_watches: Some(Arc::default()) }
    }

    pub fn objects<K>(&self, namespace: Option<&str>) -> WatchSource<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
    {
        let api: Api<MaybeObject<K>> = self.api(namespace);
        let shared_watch = self.shared_watches.as_ref().map(|watches| {
            let raw_api: Api<RawObject<K>> = self.api(namespace);
            SharedWatch {
                watches: Arc::clone(watches),
                resource_url: api.resource_url().to_owned(),
                start: Box::new(move |subscribers| Box::pin(broadcast(raw_api, subscribers))),
            }
        });
        WatchSource { api, shared_watch }
    }

    pub(crate) fn api<O>(&self, namespace: Option<&str>) -> Api<O>
    where
        O: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

pub struct WatchSource<K> {
    pub(super) api: Api<MaybeObject<K>>,
    pub(super) shared_watch: Option<SharedWatch>,
}

impl<K> From<Api<MaybeObject<K>>> for WatchSource<K> {
    fn from(api: Api<MaybeObject<K>>) -> Self {
        Self { api, shared_watch: None }
    }
}

type StartWatch =
    Box<dyn FnOnce(mpsc::UnboundedReceiver<Subscriber>) -> BoxFuture<'static, ()> + Send>;

pub(super) struct SharedWatch {
    watches: Arc<SharedWatches>,
    resource_url: String,
    /// Starts the watch, if it is not running.
    start: StartWatch,
}

impl SharedWatch {
    /// Receives events until dropped.
    pub async fn subscribe<K>(self, filter: FieldFilter, sink: &mut impl WatchSink<MaybeObject<K>>)
    where
        K: DeserializeOwned,
    {
        let (subscriber, mut events) = mpsc::channel(SUBSCRIBER_BUFFER);
        self.join(subscriber);
        let mut is_listing = false;
        while let Some(event) = events.recv().await {
            match &event {
                WatchEvent::Change(ObjectChange::Restart) => is_listing = true,
                WatchEvent::Change(ObjectChange::Synced) => is_listing = false,
                // Objects that a list does not contain are gone when it completes.
                WatchEvent::Change(ObjectChange::Applied(text))
                    if is_listing && !filter.matches(text) =>
                {
                    continue;
                }
                _ => {}
            }
            sink.on_event(event.and_then(|text| read_change(&text, &filter))).await;
        }
    }

    fn join(self, mut subscriber: Subscriber) {
        let Self { watches, resource_url, start } = self;
        let mut running = watches.0.lock();
        if let Some(joins) = running.get(&resource_url) {
            match joins.send(subscriber) {
                Ok(()) => return,
                // The task that ran the watch has ended.
                Err(mpsc::error::SendError(rejected)) => subscriber = rejected,
            }
        }
        let (joins, subscribers) = mpsc::unbounded_channel();
        // The receiver is still in scope, so this cannot fail.
        let _ = joins.send(subscriber);
        running.insert(resource_url, joins);
        tokio::spawn(start(subscribers));
    }
}

/// Decodes an object for a subscriber, or reports it as deleted if the filter does not match.
fn read_change<K: DeserializeOwned>(
    text: &str,
    filter: &FieldFilter,
) -> ObjectChange<MaybeObject<K>> {
    let is_match = filter.matches(text);
    let change = if is_match {
        serde_json::from_str(text).map(ObjectChange::Applied)
    } else {
        serde_json::from_str(text).map(|ObjectHead { metadata }| {
            let ObjectMeta { namespace, name, uid, .. } = metadata;
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            ObjectChange::Deleted { namespace, name, uid }
        })
    };
    // Does not fail: the watch has decoded the metadata before.
    change.unwrap_or_else(|why| {
        let (namespace, name) = Default::default();
        ObjectChange::Invalid { namespace, name, reason: why.to_string() }
    })
}

/// Sends every event to all subscribers. When one joins later, the list starts over for all of them.
async fn broadcast<K>(api: Api<RawObject<K>>, mut joins: mpsc::UnboundedReceiver<Subscriber>)
where
    K: Resource<DynamicType = ()> + 'static,
{
    let mut subscribers: Vec<Subscriber> = Vec::new();
    loop {
        subscribers.retain(|subscriber| !subscriber.is_closed());
        if subscribers.is_empty() {
            let Some(first) = joins.recv().await else { return };
            subscribers.push(first);
        }
        tokio::time::sleep(STARTUP_DELAY).await;
        while let Ok(subscriber) = joins.try_recv() {
            subscribers.push(subscriber);
        }
        let mut sink = BroadcastSink(subscribers.clone());
        let options = WatchOptions::default();
        let all_closed = async {
            join_all(subscribers.iter().map(mpsc::Sender::closed)).await;
        };
        let joined = tokio::select! {
            () = watch_forever(&api, &options, &mut sink) => return,
            () = all_closed => continue,
            joined = joins.recv() => joined,
        };
        let Some(joined) = joined else { return };
        subscribers.push(joined);
    }
}

struct BroadcastSink(Vec<Subscriber>);

impl<K: 'static> WatchSink<RawObject<K>> for BroadcastSink {
    async fn on_event(&mut self, event: WatchEvent<RawObject<K>>) {
        let event = event.and_then(|object| ObjectChange::Applied(object.json));
        for subscriber in &self.0 {
            // A subscriber that is gone is ignored.
            let _ = subscriber.send(event.clone()).await;
        }
    }
}
