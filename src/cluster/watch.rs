//! A watch of one kind: passes changes to a closure, in order, and reconnects when the connection fails.
//!
//! ```text
//!   API server ─▶ list_watch: list, watch and resume requests, each with a time limit
//!                   └▶ watch_loop: streamed or paged list, relist after a 410, exponential backoff ─▶ WatchSink
//!                        ├▶ one controller per process: CallbackSink ─▶ apply(ObjectChange), WatchStatus
//!                        └▶ several in one process: shared_watch, raw JSON of each object ─▶ CallbackSink of each
//! ```

mod field_selector;
mod list_watch;
pub(crate) mod maybe_object;
pub(crate) mod partial_objects;
mod raw_object;
mod shared_watch;
pub mod status;
mod watch_loop;

use std::{fmt::Debug, pin::pin};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::de::DeserializeOwned;

use self::{
    field_selector::FieldFilter,
    watch_loop::{CallbackSink, watch_forever},
};
pub use self::{
    partial_objects::{PartialNode, PartialPod},
    shared_watch::{WatchFactory, WatchSource},
};
use crate::cluster::watch::status::WatchStatus;

#[derive(Clone, Debug, PartialEq)]
pub enum ObjectChange<K> {
    /// A list begins. A list that was interrupted begins again.
    Restart,
    /// An object was listed, created or changed.
    Applied(K),
    /// An object exists but cannot be decoded: keep its last known state. In a list it counts as present.
    Invalid {
        /// Its namespace; empty for cluster-scoped kinds.
        namespace: String,
        name: String,
        reason: String,
    },
    Deleted {
        /// Its namespace; empty for cluster-scoped kinds.
        namespace: String,
        name: String,
        uid: Option<String>,
    },
    /// The list is complete: objects that were neither `Applied` nor `Invalid` since `Restart` are gone.
    Synced,
}

impl<K> ObjectChange<K> {
    pub fn map<T>(self, convert: impl FnOnce(K) -> T) -> ObjectChange<T> {
        self.and_then(|object| ObjectChange::Applied(convert(object)))
    }

    pub fn and_then<T>(self, read: impl FnOnce(K) -> ObjectChange<T>) -> ObjectChange<T> {
        match self {
            Self::Restart => ObjectChange::Restart,
            Self::Applied(object) => read(object),
            Self::Invalid { namespace, name, reason } => {
                ObjectChange::Invalid { namespace, name, reason }
            }
            Self::Deleted { namespace, name, uid } => {
                ObjectChange::Deleted { namespace, name, uid }
            }
            Self::Synced => ObjectChange::Synced,
        }
    }
}

pub trait WatchableObject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<K> WatchableObject for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static
{
}

/// Selects the objects, and how they are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// A field selector, such as `status.phase!=Pending`.
    pub field_selector: Option<String>,
    /// Page size of a list where the server does not stream lists.
    pub page_size: u32,
}

impl Default for WatchOptions {
    fn default() -> Self {
        // The page size of client-go.
        Self { field_selector: None, page_size: 500 }
    }
}

/// Watches until `shutdown` is ready, and retries every error. Passes each object to `apply` without its managed fields;
/// stores nothing. The watch waits while `apply` runs.
pub async fn watch<K>(
    objects: impl Into<WatchSource<K>>,
    options: WatchOptions,
    status: &WatchStatus,
    apply: impl FnMut(ObjectChange<K>) + Send,
    shutdown: impl Future<Output = ()> + Send,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let objects = objects.into();
    let mut sink = CallbackSink::new(status, apply);
    let mut shutdown = pin!(shutdown);
    let watching = async {
        match objects.shared_watch.zip(FieldFilter::parse(options.field_selector.as_deref())) {
            Some((shared, filter)) => shared.subscribe(filter, &mut sink).await,
            None => watch_forever(&objects.api, &options, &mut sink).await,
        }
    };
    tokio::select! {
        biased;
        () = &mut shutdown => {}
        () = watching => {}
    }
}
