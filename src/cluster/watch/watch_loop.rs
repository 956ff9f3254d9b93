//! Follows the changes of a kind for as long as somebody listens, through all that can happen to a watch.

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

/// A streamed list that ends before it is complete would be asked for again at once and for ever.
const BROKEN_LIST_PAUSE: Duration = Duration::from_secs(1);

/// So many refusals in a row of a kind that says nothing about streamed lists, and they are given up all the same:
/// somebody between us and the API server may dislike them in words of his own.
const MAX_STREAMING_REFUSALS: u32 = 3;

/// The pauses before a list that is read again because the server has forgotten the changes since the last one. They grow
/// until a watch delivers something: a server whose memory is shorter than a list takes would be asked for lists only.
const BASE_RELIST_PAUSE: Duration = Duration::from_secs(2);
const MAX_RELIST_PAUSE: Duration = Duration::from_secs(30);

/// Where the backoff gives no pause.
const ERROR_PAUSE: Duration = Duration::from_secs(30);

/// What a watch has to tell.
#[derive(Clone, Debug)]
pub(super) enum WatchEvent<O> {
    /// A list begins.
    Restarted,
    /// An object is there, new or changed.
    Applied(O),
    /// An object has gone.
    Deleted { namespace: String, name: String, uid: Option<String> },
    /// The list is complete.
    Synced,
    /// The server answered, and nothing has changed yet: a page, or the start of a watch.
    Responded,
    /// Everything that has changed so far was told.
    Bookmark,
    /// Something went wrong, in these words.
    Failed(String),
    /// The server refuses streamed lists, in these words.
    StreamingRefused(String),
}

impl<O> WatchEvent<O> {
    /// The same, of objects that somebody reads otherwise.
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

/// Who is told what a watch tells. The watch waits while somebody hears.
pub(super) trait WatchSink<O>: Send {
    /// Hears the next of it.
    fn on_event(&mut self, told: WatchEvent<O>) -> impl Future<Output = ()> + Send;
}

/// Hears for one closure and one feed.
pub(super) struct CallbackSink<'a, F> {
    status: &'a WatchStatus,
    apply: F,
}

impl<'a, F> CallbackSink<'a, F> {
    /// Tells both.
    pub fn new(feed: &'a WatchStatus, apply: F) -> Self {
        feed.on_start();
        Self { status: feed, apply }
    }
}

impl<K: Resource + Send, F: FnMut(ObjectChange<K>) + Send> WatchSink<MaybeObject<K>>
    for CallbackSink<'_, F>
{
    async fn on_event(&mut self, told: WatchEvent<MaybeObject<K>>) {
        let Self { status: feed, apply } = self;
        match told {
            WatchEvent::Restarted => {
                feed.on_restart();
                apply(ObjectChange::Restart);
            }
            WatchEvent::Applied(object) => {
                let (namespace, name) = namespace_and_name(&object);
                match object.0 {
                    Ok(mut object) => {
                        feed.on_event(&namespace, &name);
                        object.meta_mut().managed_fields = None;
                        apply(ObjectChange::Applied(object));
                    }
                    Err(malformed) => {
                        let reason = malformed.reason;
                        feed.on_invalid_object(&namespace, &name, &reason);
                        apply(ObjectChange::Invalid { namespace, name, reason });
                    }
                }
            }
            WatchEvent::Deleted { namespace, name, uid } => {
                feed.on_event(&namespace, &name);
                apply(ObjectChange::Deleted { namespace, name, uid });
            }
            WatchEvent::Synced => {
                feed.on_synced();
                apply(ObjectChange::Synced);
            }
            WatchEvent::Responded => feed.on_response(),
            WatchEvent::Bookmark => feed.on_bookmark(),
            WatchEvent::Failed(why) => feed.on_error(&why),
            WatchEvent::StreamingRefused(why) => feed.on_streaming_refused(&why),
        }
    }
}

/// Follows the changes, and never gives up.
pub(super) async fn watch_forever<O>(
    api: &Api<O>,
    options: &WatchOptions,
    hears: &mut impl WatchSink<O>,
) where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (mut streams, mut expired) = (true, 0);
    loop {
        match watch_until_expired(api, options, streams, hears).await {
            WatchEnd::Expired { has_delivered } => {
                expired = if has_delivered { 0 } else { expired + 1 };
                tokio::time::sleep(relist_pause(expired)).await;
            }
            WatchEnd::StreamingRefused(why) => {
                hears.on_event(WatchEvent::StreamingRefused(why)).await;
                streams = false;
            }
        }
    }
}

