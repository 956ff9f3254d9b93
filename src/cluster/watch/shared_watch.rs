//! One watch for all roles of a process that need objects of a kind: the server sends each change once, and every role reads
//! from its text what it keeps.

use std::{
    collections::HashMap,
    fmt::{self, Debug},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{
    WatchOptions,
    field_selector::FieldFilter,
    raw_object::{ObjectHead, RawObject},
    watch_loop::{WatchEvent, WatchSink, watch_forever},
};
use crate::cluster::watch::maybe_object::MaybeObject;

/// So many changes may wait for a role. The watch waits for the slowest.
const SUBSCRIBER_BUFFER: usize = 8;
/// Roles start together: a list for all of them in place of one for each.
const STARTUP_DELAY: Duration = Duration::from_millis(50);

/// Somebody who listens, by whatever was told.
type Subscriber = mpsc::Sender<WatchEvent<Arc<str>>>;

/// The watches that run, by what they watch.
#[derive(Default)]
struct SharedWatches(Mutex<HashMap<String, mpsc::UnboundedSender<Subscriber>>>);

/// Where a role reads the cluster: with watches of its own, or with those of the process.
#[derive(Clone)]
pub struct WatchFactory {
    client: Client,
    shared_watches: Option<Arc<SharedWatches>>,
}

impl Debug for WatchFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("shares", &self.shared_watches.is_some())
            .finish_non_exhaustive()
    }
}

impl WatchFactory {
    /// For a role that is alone in its process.
    pub const fn dedicated(client: Client) -> Self {
        Self { client, shared_watches: None }
    }

    /// For all roles of a process: what several of them watch is watched once.
    pub fn shared(client: Client) -> Self {
        Self { client, shared_watches: Some(Arc::default()) }
    }

    /// All objects of one namespace, or of the cluster.
    pub fn objects<K>(&self, only: Option<&str>) -> WatchSource<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
    {
        let api: Api<MaybeObject<K>> = self.api(only);
        let line = self.shared_watches.as_ref().map(|lines| {
            let texts: Api<RawObject<K>> = self.api(only);
            SharedWatch {
                watches: Arc::clone(lines),
                resource_url: api.resource_url().to_owned(),
                start: Box::new(move |ears| Box::pin(broadcast(texts, ears))),
            }
        });
        WatchSource { api, shared_watch: line }
    }

    fn api<O>(&self, only: Option<&str>) -> Api<O>
    where
        O: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        match only {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

/// Objects that can be watched.
pub struct WatchSource<K> {
    pub(super) api: Api<MaybeObject<K>>,
    pub(super) shared_watch: Option<SharedWatch>,
}

impl<K> Debug for WatchSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("api", &self.api).finish_non_exhaustive()
    }
}

impl<K> From<Api<MaybeObject<K>>> for WatchSource<K> {
    fn from(api: Api<MaybeObject<K>>) -> Self {
        Self { api, shared_watch: None }
    }
}

type StartWatch =
    Box<dyn FnOnce(mpsc::UnboundedReceiver<Subscriber>) -> BoxFuture<'static, ()> + Send>;

/// A watch that others may listen to as well.
pub(super) struct SharedWatch {
    watches: Arc<SharedWatches>,
    resource_url: String,
    /// Runs it, where nobody does yet.
    start: StartWatch,
}

impl SharedWatch {
    /// What an own watch would be asked for and this one is not; `None` where only the server can tell.
    pub fn client_side_filter(options: &WatchOptions) -> Option<FieldFilter> {
        match options.label_selector {
            Some(_) => None,
            None => FieldFilter::parse(options.field_selector.as_deref()),
        }
    }

    /// Listens until dropped.
    pub async fn subscribe<K>(self, filter: FieldFilter, hears: &mut impl WatchSink<MaybeObject<K>>)
    where
        K: DeserializeOwned,
    {
        let (ear, mut told) = mpsc::channel(SUBSCRIBER_BUFFER);
        self.join(ear);
        let mut is_listing = false;
        while let Some(told) = told.recv().await {
            match &told {
                WatchEvent::Restarted => is_listing = true,
                WatchEvent::Synced => is_listing = false,
                // What a list lacks is gone when the list is complete.
                WatchEvent::Applied(text) if is_listing && !filter.matches(text) => continue,
                _ => {}
            }
            hears.on_event(told.map_object(|text| parse_event(&text, &filter))).await;
        }
    }

    fn join(self, mut ear: Subscriber) {
        let Self { watches: lines, resource_url: of, start: begin } = self;
        let mut running = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = running.get(&of) {
            match line.send(ear) {
                Ok(()) => return,
                // What ran it is no more.
                Err(mpsc::error::SendError(own)) => ear = own,
            }
        }
        let (line, ears) = mpsc::unbounded_channel();
        // Its other end is right here.
        let _ = line.send(ear);
        running.insert(of, line);
        tokio::spawn(begin(ears));
    }
}

/// An object as a role keeps it, or that it is none of those that it watches.
fn parse_event<K: DeserializeOwned>(
    text: &str,
    filter: &FieldFilter,
) -> WatchEvent<MaybeObject<K>> {
    let is_wanted = filter.matches(text);
    let read = if is_wanted {
        serde_json::from_str(text).map(WatchEvent::Applied)
    } else {
        serde_json::from_str(text).map(|ObjectHead { metadata }| {
            let ObjectMeta { namespace, name, uid, .. } = metadata;
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            WatchEvent::Deleted { namespace, name, uid }
        })
    };
    read.unwrap_or_else(|why| WatchEvent::Failed(why.to_string()))
}

/// Tells everybody who listens, in turn. Who comes later is told from the beginning, and so are the others then.
async fn broadcast<K>(api: Api<RawObject<K>>, mut joins: mpsc::UnboundedReceiver<Subscriber>)
where
    K: Resource<DynamicType = ()> + 'static,
{
    let mut ears: Vec<Subscriber> = Vec::new();
    loop {
        ears.retain(|ear| !ear.is_closed());
        if ears.is_empty() {
            let Some(first) = joins.recv().await else { return };
            ears.push(first);
        }
        tokio::time::sleep(STARTUP_DELAY).await;
        while let Ok(ear) = joins.try_recv() {
            ears.push(ear);
        }
        let mut all = BroadcastSink(ears.clone());
        let options = WatchOptions::default();
        let deaf = async {
            join_all(ears.iter().map(mpsc::Sender::closed)).await;
        };
        let joined = tokio::select! {
            () = watch_forever(&api, &options, &mut all) => return,
            () = deaf => continue,
            joined = joins.recv() => joined,
        };
        let Some(joined) = joined else { return };
        ears.push(joined);
    }
}

struct BroadcastSink(Vec<Subscriber>);

impl<K: 'static> WatchSink<RawObject<K>> for BroadcastSink {
    async fn on_event(&mut self, told: WatchEvent<RawObject<K>>) {
        let told = told.map_object(|object| WatchEvent::Applied(Arc::clone(object.json())));
        for ear in &self.0 {
            // Who has gone needs to hear nothing.
            let _ = ear.send(told.clone()).await;
        }
    }
}
