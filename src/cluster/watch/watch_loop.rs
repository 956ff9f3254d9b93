//! Runs a watch for as long as it is needed, and recovers from all errors.

use std::{
    fmt::Debug,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{utils::Backoff as _, watcher::DefaultBackoff},
};
use serde::de::DeserializeOwned;

use super::{
    ObjectChange, WatchOptions,
    list_watch::{ListWatch, ListWatchError, ListWatchEvent},
};
use crate::cluster::watch::{maybe_object::MaybeObject, status::WatchStatus};

/// A streamed list that ends before it is complete would otherwise be requested again immediately, forever.
const BROKEN_LIST_PAUSE: Duration = Duration::from_secs(1);

/// After this many unclear errors in a row streaming is given up: a proxy between us and the API server may reject streamed
/// lists with an error of its own.
const MAX_STREAMING_REFUSALS: u32 = 3;

/// The pauses before a relist after the resource version has expired. They grow until a watch delivers an event: a
/// server whose history is shorter than the duration of a list would receive nothing but list requests.
const BASE_RELIST_PAUSE: Duration = Duration::from_secs(2);
const MAX_RELIST_PAUSE: Duration = Duration::from_secs(30);

/// The pause when the backoff returns none.
const ERROR_PAUSE: Duration = Duration::from_secs(30);

/// An event of a watch.
#[derive(Clone, Debug)]
pub(super) enum WatchEvent<O> {
    /// A list begins.
    Restarted,
    /// An object was listed, created or changed.
    Applied(O),
    /// An object was deleted.
    Deleted { namespace: String, name: String, uid: Option<String> },
    /// The list is complete.
    Synced,
    /// The server responded without a change: a page, or the start of a watch.
    Responded,
    /// All changes up to now have been delivered.
    Bookmark,
    /// An error, as a message.
    Failed(String),
    /// The server refuses streamed lists, as a message.
    StreamingRefused(String),
}

impl<O> WatchEvent<O> {
    /// Maps the object of the event.
    pub fn map_object<P>(self, read: impl FnOnce(O) -> WatchEvent<P>) -> WatchEvent<P> {
        match self {
            Self::Applied(object) => read(object),
            Self::Restarted => WatchEvent::Restarted,
            Self::Deleted { namespace, name, uid } => WatchEvent::Deleted { namespace, name, uid },
            Self::Synced => WatchEvent::Synced,
            Self::Responded => WatchEvent::Responded,
            Self::Bookmark => WatchEvent::Bookmark,
            Self::Failed(why) => WatchEvent::Failed(why),
            Self::StreamingRefused(why) => WatchEvent::StreamingRefused(why),
        }
    }
}

/// Receives the events of a watch. The watch waits until the sink has handled each event.
pub(super) trait WatchSink<O>: Send {
    /// Handles the next event.
    fn on_event(&mut self, event: WatchEvent<O>) -> impl Future<Output = ()> + Send;
}

/// Passes events to a closure, and updates a [`WatchStatus`].
pub(super) struct CallbackSink<'a, F> {
    status: &'a WatchStatus,
    apply: F,
}

impl<'a, F> CallbackSink<'a, F> {
    /// A sink for both.
    pub fn new(status: &'a WatchStatus, apply: F) -> Self {
        status.on_start();
        Self { status, apply }
    }
}

impl<K: Resource + Send, F: FnMut(ObjectChange<K>) + Send> WatchSink<MaybeObject<K>>
    for CallbackSink<'_, F>
{
    async fn on_event(&mut self, event: WatchEvent<MaybeObject<K>>) {
        let Self { status, apply } = self;
        match event {
            WatchEvent::Restarted => {
                status.on_restart();
                apply(ObjectChange::Restart);
            }
            WatchEvent::Applied(object) => {
                let (namespace, name) = namespace_and_name(&object);
                match object.0 {
                    Ok(mut object) => {
                        status.on_event(&namespace, &name);
                        object.meta_mut().managed_fields = None;
                        apply(ObjectChange::Applied(object));
                    }
                    Err(invalid) => {
                        let reason = invalid.reason;
                        status.on_invalid_object(&namespace, &name, &reason);
                        apply(ObjectChange::Invalid { namespace, name, reason });
                    }
                }
            }
            WatchEvent::Deleted { namespace, name, uid } => {
                status.on_event(&namespace, &name);
                apply(ObjectChange::Deleted { namespace, name, uid });
            }
            WatchEvent::Synced => {
                status.on_synced();
                apply(ObjectChange::Synced);
            }
            WatchEvent::Responded => status.on_response(),
            WatchEvent::Bookmark => status.on_bookmark(),
            WatchEvent::Failed(why) => status.on_error(&why),
            WatchEvent::StreamingRefused(why) => status.on_streaming_refused(&why),
        }
    }
}

