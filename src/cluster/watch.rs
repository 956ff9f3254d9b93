//! A watch of one kind: its changes go to a closure, in order, whatever happens to the connection.
//!
//! ```text
//!   API server ─▶ requests: list, watch, resume, each with a time limit
//!                   └▶ follow: streamed list or else pages, lists again after a 410, waits longer each time ─▶ Hears
//!                        ├▶ one role alone: Direct ─▶ apply(Change), Feed
//!                        └▶ several in one process: shared, the text of each object ─▶ Direct of each
//! ```

mod field_selector;
mod list_watch;
pub mod maybe_object;
pub mod partial_objects;
mod raw_object;
mod shared_watch;
pub mod status;
mod watch_loop;

use std::{fmt::Debug, pin::pin};

use kube::Resource;
use serde::de::DeserializeOwned;

pub use self::shared_watch::{WatchFactory, WatchSource};
use self::{
    shared_watch::SharedWatch,
    watch_loop::{CallbackSink, watch_forever},
};
use crate::cluster::watch::status::WatchStatus;

/// What happened to the objects of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange<K> {
    /// A list begins. It may begin again before it was complete.
    Restart,
    /// An object is there, new or changed.
    Applied(K),
    /// An object is there and cannot be read: what was last known of it stays. In a list it counts as seen.
    Invalid {
        /// Where it is; empty for kinds without namespaces.
        namespace: String,
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An object was deleted.
    Deleted {
        /// Where it was; empty for kinds without namespaces.
        namespace: String,
        /// Its name.
        name: String,
        /// Which one of that name it was.
        uid: Option<String>,
    },
    /// The list is complete: what was neither `Put` nor `Unreadable` since `Restart` is gone.
    Synced,
}

/// Which objects, and how they are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// A field selector, such as `status.phase!=Pending`.
    pub field_selector: Option<String>,
    /// A label selector.
    pub label_selector: Option<String>,
    /// How many objects a page holds where the server does not stream lists. Without it, all come in one answer from
    /// the server's cache, and are in memory at once.
    pub page_size: Option<u32>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        // The pages of client-go.
        Self { field_selector: None, label_selector: None, page_size: Some(500) }
    }
}

/// Watches until `shutdown` is ready, and never gives up before. Every object goes to `apply` without its managed
/// fields; none is kept here. The watch waits while `apply` works.
pub async fn watch<K>(
    objects: impl Into<WatchSource<K>>,
    options: WatchOptions,
    feed: &WatchStatus,
    apply: impl FnMut(ObjectChange<K>) + Send,
    shutdown: impl Future<Output = ()> + Send,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let objects = objects.into();
    let mut direct = CallbackSink::new(feed, apply);
    let mut shutdown = pin!(shutdown);
    let watching = async {
        match objects.shared_watch.zip(SharedWatch::client_side_filter(&options)) {
            Some((line, filter)) => line.subscribe(filter, &mut direct).await,
            None => watch_forever(&objects.api, &options, &mut direct).await,
        }
    };
    tokio::select! {
        biased;
        () = &mut shutdown => {}
        () = watching => {}
    }
}
