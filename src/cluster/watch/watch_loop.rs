//! Runs a watch for as long as it is needed, and recovers from all errors.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{utils::Backoff as _, watcher::DefaultBackoff},
};
use serde::de::DeserializeOwned;

use super::{
    ObjectChange, WatchOptions,
    list_watch::{ListWatch, ListWatchError},
};
use crate::cluster::{
    leader::jitter,
    watch::{maybe_object::MaybeObject, status::WatchStatus},
};

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

#[derive(Clone, Debug)]
pub(super) enum WatchEvent<O> {
    Change(ObjectChange<O>),
    /// The server responded without a change: a page, or the start of a watch.
    Responded,
    /// All changes up to now have been delivered.
    Bookmark,
    Failed(String),
    /// The server refuses streamed lists, as a message.
    StreamingRefused(String),
}

impl<O> WatchEvent<O> {
    pub fn deleted(object: &O) -> Self
    where
        O: Resource,
    {
        let (namespace, name) = namespace_and_name(object);
        Self::Change(ObjectChange::Deleted { namespace, name, uid: object.uid() })
    }

    pub fn and_then<P>(self, read: impl FnOnce(O) -> ObjectChange<P>) -> WatchEvent<P> {
        match self {
            Self::Change(change) => WatchEvent::Change(change.and_then(read)),
            Self::Responded => WatchEvent::Responded,
            Self::Bookmark => WatchEvent::Bookmark,
            Self::Failed(why) => WatchEvent::Failed(why),
            Self::StreamingRefused(why) => WatchEvent::StreamingRefused(why),
        }
    }
}

/// Receives the events of a watch. The watch waits until the sink has handled each event.
pub(super) trait WatchSink<O>: Send {
    fn on_event(&mut self, event: WatchEvent<O>) -> impl Future<Output = ()> + Send;
}

/// Passes events to a closure, and updates a [`WatchStatus`].
pub(super) struct CallbackSink<'a, F> {
    status: &'a WatchStatus,
    apply: F,
}

impl<'a, F> CallbackSink<'a, F> {
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
            WatchEvent::Change(change) => {
                let change = change.and_then(|object| {
                    let (namespace, name) = namespace_and_name(&object);
                    match object.0 {
                        Ok(mut object) => {
                            status.on_event(&namespace, &name);
                            object.meta_mut().managed_fields = None;
                            ObjectChange::Applied(object)
                        }
                        Err(invalid) => {
                            let reason = invalid.reason;
                            status.on_invalid_object(&namespace, &name, &reason);
                            ObjectChange::Invalid { namespace, name, reason }
                        }
                    }
                });
                match &change {
                    ObjectChange::Restart => status.on_restart(),
                    ObjectChange::Deleted { namespace, name, .. } => {
                        status.on_event(namespace, name);
                    }
                    ObjectChange::Synced => status.on_synced(),
                    ObjectChange::Applied(_) | ObjectChange::Invalid { .. } => {}
                }
                apply(change);
            }
            WatchEvent::Responded => status.on_response(),
            WatchEvent::Bookmark => status.on_bookmark(),
            WatchEvent::Failed(why) => status.on_error(&why),
            WatchEvent::StreamingRefused(why) => status.on_streaming_refused(&why),
        }
    }
}

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
                // Random, so that the watches of a process do not list together.
                let pause = jitter::backoff(expired + 1, BASE_RELIST_PAUSE, MAX_RELIST_PAUSE);
                tokio::time::sleep(pause).await;
            }
            WatchEnd::StreamingRefused(why) => {
                sink.on_event(WatchEvent::StreamingRefused(why)).await;
                streams = false;
            }
        }
    }
}

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
            Ok(WatchEvent::Change(ObjectChange::Applied(_) | ObjectChange::Deleted { .. })
                | WatchEvent::Bookmark)
        );
        if is_change && !is_listing {
            has_delivered = true;
            pauses.reset();
        }
        match event {
            Ok(event) => {
                match event {
                    WatchEvent::Change(ObjectChange::Restart) => {
                        if is_listing && streams {
                            let why = "streamed list ended before it was complete".to_owned();
                            sink.on_event(WatchEvent::Failed(why)).await;
                            tokio::time::sleep(BROKEN_LIST_PAUSE).await;
                        }
                        is_listing = true;
                    }
                    WatchEvent::Change(ObjectChange::Synced) => {
                        (is_listing, has_listed) = (false, true);
                        pauses.reset();
                    }
                    _ => {}
                }
                sink.on_event(event).await;
            }
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

fn namespace_and_name<K: Resource>(object: &K) -> (String, String) {
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
