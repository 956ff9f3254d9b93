//! A way to a server on which every question is written down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use plimsoll_storage::prometheus::transport::{Response, Transport, TransportError};

use crate::prometheus::series_collector::transport;

/// A question only VictoriaMetrics has an answer to.
pub const VICTORIA_METRICS_PROBE: &str = "vector(1) default 2";

/// Passes questions on, and keeps them.
#[derive(Debug)]
pub struct RecordingTransport {
    transport: Arc<dyn Transport>,
    asked: Mutex<Vec<RecordedQuery>>,
    poses_as_victoria_metrics: AtomicBool,
}

/// A question.
#[derive(Clone, Debug)]
pub struct RecordedQuery {
    pub path: String,
    pub form: Vec<(String, String)>,
}

impl RecordingTransport {
    /// To this server.
    pub fn in_front_of(url: &str) -> Arc<Self> {
        let (asked, poses) = (Mutex::default(), AtomicBool::default());
        Arc::new(Self { transport: transport(url), asked, poses_as_victoria_metrics: poses })
    }

    /// Lets it pass for a VictoriaMetrics.
    pub fn pose_as_victoria_metrics(&self) {
        self.poses_as_victoria_metrics.store(true, Ordering::SeqCst);
    }

    /// Everything that was asked since the last time.
    pub fn take(&self) -> Vec<RecordedQuery> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }

    /// The queries and selectors among it.
    pub fn questions(&self) -> Vec<String> {
        let all = self.take().into_iter().flat_map(|asked| asked.form);
        let is_one = |name: &str| matches!(name, "query" | "match[]");
        all.filter(|(name, _)| is_one(name)).map(|(_, text)| text).collect()
    }
}

#[async_trait]
impl Transport for RecordingTransport {
    async fn send(
        &self,
        path: &str,
        form: &[(&str, String)],
        timeout: Duration,
    ) -> Result<Response, TransportError> {
        let kept = form.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
        let asked = RecordedQuery { path: path.to_owned(), form: kept };
        self.asked.lock().expect("no panic").push(asked);
        let mut form = form.to_vec();
        if self.poses_as_victoria_metrics.load(Ordering::SeqCst) {
            for (_, text) in form.iter_mut().filter(|(_, text)| text == VICTORIA_METRICS_PROBE) {
                "vector(1)".clone_into(text);
            }
        }
        self.transport.send(path, &form, timeout).await
    }
}
