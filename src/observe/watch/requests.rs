//! The list and watch requests for one kind, as kube's watcher makes them, but each with a time limit: an API server that
//! dies without closing its connections never answers, and nothing else would end the wait.

use std::{collections::VecDeque, fmt::Debug, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, VersionMatch, WatchEvent, WatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Options;
use crate::observe::items::words;

/// How long one page of a list, or the start of a watch, may take. The API server ends a list itself after a minute.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// How long the API server is asked to keep a watch open. kube refuses 295 seconds and more.
const WATCH_SECONDS: u32 = 290;
/// A watch without an event, a bookmark or an end for so long has lost its connection: the server would have ended it.
const IDLE_LIMIT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// Marks the bookmark after the last object of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What the API server sent.
#[derive(Debug)]
pub(super) enum Event<O> {
    /// A list begins.
    Restart,
    /// An object of the list, or one that was created or changed.
    Object(O),
    /// An object was deleted.
    Deleted(O),
    /// A page of a list arrived.
    Page,
    /// The list is complete.
    Synced,
    /// The server accepted a watch.
    WatchStarted,
    /// The watch has delivered all changes up to now.
    Bookmark,
}

/// Why a request failed. The next call of [`Requests::next`] tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the list failed: {}", words(.0))]
    List(kube::Error),
    #[error("the watch was not begun: {}", words(.0))]
    Start(kube::Error),
    #[error("the watch broke off: {}", words(.0))]
    Stream(kube::Error),
    #[error("the watch was ended: {}", .0.message)]
    Ended(Box<Status>),
    #[error("the server sent an object or a list without a resourceVersion")]
    NoResourceVersion,
    #[error(
        "no answer to the {request} within {limit:?}: the API server or the way to it may be down"
    )]
    NoAnswer { request: &'static str, limit: Duration },
}

impl Failure {
    /// Whether the changes that were asked for are no longer known to the server.
    pub fn is_expired(&self) -> bool {
        match self {
            Self::Start(kube::Error::Api(status)) | Self::Ended(status) => status.code == 410,
            _ => false,
        }
    }

    /// What the server said about the watch, if it was the server that refused.
    pub fn watch_refusal(&self) -> Option<&Status> {
        match self {
            Self::Start(kube::Error::Api(status))
            | Self::Stream(kube::Error::Api(status))
            | Self::Ended(status) => Some(status),
            _ => None,
        }
    }
}

type Events<O> = BoxStream<'static, kube::Result<WatchEvent<O>>>;

/// Where the requests are.
enum State<O> {
    /// Nothing is known yet, or no longer.
    Start,
    /// A list in pages: objects that arrived, and what the next page is asked by.
    Paging { objects: VecDeque<O>, next: Option<String>, version: Option<String> },
    /// The list of this version is complete, and no watch is open.
    Listed { version: String },
    /// A watch that begins with all objects.
    Streaming(Events<O>),
    /// A watch, and the version up to which it was followed.
    Watching { events: Events<O>, version: String },
}

/// The requests, one after the other.
pub(super) struct Requests<'a, O> {
    api: &'a Api<O>,
    options: &'a Options,
    streams: bool,
    state: State<O>,
}

