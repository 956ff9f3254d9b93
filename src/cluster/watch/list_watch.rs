//! The list and watch requests for one kind, as kube's watcher sends them, but each with a timeout: an API server that dies
//! without closing its connections never responds, and nothing else would end the wait.

use std::{collections::VecDeque, fmt::Debug, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ListParams, WatchEvent as ApiEvent, WatchParams},
    core::Status,
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{ObjectChange, WatchOptions, watch_loop::WatchEvent};
use crate::cluster::list_stream::error_message;

/// Timeout of one page of a list, or of the start of a watch. The API server itself ends a list after a minute.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);
/// The timeout of a watch that is sent to the API server. kube rejects 295 seconds and more.
const WATCH_SECONDS: u32 = 290;
/// A watch without an event, a bookmark or an end for this long has lost its connection: the server would have ended it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// Annotation of the bookmark after the last object of a streamed list.
const INITIAL_EVENTS_END_ANNOTATION: &str = "k8s.io/initial-events-end";

/// Why a request failed. The next call of [`ListWatch::next`] retries.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListWatchError {
    #[error("failed to list: {}", error_message(.0))]
    List(kube::Error),
    #[error("failed to start watch: {}", error_message(.0))]
    Start(kube::Error),
    #[error("watch failed: {}", error_message(.0))]
    Stream(kube::Error),
    #[error("watch ended: {}", .0.message)]
    Ended(Box<Status>),
    #[error("received an object or a list without a resourceVersion")]
    NoResourceVersion,
    #[error(
        "{request} timed out after {limit:?}: the API server or the connection to it may be down"
    )]
    NoAnswer { request: &'static str, limit: Duration },
}

impl ListWatchError {
    /// Whether the requested resource version is too old.
    pub fn is_expired(&self) -> bool {
        match self {
            Self::Start(kube::Error::Api(status)) | Self::Ended(status) => status.code == 410,
            _ => false,
        }
    }

    /// The server's status, if it rejected or ended the watch.
    pub fn watch_refusal(&self) -> Option<&Status> {
        match self {
            Self::Start(kube::Error::Api(status))
            | Self::Stream(kube::Error::Api(status))
            | Self::Ended(status) => Some(status),
            _ => None,
        }
    }
}

type WatchStream<O> = BoxStream<'static, kube::Result<ApiEvent<O>>>;

enum ListWatchState<O> {
    /// No list has started, or the last one has failed.
    Start,
    /// A paged list: objects that have arrived, and the token of the next page.
    Paging { objects: VecDeque<O>, next: Option<String>, version: Option<String> },
    /// The list of this version is complete, and no watch is open.
    Listed { version: String },
    /// A watch that starts with all objects.
    Streaming(WatchStream<O>),
    /// A watch, and the last version that it delivered.
    Watching { events: WatchStream<O>, version: String },
}

/// Sends list and watch requests one after the other.
pub(super) struct ListWatch<'a, O> {
    api: &'a Api<O>,
    options: &'a WatchOptions,
    streams_lists: bool,
    state: ListWatchState<O>,
}

