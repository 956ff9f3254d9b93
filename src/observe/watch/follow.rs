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
    super::{feed::Feed, guard::Guarded},
    Change, Options,
    requests::{Event, Failure, Requests},
};

/// A streamed list that ends before it is complete would be asked for again at once and for ever.
const BETWEEN_BROKEN_LISTS: Duration = Duration::from_secs(1);

/// So many refusals in a row of a kind that says nothing about streamed lists, and they are given up all the same:
/// somebody between us and the API server may dislike them in words of his own.
const REFUSALS: u32 = 3;

/// The pauses before a list that is read again because the server has forgotten the changes since the last one. They grow
/// until a watch delivers something: a server whose memory is shorter than a list takes would be asked for lists only.
const FIRST_RELIST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_RELIST_PAUSE: Duration = Duration::from_secs(30);

/// Where the backoff gives no pause.
const ERROR_PAUSE: Duration = Duration::from_secs(30);

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
    /// The server answered, and nothing has changed yet: a page, or the start of a watch.
    Answers,
    /// Everything that has changed so far was told.
    IsCurrent,
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
            Self::Answers => Told::Answers,
            Self::IsCurrent => Told::IsCurrent,
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
        feed.starts();
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
            Told::Answers => feed.answers(),
            Told::IsCurrent => feed.is_current(),
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
    let (mut streams, mut expired) = (true, 0);
    loop {
        match follow(api, options, streams, hears).await {
            End::Expired { has_delivered } => {
                expired = if has_delivered { 0 } else { expired + 1 };
                tokio::time::sleep(relist_pause(expired)).await;
            }
            End::NoStreams(why) => {
                hears.hear(Told::NoStreams(why)).await;
                streams = false;
            }
        }
    }
}

/// The pause before a list after so many watches in a row that delivered nothing before the server refused to go on. Half
/// of it is chance, so that all watches of a process do not list at once.
fn relist_pause(expired: u32) -> Duration {
    let most = FIRST_RELIST_PAUSE.saturating_mul(1 << expired.min(10)).min(LONGEST_RELIST_PAUSE);
    let chance = RandomState::new().hash_one(expired) as f64 / u64::MAX as f64;
    most.mul_f64(0.5 + chance / 2.0)
}

/// Why a watch has to begin anew.
enum End {
    /// The server has forgotten the changes since the last one. Asking for the same changes again would never end.
    Expired {
        /// Whether the watch told of anything after its list.
        has_delivered: bool,
    },
    /// Streamed lists are refused, in these words.
    NoStreams(String),
}

/// Follows the changes for as long as that is possible.
async fn follow<O>(api: &Api<O>, options: &Options, streams: bool, hears: &mut impl Hears<O>) -> End
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut requests = Requests::new(api, options, streams);
    let mut pauses = DefaultBackoff::default();
    // Whether a list has begun and neither ended nor failed; whether one was ever complete.
    let (mut is_listing, mut has_listed) = (false, false);
    let (mut has_delivered, mut refusals) = (false, 0);
    loop {
        let event = requests.next().await;
        let is_change = matches!(event, Ok(Event::Object(_) | Event::Deleted(_) | Event::Bookmark));
        if is_change && !is_listing {
            has_delivered = true;
            pauses.reset();
        }
        match event {
            Ok(Event::Restart) => {
                if is_listing && streams {
                    let why = "a streamed list ended before it was complete".to_owned();
                    hears.hear(Told::Fails(why)).await;
                    tokio::time::sleep(BETWEEN_BROKEN_LISTS).await;
                }
                is_listing = true;
                hears.hear(Told::Begins).await;
            }
            Ok(Event::Object(object)) => hears.hear(Told::There(object)).await,
            Ok(Event::Deleted(object)) => {
                let (namespace, name) = place(&object);
                hears.hear(Told::Gone { namespace, name, uid: object.uid() }).await;
            }
            Ok(Event::Synced) => {
                (is_listing, has_listed) = (false, true);
                pauses.reset();
                hears.hear(Told::Completes).await;
            }
            Ok(Event::Page | Event::WatchStarted) => hears.hear(Told::Answers).await,
            Ok(Event::Bookmark) => hears.hear(Told::IsCurrent).await,
            Err(failure) => {
                let words = failure.to_string();
                hears.hear(Told::Fails(words.clone())).await;
                is_listing = false;
                if failure.is_expired() && has_listed {
                    return End::Expired { has_delivered };
                }
                if streams && !has_listed {
                    match refusal(&failure) {
                        Some(Refusal::OfStreaming) => return End::NoStreams(words),
                        Some(Refusal::OfSomething) => refusals += 1,
                        None => {}
                    }
                    if refusals >= REFUSALS {
                        return End::NoStreams(words);
                    }
                }
                tokio::time::sleep(pauses.next().unwrap_or(ERROR_PAUSE)).await;
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

/// What an error says about streamed lists. Rights that are missing, a kind that does not exist yet, a version that
/// is too old and a server that is busy say nothing.
fn refusal(failure: &Failure) -> Option<Refusal> {
    match failure.watch_refusal()?.code {
        401 | 403 | 404 | 408 | 410 | 429 => None,
        400..500 => Some(Refusal::OfStreaming),
        _ => Some(Refusal::OfSomething),
    }
}
