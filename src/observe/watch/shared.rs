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
    super::guard::Guarded,
    Options,
    fields::Filter,
    follow::{Hears, Told, follow_on},
    text::{Head, Text},
};

/// So many changes may wait for a role. The watch waits for the slowest.
const AHEAD: usize = 8;
/// Roles start together: a list for all of them in place of one for each.
const GATHER: Duration = Duration::from_millis(50);

/// Somebody who listens, by whatever was told.
type Ear = mpsc::Sender<Told<Arc<str>>>;

/// The watches that run, by what they watch.
#[derive(Default)]
struct Lines(Mutex<HashMap<String, mpsc::UnboundedSender<Ear>>>);

/// Where a role reads the cluster: with watches of its own, or with those of the process.
#[derive(Clone)]
pub struct Reader {
    client: Client,
    lines: Option<Arc<Lines>>,
}

impl Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("shares", &self.lines.is_some()).finish_non_exhaustive()
    }
}

impl Reader {
    /// For a role that is alone in its process.
    pub const fn alone(client: Client) -> Self {
        Self { client, lines: None }
    }

    /// For all roles of a process: what several of them watch is watched once.
    pub fn together(client: Client) -> Self {
        Self { client, lines: Some(Arc::default()) }
    }

    /// All objects of one namespace, or of the cluster.
    pub fn objects<K>(&self, only: Option<&str>) -> Objects<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
    {
        let api: Api<Guarded<K>> = self.api(only);
        let line = self.lines.as_ref().map(|lines| {
            let texts: Api<Text<K>> = self.api(only);
            Line {
                lines: Arc::clone(lines),
                of: api.resource_url().to_owned(),
                begin: Box::new(move |ears| Box::pin(tell_all(texts, ears))),
            }
        });
        Objects { api, line }
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
pub struct Objects<K> {
    pub(super) api: Api<Guarded<K>>,
    pub(super) line: Option<Line>,
}

impl<K> Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("api", &self.api).finish_non_exhaustive()
    }
}

impl<K> From<Api<Guarded<K>>> for Objects<K> {
    fn from(api: Api<Guarded<K>>) -> Self {
        Self { api, line: None }
    }
}

type Begin = Box<dyn FnOnce(mpsc::UnboundedReceiver<Ear>) -> BoxFuture<'static, ()> + Send>;

/// A watch that others may listen to as well.
pub(super) struct Line {
    lines: Arc<Lines>,
    of: String,
    /// Runs it, where nobody does yet.
    begin: Begin,
}

impl Line {
    /// What an own watch would be asked for and this one is not; `None` where only the server can tell.
    pub fn filter(options: &Options) -> Option<Filter> {
        match options.labels {
            Some(_) => None,
            None => Filter::read(options.fields.as_deref()),
        }
    }

    /// Listens until dropped.
    pub async fn listen<K>(self, filter: Filter, hears: &mut impl Hears<Guarded<K>>)
    where
        K: DeserializeOwned,
    {
        let (ear, mut told) = mpsc::channel(AHEAD);
        self.join(ear);
        let mut is_listing = false;
        while let Some(told) = told.recv().await {
            match &told {
                Told::Begins => is_listing = true,
                Told::Completes => is_listing = false,
                // What a list lacks is gone when the list is complete.
                Told::There(text) if is_listing && !filter.lets(text) => continue,
                _ => {}
            }
            hears.hear(told.read(|text| read(&text, &filter))).await;
        }
    }

    fn join(self, mut ear: Ear) {
        let Self { lines, of, begin } = self;
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
fn read<K: DeserializeOwned>(text: &str, filter: &Filter) -> Told<Guarded<K>> {
    let is_wanted = filter.lets(text);
    let read = if is_wanted {
        serde_json::from_str(text).map(Told::There)
    } else {
        serde_json::from_str(text).map(|Head { metadata }| {
            let ObjectMeta { namespace, name, uid, .. } = metadata;
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            Told::Gone { namespace, name, uid }
        })
    };
    read.unwrap_or_else(|why| Told::Fails(why.to_string()))
}

/// Tells everybody who listens, in turn. Who comes later is told from the beginning, and so are the others then.
async fn tell_all<K>(api: Api<Text<K>>, mut joins: mpsc::UnboundedReceiver<Ear>)
where
    K: Resource<DynamicType = ()> + 'static,
{
    let mut ears: Vec<Ear> = Vec::new();
    loop {
        ears.retain(|ear| !ear.is_closed());
        if ears.is_empty() {
            let Some(first) = joins.recv().await else { return };
            ears.push(first);
        }
        tokio::time::sleep(GATHER).await;
        while let Ok(ear) = joins.try_recv() {
            ears.push(ear);
        }
        let mut all = All(ears.clone());
        let options = Options::default();
        let deaf = async {
            join_all(ears.iter().map(mpsc::Sender::closed)).await;
        };
        let joined = tokio::select! {
            () = follow_on(&api, &options, &mut all) => return,
            () = deaf => continue,
            joined = joins.recv() => joined,
        };
        let Some(joined) = joined else { return };
        ears.push(joined);
    }
}

struct All(Vec<Ear>);

impl<K: 'static> Hears<Text<K>> for All {
    async fn hear(&mut self, told: Told<Text<K>>) {
        let told = told.read(|object| Told::There(Arc::clone(object.text())));
        for ear in &self.0 {
            // Who has gone needs to hear nothing.
            let _ = ear.send(told.clone()).await;
        }
    }
}