impl<'a, O> ListWatch<'a, O>
where
    O: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// With `streams`, lists are streamed one object at a time.
    pub fn new(api: &'a Api<O>, options: &'a WatchOptions, streams: bool) -> Self {
        Self { api, options, streams_lists: streams, state: ListWatchState::Start }
    }

    pub async fn next(&mut self) -> Result<WatchEvent<O>, ListWatchError> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    /// One step, which may yield no event. Unless stated otherwise a failure starts over with a list.
    async fn step(&mut self) -> Result<Option<WatchEvent<O>>, ListWatchError> {
        match std::mem::replace(&mut self.state, ListWatchState::Start) {
            ListWatchState::Start if self.streams_lists => {
                self.state = ListWatchState::Streaming(self.start_watch("0", true).await?);
                Ok(Some(WatchEvent::Change(ObjectChange::Restart)))
            }
            ListWatchState::Start => {
                self.state =
                    ListWatchState::Paging { objects: VecDeque::new(), next: None, version: None };
                Ok(Some(WatchEvent::Change(ObjectChange::Restart)))
            }
            ListWatchState::Paging { mut objects, next, version } => {
                if let Some(object) = objects.pop_front() {
                    self.state = ListWatchState::Paging { objects, next, version };
                    return Ok(Some(WatchEvent::Change(ObjectChange::Applied(object))));
                }
                if let (None, Some(version)) = (&next, version) {
                    self.state = ListWatchState::Listed { version };
                    return Ok(Some(WatchEvent::Change(ObjectChange::Synced)));
                }
                self.state = self.list_page(next).await?;
                Ok(Some(WatchEvent::Responded))
            }
            ListWatchState::Listed { version } => match self.start_watch(&version, false).await {
                Ok(events) => {
                    self.state = ListWatchState::Watching { events, version };
                    Ok(Some(WatchEvent::Responded))
                }
                Err(failure) => {
                    self.state = ListWatchState::Listed { version };
                    Err(failure)
                }
            },
            ListWatchState::Streaming(events) => self.next_initial_event(events).await,
            ListWatchState::Watching { events, version } => self.next_change(events, version).await,
        }
    }

    async fn list_page(
        &mut self,
        token: Option<String>,
    ) -> Result<ListWatchState<O>, ListWatchError> {
        let parameters = ListParams {
            field_selector: self.options.field_selector.clone(),
            limit: Some(self.options.page_size),
            continue_token: token,
            ..ListParams::default()
        };
        let result = timeout(ANSWER_LIMIT, self.api.list(&parameters)).await;
        let list = result
            .map_err(|_| ListWatchError::NoAnswer { request: "list", limit: ANSWER_LIMIT })?
            .map_err(ListWatchError::List)?;
        let version = list.metadata.resource_version.filter(|version| !version.is_empty());
        let next = list.metadata.continue_.filter(|token| !token.is_empty());
        if version.is_none() && next.is_none() {
            return Err(ListWatchError::NoResourceVersion);
        }
        Ok(ListWatchState::Paging { objects: list.items.into(), next, version })
    }

    async fn start_watch(
        &mut self,
        version: &str,
        with_initial: bool,
    ) -> Result<WatchStream<O>, ListWatchError> {
        let parameters = WatchParams {
            field_selector: self.options.field_selector.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            send_initial_events: with_initial,
            ..WatchParams::default()
        };
        let result = timeout(ANSWER_LIMIT, self.api.watch(&parameters, version)).await;
        let events = result
            .map_err(|_| ListWatchError::NoAnswer {
                request: "start of a watch",
                limit: ANSWER_LIMIT,
            })?
            .map_err(ListWatchError::Start)?;
        Ok(events.boxed())
    }

    async fn next_initial_event(
        &mut self,
        mut events: WatchStream<O>,
    ) -> Result<Option<WatchEvent<O>>, ListWatchError> {
        let result = match next_within_limit(&mut events).await? {
            Some(Ok(ApiEvent::Added(object) | ApiEvent::Modified(object))) => {
                Ok(Some(WatchEvent::Change(ObjectChange::Applied(object))))
            }
            Some(Ok(ApiEvent::Bookmark(bookmark)))
                if bookmark.metadata.annotations.contains_key(INITIAL_EVENTS_END_ANNOTATION) =>
            {
                let version = bookmark.metadata.resource_version;
                self.state = ListWatchState::Watching { events, version };
                return Ok(Some(WatchEvent::Change(ObjectChange::Synced)));
            }
            // No server sends deletions before the list is complete.
            Some(Ok(ApiEvent::Bookmark(_) | ApiEvent::Deleted(_))) => Ok(None),
            Some(Ok(ApiEvent::Error(status))) if status.code == 410 => {
                return Err(ListWatchError::Ended(status));
            }
            Some(Ok(ApiEvent::Error(status))) => Err(ListWatchError::Ended(status)),
            Some(Err(why)) => Err(ListWatchError::Stream(why)),
            None => return Ok(None),
        };
        self.state = ListWatchState::Streaming(events);
        result
    }

    async fn next_change(
        &mut self,
        mut events: WatchStream<O>,
        version: String,
    ) -> Result<Option<WatchEvent<O>>, ListWatchError> {
        let next = match next_within_limit(&mut events).await {
            Ok(next) => next,
            Err(failure) => {
                // The next watch delivers the missed changes.
                self.state = ListWatchState::Listed { version };
                return Err(failure);
            }
        };
        let (event, version) = match next {
            Some(Ok(ApiEvent::Added(object) | ApiEvent::Modified(object))) => {
                let version = resource_version_of(&object)?;
                (WatchEvent::Change(ObjectChange::Applied(object)), version)
            }
            Some(Ok(ApiEvent::Deleted(object))) => {
                let version = resource_version_of(&object)?;
                (WatchEvent::deleted(&object), version)
            }
            Some(Ok(ApiEvent::Bookmark(bookmark))) => {
                (WatchEvent::Bookmark, bookmark.metadata.resource_version)
            }
            Some(Ok(ApiEvent::Error(status))) => {
                if status.code != 410 {
                    self.state = ListWatchState::Watching { events, version };
                }
                return Err(ListWatchError::Ended(status));
            }
            Some(Err(why)) => {
                self.state = ListWatchState::Watching { events, version };
                return Err(ListWatchError::Stream(why));
            }
            None => {
                self.state = ListWatchState::Listed { version };
                return Ok(None);
            }
        };
        self.state = ListWatchState::Watching { events, version };
        Ok(Some(event))
    }
}

async fn next_within_limit<T>(
    events: &mut BoxStream<'static, T>,
) -> Result<Option<T>, ListWatchError> {
    timeout(IDLE_TIMEOUT, events.next())
        .await
        .map_err(|_| ListWatchError::NoAnswer { request: "open watch", limit: IDLE_TIMEOUT })
}

fn resource_version_of<O: Resource>(object: &O) -> Result<String, ListWatchError> {
    let version = object.resource_version().filter(|version| !version.is_empty());
    version.ok_or(ListWatchError::NoResourceVersion)
}