impl<'a, O> Requests<'a, O>
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// With `streams`, a list arrives one object at a time.
    pub fn new(api: &'a Api<O>, options: &'a Options, streams: bool) -> Self {
        Self { api, options, streams, state: State::Start }
    }

    /// The next event.
    pub async fn next(&mut self) -> Result<Event<O>, Failure> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    /// One step, which may have nothing to report. A failure that says nothing else begins anew.
    async fn step(&mut self) -> Result<Option<Event<O>>, Failure> {
        match std::mem::replace(&mut self.state, State::Start) {
            State::Start if self.streams => {
                self.state = State::Streaming(self.open("0", true).await?);
                Ok(Some(Event::Restart))
            }
            State::Start => {
                self.state = State::Paging { objects: VecDeque::new(), next: None, version: None };
                Ok(Some(Event::Restart))
            }
            State::Paging { mut objects, next, version } => {
                if let Some(object) = objects.pop_front() {
                    self.state = State::Paging { objects, next, version };
                    return Ok(Some(Event::Object(object)));
                }
                if let (None, Some(version)) = (&next, version) {
                    self.state = State::Listed { version };
                    return Ok(Some(Event::Synced));
                }
                self.state = self.page(next).await?;
                Ok(Some(Event::Page))
            }
            State::Listed { version } => match self.open(&version, false).await {
                Ok(events) => {
                    self.state = State::Watching { events, version };
                    Ok(Some(Event::WatchStarted))
                }
                Err(failure) => {
                    self.state = State::Listed { version };
                    Err(failure)
                }
            },
            State::Streaming(events) => self.initial(events).await,
            State::Watching { events, version } => self.change(events, version).await,
        }
    }

    /// Asks for a page.
    async fn page(&mut self, token: Option<String>) -> Result<State<O>, Failure> {
        let parameters = self.options.list_params(token);
        let answer = timeout(ANSWER_LIMIT, self.api.list(&parameters)).await;
        let list = answer
            .map_err(|_| Failure::NoAnswer { request: "list", limit: ANSWER_LIMIT })?
            .map_err(Failure::List)?;
        let version = list.metadata.resource_version.filter(|version| !version.is_empty());
        let next = list.metadata.continue_.filter(|token| !token.is_empty());
        if version.is_none() && next.is_none() {
            return Err(Failure::NoResourceVersion);
        }
        Ok(State::Paging { objects: list.items.into(), next, version })
    }

    /// Starts a watch.
    async fn open(&mut self, version: &str, with_initial: bool) -> Result<Events<O>, Failure> {
        let parameters = self.options.watch_params(with_initial);
        let answer = timeout(ANSWER_LIMIT, self.api.watch(&parameters, version)).await;
        let events = answer
            .map_err(|_| Failure::NoAnswer { request: "start of a watch", limit: ANSWER_LIMIT })?
            .map_err(Failure::Start)?;
        Ok(events.boxed())
    }

    /// The next of a streamed list.
    async fn initial(&mut self, mut events: Events<O>) -> Result<Option<Event<O>>, Failure> {
        match next_within_limit(&mut events).await? {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.state = State::Streaming(events);
                Ok(Some(Event::Object(object)))
            }
            // No server sends one before the list is complete.
            Some(Ok(WatchEvent::Deleted(_))) => {
                self.state = State::Streaming(events);
                Ok(None)
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                if mark.metadata.annotations.contains_key(INITIAL_EVENTS_END) {
                    self.state =
                        State::Watching { events, version: mark.metadata.resource_version };
                    return Ok(Some(Event::Synced));
                }
                self.state = State::Streaming(events);
                Ok(None)
            }
            Some(Ok(WatchEvent::Error(status))) => {
                if status.code != 410 {
                    self.state = State::Streaming(events);
                }
                Err(Failure::Ended(status))
            }
            Some(Err(why)) => {
                self.state = State::Streaming(events);
                Err(Failure::Stream(why))
            }
            None => Ok(None),
        }
    }

    /// The next change after the list.
    async fn change(
        &mut self,
        mut events: Events<O>,
        version: String,
    ) -> Result<Option<Event<O>>, Failure> {
        let answer = match next_within_limit(&mut events).await {
            Ok(answer) => answer,
            Err(failure) => {
                // What was missed comes with the next watch.
                self.state = State::Listed { version };
                return Err(failure);
            }
        };
        let (event, version) = match answer {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                let version = version_of(&object)?;
                (Event::Object(object), version)
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                let version = version_of(&object)?;
                (Event::Deleted(object), version)
            }
            Some(Ok(WatchEvent::Bookmark(mark))) => {
                (Event::Bookmark, mark.metadata.resource_version)
            }
            Some(Ok(WatchEvent::Error(status))) => {
                if status.code != 410 {
                    self.state = State::Watching { events, version };
                }
                return Err(Failure::Ended(status));
            }
            Some(Err(why)) => {
                self.state = State::Watching { events, version };
                return Err(Failure::Stream(why));
            }
            None => {
                self.state = State::Listed { version };
                return Ok(None);
            }
        };
        self.state = State::Watching { events, version };
        Ok(Some(event))
    }
}

async fn next_within_limit<T>(events: &mut BoxStream<'static, T>) -> Result<Option<T>, Failure> {
    timeout(IDLE_LIMIT, events.next())
        .await
        .map_err(|_| Failure::NoAnswer { request: "open watch", limit: IDLE_LIMIT })
}

fn version_of<O: Resource>(object: &O) -> Result<String, Failure> {
    let version = object.resource_version().filter(|version| !version.is_empty());
    version.ok_or(Failure::NoResourceVersion)
}

impl Options {
    fn list_params(&self, token: Option<String>) -> ListParams {
        // Without pages, all comes from the server's cache.
        let (resource_version, version_match) = match self.page_size {
            Some(_) => (None, None),
            None => (Some("0".to_owned()), Some(VersionMatch::NotOlderThan)),
        };
        ListParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            limit: self.page_size,
            continue_token: token,
            version_match,
            resource_version,
            ..ListParams::default()
        }
    }

    fn watch_params(&self, with_initial: bool) -> WatchParams {
        WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: with_initial,
        }
    }
}
