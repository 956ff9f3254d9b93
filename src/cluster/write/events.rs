//! Events: what users see with `kubectl describe`. Written beside the work, in their order, and dropped where there are
//! more than can be written.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time as MetaTime,
};
use kube::{
    Client,
    api::{Api, ObjectMeta, PostParams},
};
use plimsoll_core::types::Time;
use plimsoll_storage::WritePermit;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cluster::{
    leader::jitter,
    write::{
        Permit,
        stats::{WriteKind, WriteOutcome, WriteStats},
    },
};

/// How many may wait.
const QUEUE_CAPACITY: usize = 1024;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether any wait.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long a message may be; the server refuses longer ones.
const MAX_MESSAGE_BYTES: usize = 1024;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvolvedObject {
    /// `v1`, or `group/version`.
    pub api_version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What no other object ever has.
    pub uid: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDetails {
    /// To what.
    pub involved_object: InvolvedObject,
    /// Whether somebody should look at it.
    pub is_warning: bool,
    /// What, in one word.
    pub reason: &'static str,
    /// What, in a sentence.
    pub message: String,
    /// When.
    pub at: Time,
}

/// Takes what happened. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<EventDetails>,
    /// Taken and not written yet.
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// Writes what was taken.
pub struct EventWriter {
    queue: mpsc::Receiver<EventDetails>,
    waiting: Arc<AtomicUsize>,
    client: Client,
    permit: Permit,
    stats: Arc<WriteStats>,
    component: &'static str,
}

impl fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWriter").field("component", &self.component).finish_non_exhaustive()
    }
}

/// A queue and its writer. `component` is who says so.
pub fn event_recorder(
    client: Client,
    permit: Permit,
    stats: Arc<WriteStats>,
    component: &'static str,
) -> (EventRecorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
    let waiting = Arc::<AtomicUsize>::default();
    let events =
        EventRecorder { queue: sender, waiting: Arc::clone(&waiting), dropped: Arc::default() };
    (events, EventWriter { queue, waiting, client, permit, stats, component })
}

impl EventRecorder {
    /// Takes it, if there is room.
    pub fn publish(&self, happening: EventDetails) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        if self.queue.try_send(happening).is_err() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was taken is written, but not for longer than until then.
    pub async fn drain(&self, deadline: Instant) {
        while self.waiting.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// How many were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl EventWriter {
    /// Writes until told to stop. What still waits then is dropped: see [`Events::drain`].
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                next = self.queue.recv() => match next {
                    Some(happening) => {
                        self.write(happening).await;
                        self.waiting.fetch_sub(1, Ordering::AcqRel);
                    }
                    None => return,
                },
            }
        }
    }

    async fn write(&self, happening: EventDetails) {
        if self.permit.acquire().await.is_err() {
            self.stats.count(WriteKind::Event, WriteOutcome::NotLeader, Duration::ZERO);
            return;
        }
        let about = happening.involved_object.clone();
        let event = self.to_event(happening);
        let api = Api::<Event>::namespaced(self.client.clone(), &about.namespace);
        let sent = Instant::now();
        let parameters = PostParams::default();
        let asked = api.create(&parameters, &event);
        let Ok(answer) = tokio::time::timeout(REQUEST_LIMIT, asked).await else {
            self.stats.count(WriteKind::Event, WriteOutcome::NoResponse, REQUEST_LIMIT);
            return;
        };
        self.stats.count(WriteKind::Event, WriteOutcome::from_result(&answer), sent.elapsed());
        if let Err(why) = answer {
            let InvolvedObject { kind, namespace, name, .. } = about;
            tracing::debug!(kind, namespace, name, %why, "an event was not written");
        }
    }

    fn to_event(&self, happening: EventDetails) -> Event {
        let EventDetails { involved_object: about, is_warning, reason, message, at } = happening;
        let at = Some(MetaTime(jiff::Timestamp::from(at)));
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{}.{:016x}", about.name, jitter::random())),
                namespace: Some(about.namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: ObjectReference {
                api_version: Some(about.api_version.to_owned()),
                kind: Some(about.kind.to_owned()),
                namespace: Some(about.namespace),
                name: Some(about.name),
                uid: Some(about.uid),
                ..ObjectReference::default()
            },
            type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message.chars().take(MAX_MESSAGE_BYTES).collect()),
            source: Some(EventSource { component: Some(self.component.to_owned()), host: None }),
            reporting_component: Some(self.component.to_owned()),
            first_timestamp: at.clone(),
            last_timestamp: at,
            count: Some(1),
            ..Event::default()
        }
    }
}
