//! Keeps the sentinel: creates and reads it, and lets this process lead only while no other HPA controller touches it.

use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use plimsoll_core::{
    hpa::sentinel::{ObservedSentinel, SENTINEL_NAME, Sentinel, SentinelStep},
    types::{ObjectKey, Time},
};
use tokio::{sync::watch, time::Instant};

use super::config::HorizontalConfig;
use crate::{
    cluster::{
        leader::Fence,
        write::{
            Permit, WriteError, WriteStats,
            hpa_sentinel::{ReadSentinel, SentinelObject},
        },
    },
    telemetry::ReplacedControllerMetrics,
};

/// Whether this process may lead, by what the sentinel has shown.
pub(super) struct SentinelKeeper {
    key: ObjectKey,
    object: SentinelObject,
    poll_interval: std::time::Duration,
    state: Mutex<Sentinel>,
    may_lead: watch::Sender<bool>,
    metrics: Arc<ReplacedControllerMetrics>,
}

impl SentinelKeeper {
    /// For the namespace of the Lease. Nothing is read or written yet.
    pub fn new(
        config: &HorizontalConfig,
        client: Client,
        stats: Arc<WriteStats>,
        metrics: Arc<ReplacedControllerMetrics>,
    ) -> Self {
        let namespace = config.settings.election.namespace.as_str();
        let limiter = config.settings.process.rate_limiter();
        let permit = Permit::new(Fence::open(), limiter);
        Self {
            key: ObjectKey::new(namespace, SENTINEL_NAME),
            object: SentinelObject::new(client, namespace, SENTINEL_NAME, permit, stats),
            poll_interval: config.sentinel.poll_interval,
            state: Mutex::new(Sentinel::new(config.sentinel.rules)),
            may_lead: watch::Sender::new(false),
            metrics,
        }
    }

    /// Holds true while this process may lead.
    pub fn may_lead(&self) -> watch::Receiver<bool> {
        self.may_lead.subscribe()
    }

    /// What is not known yet, if another controller may or may not be active.
    pub fn pending(&self) -> Option<String> {
        let is_known = self.state.lock().is_builtin_active().is_some();
        (!is_known)
            .then(|| format!("whether another HPA controller writes the status of {}", self.key))
    }

    /// Reads the sentinel for ever, and closes the fence as soon as it was touched.
    pub async fn run(self: Arc<Self>, fence: Fence) {
        // Not the wall clock, which can be set: the proof takes as long as it has to.
        let began = Instant::now();
        let mut last_error = None;
        loop {
            let read = self.object.read().await;
            let step = self.observe(&read, Time::EPOCH.later(began.elapsed()), &fence);
            let uid = read.as_ref().ok().and_then(|read| read.as_ref()).map(|read| &*read.uid);
            let written = match (step, uid) {
                (SentinelStep::Create, _) => self.object.create().await,
                (SentinelStep::Delete, Some(uid)) => self.object.delete(uid).await,
                (SentinelStep::Delete, None) | (SentinelStep::Wait, _) => Ok(()),
            };
            self.report_error(read.err().or(written.err()), &mut last_error);
            tokio::time::sleep(self.poll_interval).await;
        }
    }

    fn observe(
        &self,
        read: &Result<Option<ReadSentinel>, WriteError>,
        now: Time,
        fence: &Fence,
    ) -> SentinelStep {
        let seen = match read {
            Err(_) => ObservedSentinel::Unknown,
            Ok(None) => ObservedSentinel::Missing,
            Ok(Some(ReadSentinel { uid, is_touched: true })) => ObservedSentinel::Touched { uid },
            Ok(Some(ReadSentinel { uid, .. })) => ObservedSentinel::Untouched { uid },
        };
        let (step, found, may_write, is_active) = {
            let mut state = self.state.lock();
            let (step, found) = state.observe(seen, now);
            (step, found, state.may_write(), state.is_builtin_active())
        };
        let has_changed = self
            .may_lead
            .send_if_modified(|may_lead| std::mem::replace(may_lead, may_write) != may_write);
        if has_changed && !may_write {
            fence.revoke();
        }
        if let Some(is_active) = is_active {
            self.metrics.set_builtin_active(is_active);
        }
        if let Some(found) = found {
            tracing::error!("{}", found.message(&self.key));
        } else if has_changed && may_write {
            tracing::info!(sentinel = %self.key, "no other HPA controller is active");
        } else if has_changed {
            tracing::warn!(sentinel = %self.key, "stopped scaling: whether another HPA controller is active is not known");
        }
        step
    }

    /// Logs an error once.
    fn report_error(&self, error: Option<WriteError>, last: &mut Option<String>) {
        let error = error.filter(|error| {
            // Another process has created or deleted it.
            !matches!(error, WriteError::Conflict(_) | WriteError::NotFound)
        });
        let message = error.map(|error| self.object.describe(&error));
        if let Some(message) = message.as_ref().filter(|message| last.as_ref() != Some(message)) {
            tracing::warn!("{message}");
        }
        *last = message;
    }
}
