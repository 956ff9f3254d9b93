//! Events, as `kubectl describe` shows them. They are written in the background, in order, and dropped when there are more
//! than can be written.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
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
use tokio::{sync::mpsc, time::Instant};

use crate::cluster::{
    leader::jitter,
    write::{
        Permit,
        request::write_counted,
        stats::{WriteKind, WriteOutcome, WriteStats},
    },
};

const QUEUE_CAPACITY: usize = 1024;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How often a drain checks the queue.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum length of a message; the server rejects longer ones.
const MAX_MESSAGE_BYTES: usize = 1024;

#[derive(Clone, Debug, PartialEq)]
pub struct EventDetails {
    pub involved_object: ObjectReference,
    pub is_warning: bool,
    pub reason: &'static str,
    pub message: String,
    pub at: Time,
}

/// Queues events. Clones share the queue.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    queue: mpsc::Sender<EventDetails>,
    /// Events that are queued or being written.
    waiting: Arc<AtomicUsize>,
}

pub struct EventWriter {
    queue: mpsc::Receiver<EventDetails>,
    waiting: Arc<AtomicUsize>,
    permit: Permit,
    sender: EventSender,
}

pub struct EventSender {
    client: Client,
    stats: Arc<WriteStats>,
    component: &'static str,
}

/// Creates a queue and its writer. `component` is the source of the events.
pub fn event_recorder(
    client: Client,
    permit: Permit,
    stats: Arc<WriteStats>,
    component: &'static str,
) -> (EventRecorder, EventWriter) {
    let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
    let waiting = Arc::<AtomicUsize>::default();
    let events = EventRecorder { queue: sender, waiting: Arc::clone(&waiting) };
    let sender = EventSender::new(client, stats, component);
    (events, EventWriter { queue, waiting, permit, sender })
}

impl EventRecorder {
    /// Queues an event, unless the queue is full.
    pub fn publish(&self, event: EventDetails) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        if self.queue.try_send(event).is_err() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Waits until all queued events are written, at most until `deadline`.
    pub async fn drain(&self, deadline: Instant) {
        while self.waiting.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
    }
}

impl EventWriter {
    /// Runs until shutdown is requested. Events that are still queued then are dropped: see [`EventRecorder::drain`].
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                next = self.queue.recv() => match next {
                    Some(event) => {
                        self.sender.send(&self.permit, event).await;
                        self.waiting.fetch_sub(1, Ordering::AcqRel);
                    }
                    None => return,
                },
            }
        }
    }
}

impl EventSender {
    pub fn new(client: Client, stats: Arc<WriteStats>, component: &'static str) -> Self {
        Self { client, stats, component }
    }

    pub async fn send(&self, permit: &dyn WritePermit, details: EventDetails) {
        if permit.acquire().await.is_err() {
            self.stats.count(WriteKind::Event, WriteOutcome::NotLeader);
            return;
        }
        let event = self.to_event(details);
        let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let parameters = PostParams::default();
        let request = api.create(&parameters, &event);
        let sent = write_counted(&self.stats, WriteKind::Event, REQUEST_LIMIT, request);
        if let Err(error) = sent.await {
            let ObjectReference { kind, namespace, name, .. } = event.involved_object;
            tracing::debug!(kind, namespace, name, %error, "failed to write event");
        }
    }

    fn to_event(&self, details: EventDetails) -> Event {
        let EventDetails { involved_object: object, is_warning, reason, message, at } = details;
        let at = Some(MetaTime(jiff::Timestamp::from(at)));
        let name = object.name.as_deref().unwrap_or_default();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:016x}", jitter::random())),
                namespace: object.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: object,
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
