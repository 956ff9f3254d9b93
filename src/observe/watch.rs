//! A watch of one kind: its changes go to a closure, in order, whatever happens to the connection.
//!
//! ```text
//!   API server ─▶ kube's watcher: resumes, lists again after a 410, waits longer each time
//!                   └▶ watch: streamed list or else pages, unreadable objects named ─▶ apply(Change), Feed
//! ```

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event, InitialListStrategy, ListSemantic, watcher},
    },
};
use serde::de::DeserializeOwned;

use super::{feed::Feed, guard::Guarded};

/// A streamed list that ends before it is complete is no error to kube, which would ask again at once and for ever.
const BETWEEN_BROKEN_LISTS: Duration = Duration::from_secs(1);

/// So many refusals in a row of a kind that says nothing about streamed lists, and they are given up all the same:
/// somebody between us and the API server may dislike them in words of his own.
const REFUSALS: u32 = 3;

/// What happened to the objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// A list begins. It may begin again before it was complete.
    Restart,
    /// An object is there, new or changed.
    Put(K),
    /// An object is there and cannot be read: what was last known of it stays. In a list it counts as seen.
    Unreadable {
        /// Where it is; empty for kinds without namespaces.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An object was deleted.
    Gone {
        /// Where it was; empty for kinds without namespaces.
        namespace: String,
        /// Its name.
        name: String,
        /// Which one of that name it was.
        uid: Option<String>,
    },
    /// The list is complete: what was neither `Put` nor `Unreadable` since `Restart` is gone.
    Complete,
}

/// Which objects, and how they are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// A field selector, such as `status.phase!=Pending`.
    pub fields: Option<String>,
    /// A label selector.
    pub labels: Option<String>,
    /// How many objects a page holds where the server does not stream lists. Without it, all come in one answer from
    /// the server's cache, and are in memory at once.
    pub page_size: Option<u32>,
}

impl Default for Options {
    fn default() -> Self {
        // The pages of client-go.
        Self { fields: None, labels: None, page_size: Some(500) }
    }
}

impl Options {
    fn config(&self, streams: bool) -> Config {
        let paged = self.page_size.is_some();
        Config {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            page_size: self.page_size,
            list_semantic: if paged { ListSemantic::MostRecent } else { ListSemantic::Any },
            initial_list_strategy: if streams {
                InitialListStrategy::StreamingList
            } else {
                InitialListStrategy::ListWatch
            },
            ..Config::default()
        }
    }
}

/// Watches until `shutdown` is ready, and never gives up before. Every object goes to `apply` without its managed
/// fields; none is kept here. The watch waits while `apply` works.
pub async fn watch<K>(
    api: Api<Guarded<K>>,
    options: Options,
    feed: &Feed,
    mut apply: impl FnMut(Change<K>) + Send,
    shutdown: impl Future<Output = ()> + Send,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut shutdown = pin!(shutdown);
    let mut streams = true;
    loop {
        let follow = follow(&api, options.config(streams), streams, feed, &mut apply);
        tokio::select! {
            biased;
            () = &mut shutdown => return,
            why = follow => {
                feed.no_longer_streams(&why);
                streams = false;
            }
        }
    }
}

/// Follows the changes. It ends only when streamed lists are refused, with the words of the server.
async fn follow<K>(
    api: &Api<Guarded<K>>,
    config: Config,
    streams: bool,
    feed: &Feed,
    apply: &mut (impl FnMut(Change<K>) + Send),
) -> String
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    // Whether a list has begun and neither ended nor failed; whether one was ever complete.
    let (mut is_listing, mut has_listed) = (false, false);
    let mut refusals = 0;
    loop {
        let Some(event) = events.next().await else {
            // kube's watcher has no end; if it had one, it would be a connection that was lost.
            return "the watch ended".to_owned();
        };
        match event {
            Ok(Event::Init) => {
                if is_listing && streams {
                    feed.fails("a streamed list ended before it was complete");
                    tokio::time::sleep(BETWEEN_BROKEN_LISTS).await;
                }
                is_listing = true;
                feed.begins();
                apply(Change::Restart);
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => put(object, feed, apply),
            Ok(Event::Delete(object)) => {
                let (namespace, name) = place(&object);
                feed.arrives(&namespace, &name);
                apply(Change::Gone { namespace, name, uid: object.uid() });
            }
            Ok(Event::InitDone) => {
                (is_listing, has_listed) = (false, true);
                feed.completes();
                apply(Change::Complete);
            }
            Err(error) => {
                let words = error_text(&error);
                feed.fails(&words);
                if streams && !has_listed {
                    match refusal(&error) {
                        Some(Refusal::OfStreaming) => return words,
                        Some(Refusal::OfSomething) => refusals += 1,
                        None => {}
                    }
                    if refusals >= REFUSALS {
                        return words;
                    }
                }
                is_listing = false;
            }
        }
    }
}

fn put<K>(object: Guarded<K>, feed: &Feed, apply: &mut (impl FnMut(Change<K>) + Send))
where
    K: Resource,
{
    let (namespace, name) = place(&object);
    match object.0 {
        Ok(mut object) => {
            feed.arrives(&namespace, &name);
            object.meta_mut().managed_fields = None;
            apply(Change::Put(object));
        }
        Err(malformed) => {
            let reason = malformed.reason;
            feed.is_unreadable(&namespace, &name, &reason);
            apply(Change::Unreadable { namespace, name, reason });
        }
    }
}

fn place<K: Resource>(object: &K) -> (String, String) {
    let metadata = object.meta();
    let text = |of: &Option<String>| of.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

enum Refusal {
    /// The server will never stream lists.
    OfStreaming,
    /// It does not answer this request, whatever the reason.
    OfSomething,
}

/// What an error says about streamed lists. Rights that are missing, a kind that does not exist yet, a version that
/// is too old and a server that is busy say nothing.
fn refusal(error: &watcher::Error) -> Option<Refusal> {
    let status = match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return None,
    };
    match status.code {
        401 | 403 | 404 | 408 | 410 | 429 => None,
        400..500 => Some(Refusal::OfStreaming),
        _ => Some(Refusal::OfSomething),
    }
}

/// One line, with the words of the server where it said something.
fn error_text(error: &watcher::Error) -> String {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    match error {
        InitialListFailed(why) => format!("the list failed: {}", super::items::words(why)),
        WatchStartFailed(why) => format!("the watch was not begun: {}", super::items::words(why)),
        WatchFailed(why) => format!("the watch broke off: {}", super::items::words(why)),
        WatchError(status) => format!("the watch was ended: {}", status.message),
        NoResourceVersion => error.to_string(),
    }
}