/// The pause before a list after so many watches in a row that delivered nothing before the server refused to go on. Half
/// of it is chance, so that all watches of a process do not list at once.
fn relist_pause(expired: u32) -> Duration {
    let most = BASE_RELIST_PAUSE.saturating_mul(1 << expired.min(10)).min(MAX_RELIST_PAUSE);
    let chance = RandomState::new().hash_one(expired) as f64 / u64::MAX as f64;
    most.mul_f64(0.5 + chance / 2.0)
}

/// Why a watch has to begin anew.
enum WatchEnd {
    /// The server has forgotten the changes since the last one. Asking for the same changes again would never end.
    Expired {
        /// Whether the watch told of anything after its list.
        has_delivered: bool,
    },
    /// Streamed lists are refused, in these words.
    StreamingRefused(String),
}

/// Follows the changes for as long as that is possible.
async fn watch_until_expired<O>(
    api: &Api<O>,
    options: &WatchOptions,
    streams: bool,
    hears: &mut impl WatchSink<O>,
) -> WatchEnd
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut requests = ListWatch::new(api, options, streams);
    let mut pauses = DefaultBackoff::default();
    // Whether a list has begun and neither ended nor failed; whether one was ever complete.
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
                    let why = "a streamed list ended before it was complete".to_owned();
                    hears.on_event(WatchEvent::Failed(why)).await;
                    tokio::time::sleep(BROKEN_LIST_PAUSE).await;
                }
                is_listing = true;
                hears.on_event(WatchEvent::Restarted).await;
            }
            Ok(ListWatchEvent::Object(object)) => hears.on_event(WatchEvent::Applied(object)).await,
            Ok(ListWatchEvent::Deleted(object)) => {
                let (namespace, name) = namespace_and_name(&object);
                hears.on_event(WatchEvent::Deleted { namespace, name, uid: object.uid() }).await;
            }
            Ok(ListWatchEvent::Synced) => {
                (is_listing, has_listed) = (false, true);
                pauses.reset();
                hears.on_event(WatchEvent::Synced).await;
            }
            Ok(ListWatchEvent::Page | ListWatchEvent::WatchStarted) => {
                hears.on_event(WatchEvent::Responded).await;
            }
            Ok(ListWatchEvent::Bookmark) => hears.on_event(WatchEvent::Bookmark).await,
            Err(failure) => {
                let words = failure.to_string();
                hears.on_event(WatchEvent::Failed(words.clone())).await;
                is_listing = false;
                if failure.is_expired() && has_listed {
                    return WatchEnd::Expired { has_delivered };
                }
                if streams && !has_listed {
                    match streaming_refusal(&failure) {
                        Some(StreamingRefusal::Permanent) => {
                            return WatchEnd::StreamingRefused(words);
                        }
                        Some(StreamingRefusal::Unclear) => refusals += 1,
                        None => {}
                    }
                    if refusals >= MAX_STREAMING_REFUSALS {
                        return WatchEnd::StreamingRefused(words);
                    }
                }
                tokio::time::sleep(pauses.next().unwrap_or(ERROR_PAUSE)).await;
            }
        }
    }
}

pub(super) fn namespace_and_name<K: Resource>(object: &K) -> (String, String) {
    let metadata = object.meta();
    let text = |of: &Option<String>| of.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}

enum StreamingRefusal {
    /// The server will never stream lists.
    Permanent,
    /// It does not answer this request, whatever the reason.
    Unclear,
}

/// What an error says about streamed lists. Rights that are missing, a kind that does not exist yet, a version that
/// is too old and a server that is busy say nothing.
fn streaming_refusal(failure: &ListWatchError) -> Option<StreamingRefusal> {
    match failure.watch_refusal()?.code {
        401 | 403 | 404 | 408 | 410 | 429 => None,
        400..500 => Some(StreamingRefusal::Permanent),
        _ => Some(StreamingRefusal::Unclear),
    }
}
