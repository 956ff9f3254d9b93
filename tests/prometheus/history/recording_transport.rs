//! A transport that records every query.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use plimsoll_storage::prometheus::transport::{Response, Transport, TransportError};

use crate::prometheus::series_collector::transport;

/// A query that only VictoriaMetrics can answer.
pub const VICTORIA_METRICS_PROBE: &str = "vector(1) default 2";

/// Forwards queries and records them.
#[derive(Debug)]
pub struct RecordingTransport {
    transport: Arc<dyn Transport>,
    queries: Mutex<Vec<RecordedQuery>>,
    poses_as_victoria_metrics: AtomicBool,
}

/// A recorded query.
#[derive(Clone, Debug)]
pub struct RecordedQuery {
    pub path: String,
    pub form: Vec<(String, String)>,
}

impl RecordingTransport {
    /// A transport to this server.
    pub fn in_front_of(url: &str) -> Arc<Self> {
        let (queries, poses) = (Mutex::default(), AtomicBool::default());
        Arc::new(Self { transport: transport(url), queries, poses_as_victoria_metrics: poses })
    }

    /// Responds to the probe as VictoriaMetrics does.
    pub fn pose_as_victoria_metrics(&self) {
        self.poses_as_victoria_metrics.store(true, Ordering::SeqCst);
    }

    /// Returns the queries since the last call.
    pub fn take(&self) -> Vec<RecordedQuery> {
        std::mem::take(&mut *self.queries.lock().expect("no panic"))
    }

    /// The query and selector texts since the last call.
    pub fn questions(&self) -> Vec<String> {
        let all = self.take().into_iter().flat_map(|query| query.form);
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
        let fields = form.iter().map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
        let query = RecordedQuery { path: path.to_owned(), form: fields };
        self.queries.lock().expect("no panic").push(query);
        let mut form = form.to_vec();
        if self.poses_as_victoria_metrics.load(Ordering::SeqCst) {
            for (_, text) in form.iter_mut().filter(|(_, text)| text == VICTORIA_METRICS_PROBE) {
                "vector(1)".clone_into(text);
            }
        }
        self.transport.send(path, &form, timeout).await
    }
}
