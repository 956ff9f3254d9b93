//! Follows the changes of a kind for as long as somebody listens, through all that can happen to a watch.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt as _;
use kube::{
    Api, Resource, ResourceExt as _,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use super::{
    super::{feed::Feed, guard::Guarded},
    Change, Options,
};

/// A streamed list that ends before it is complete is no error to kube, which would ask again at once and for ever.
const BETWEEN_BROKEN_LISTS: Duration = Duration::from_secs(1);

/// So many refusals in a row of a kind that says nothing about streamed lists, and they are given up all the same:
/// somebody between us and the API server may dislike them in words of his own.
const REFUSALS: u32 = 3;

/// What a watch has to tell.
#[derive(Clone, Debug)]
pub(super) enum Told<O> {
    /// A list begins.
    Begins,
    /// An object is there, new or changed.
    There(O),
    /// An object has gone.
    Gone { namespace: String, name: String, uid: Option<String> },
    /// The list is complete.
    Completes,
    /// Something went wrong, in these words.
    Fails(String),
    /// The server refuses streamed lists, in these words.
    NoStreams(String),
}

impl<O> Told<O> {
    /// The same, of objects that somebody reads otherwise.
    pub fn read<P>(self, read: impl FnOnce(O) -> Told<P>) -> Told<P> {
        match self {
            Self::There(object) => read(object),
            Self::Begins => Told::Begins,
            Self::Gone { namespace, name, uid } => Told::Gone { namespace, name, uid },
            Self::Completes => Told::Completes,
            Self::Fails(why) => Told::Fails(why),
            Self::NoStreams(why) => Told::NoStreams(why),
        }
    }
}

/// Who is told what a watch tells. The watch waits while somebody hears.
pub(super) trait Hears<O>: Send {
    /// Hears the next of it.
    fn hear(&mut self, told: Told<O>) -> impl Future<Output = ()> + Send;
}

/// Hears for one closure and one feed.
pub(super) struct Direct<'a, F> {
    feed: &'a Feed,
    apply: F,
}

impl<'a, F> Direct<'a, F> {
    /// Tells both.
    pub fn new(feed: &'a Feed, apply: F) -> Self {
        Self { feed, apply }
    }
}

impl<K: Resource + Send, F: FnMut(Change<K>) + Send> Hears<Guarded<K>> for Direct<'_, F> {
    async fn hear(&mut self, told: Told<Guarded<K>>) {
        let Self { feed, apply } = self;
        match told {
            Told::Begins => {
                feed.begins();
                apply(Change::Restart);
            }
            Told::There(object) => {
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
            Told::Gone { namespace, name, uid } => {
                feed.arrives(&namespace, &name);
                apply(Change::Gone { namespace, name, uid });
            }
            Told::Completes => {
                feed.completes();
                apply(Change::Complete);
            }
            Told::Fails(why) => feed.fails(&why),
            Told::NoStreams(why) => feed.no_longer_streams(&why),
        }
    }
}

/// Follows the changes, and never gives up.
pub(super) async fn follow_on<O>(api: &Api<O>, options: &Options, hears: &mut impl Hears<O>)
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut streams = true;
    loop {
        match follow(api, options.config(streams), streams, hears).await {
            End::Expired => {}
            End::NoStreams(why) => {
                hears.hear(Told::NoStreams(why)).await;
                streams = false;
            }
        }
    }
}

/// Why a watch has to begin anew.
enum End {
    /// The server has forgotten the changes since the last one, and says so before the watch begins. kube would ask for
    /// the same changes again and again.
    Expired,
    /// Streamed lists are refused, in these words.
    NoStreams(String),
}

/// Follows the changes for as long as that is possible.
async fn follow<O>(api: &Api<O>, config: Config, streams: bool, hears: &mut impl Hears<O>) -> End
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    // Whether a list has begun and neither ended nor failed; whether one was ever complete.
    let (mut is_listing, mut has_listed) = (false, false);
    let mut refusals = 0;
    loop {
        let Some(event) = events.next().await else {
            // kube's watcher has no end; if it had one, it would be a connection that was lost.
            return End::Expired;
        };
        match event {
            Ok(Event::Init) => {
                if is_listing && streams {
                    let why = "a streamed list ended before it was complete".to_owned();
                    hears.hear(Told::Fails(why)).await;
                    tokio::time::sleep(BETWEEN_BROKEN_LISTS).await;
                }
                is_listing = true;
                hears.hear(Told::Begins).await;
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                hears.hear(Told::There(object)).await;
            }
            Ok(Event::Delete(object)) => {
                let (namespace, name) = place(&object);
                hears.hear(Told::Gone { namespace, name, uid: object.uid() }).await;
            }
            Ok(Event::InitDone) => {
                (is_listing, has_listed) = (false, true);
                hears.hear(Told::Completes).await;
            }
            Err(error) => {
                let words = error_text(&error);
                hears.hear(Told::Fails(words.clone())).await;
                is_listing = false;
                if is_expired(&error) && has_listed {
                    return End::Expired;
                }
                if streams && !has_listed {
                    match refusal(&error) {
                        Some(Refusal::OfStreaming) => return End::NoStreams(words),
                        Some(Refusal::OfSomething) => refusals += 1,
                        None => {}
                    }
                    if refusals >= REFUSALS {
                        return End::NoStreams(words);
                    }
                }
            }
        }
    }
}

pub(super) fn place<K: Resource>(object: &K) -> (String, String) {
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

/// Whether the changes that were asked for are too old.
fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

/// What an error says about streamed lists. Rights that are missing, a kind that does not exist yet, a version that
/// is too old and a server that is busy say nothing.
fn refusal(error: &watcher::Error) -> Option<Refusal> {
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::WatchFailed(kube::Error::Api(status))
    | watcher::Error::WatchError(status)) = error
    else {
        return None;
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
        InitialListFailed(why) => format!("the list failed: {}", crate::observe::items::words(why)),
        WatchStartFailed(why) => {
            format!("the watch was not begun: {}", crate::observe::items::words(why))
        }
        WatchFailed(why) => format!("the watch broke off: {}", crate::observe::items::words(why)),
        WatchError(status) => format!("the watch was ended: {}", status.message),
        NoResourceVersion => error.to_string(),
    }
}