/// Runs the watch, and retries all errors.
pub(super) async fn watch_forever<O>(
    api: &Api<O>,
    options: &WatchOptions,
    sink: &mut impl WatchSink<O>,
) where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (mut streams, mut expired) = (true, 0);
    loop {
        match watch_until_expired(api, options, streams, sink).await {
            WatchEnd::Expired { has_delivered } => {
                expired = if has_delivered { 0 } else { expired + 1 };
                tokio::time::sleep(relist_pause(expired)).await;
            }
            WatchEnd::StreamingRefused(why) => {
                sink.on_event(WatchEvent::StreamingRefused(why)).await;
                streams = false;
            }
        }
    }
}

/// The pause before a relist, after this many watches in a row that delivered nothing before their resource version expired.
/// Half of it is random, so that the watches of a process do not list together.
fn relist_pause(expired: u32) -> Duration {
    let pause = BASE_RELIST_PAUSE.saturating_mul(1 << expired.min(10)).min(MAX_RELIST_PAUSE);
    let jitter = RandomState::new().hash_one(expired) as f64 / u64::MAX as f64;
    pause.mul_f64(0.5 + jitter / 2.0)
}

/// Why a watch has to start over.
enum WatchEnd {
    /// The resource version has expired. Resuming from it would fail forever.
    Expired {
        /// Whether the watch delivered an event after its list.
        has_delivered: bool,
    },
    /// Streamed lists are refused, as a message.
    StreamingRefused(String),
}

/// Runs the watch until it has to start over.
async fn watch_until_expired<O>(
    api: &Api<O>,
    options: &WatchOptions,
    streams: bool,
    sink: &mut impl WatchSink<O>,
) -> WatchEnd
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut requests = ListWatch::new(api, options, streams);
    let mut pauses = DefaultBackoff::default();
    // Whether a list has started and neither completed nor failed; whether one has ever completed.
    let (mut is_listing, mut has_listed) = (false, false);
    let (mut has_delivered, mut refusals) = (false, 0);
    loop {
        let event = requests.next().await;
        let is_change = matches!(
            event,
            Ok(ListWatchEvent::Object(_) | ListWatchEvent::Deleted(_) | ListWatchEvent::Bookmark)
        );
        if is_change && !is_listing {
            has_delivered = true;
            pauses.reset();
        }
        match event {
            Ok(ListWatchEvent::Restart) => {
                if is_listing && streams {
                    let why = "streamed list ended before it was complete".to_owned();
                    sink.on_event(WatchEvent::Failed(why)).await;
                    tokio::time::sleep(BROKEN_LIST_PAUSE).await;
                }
                is_listing = true;
                sink.on_event(WatchEvent::Restarted).await;
            }
            Ok(ListWatchEvent::Object(object)) => sink.on_event(WatchEvent::Applied(object)).await,
            Ok(ListWatchEvent::Deleted(object)) => {
                let (namespace, name) = namespace_and_name(&object);
                sink.on_event(WatchEvent::Deleted { namespace, name, uid: object.uid() }).await;
            }
            Ok(ListWatchEvent::Synced) => {
                (is_listing, has_listed) = (false, true);
                pauses.reset();
                sink.on_event(WatchEvent::Synced).await;
            }
            Ok(ListWatchEvent::Page | ListWatchEvent::WatchStarted) => {
                sink.on_event(WatchEvent::Responded).await;
            }
            Ok(ListWatchEvent::Bookmark) => sink.on_event(WatchEvent::Bookmark).await,
            Err(failure) => {
                let message = failure.to_string();
                sink.on_event(WatchEvent::Failed(message.clone())).await;
                is_listing = false;
                if failure.is_expired() && has_listed {
                    return WatchEnd::Expired { has_delivered };
                }
                if streams && !has_listed {
                    match streaming_refusal(&failure) {
                        Some(StreamingRefusal::Permanent) => {
                            return WatchEnd::StreamingRefused(message);
                        }
                        Some(StreamingRefusal::Unclear) => refusals += 1,
                        None => {}
                    }
                    if refusals >= MAX_STREAMING_REFUSALS {
                        return WatchEnd::StreamingRefused(message);
                    }
                }
                tokio::time::sleep(pauses.next().unwrap_or(ERROR_PAUSE)).await;
            }
        }
    }
}

pub(super) fn namespace_and_name<K: Resource>(object: &K) -> (String, String) {
    let metadata = object.meta();
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

enum StreamingRefusal {
    /// The server will never stream lists.
    Permanent,
    /// The server rejects this request for an unknown reason.
    Unclear,
}

/// What an error reveals about support for streamed lists: nothing if it is missing RBAC, a missing kind, an expired
/// version or an overloaded server.
fn streaming_refusal(failure: &ListWatchError) -> Option<StreamingRefusal> {
    match failure.watch_refusal()?.code {
        401 | 403 | 404 | 408 | 410 | 429 => None,
        400..500 => Some(StreamingRefusal::Permanent),
        _ => Some(StreamingRefusal::Unclear),
    }
}
