//! Exports metrics of calls to recommenders.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use parking_lot::Mutex;

use super::WatermarkController;
use crate::{
    cluster::metric_sources::external_recommender::RecommenderCallObserver,
    telemetry::{RecommenderCall, WatermarkMetrics, client_label},
};

pub(super) struct RecommenderCallMetrics {
    pub metrics: WatermarkMetrics,
    /// Calls in flight by client.
    pub calls: Mutex<HashMap<String, Vec<RecommenderCall>>>,
}

impl RecommenderCallObserver for RecommenderCallMetrics {
    fn on_start(&self, client: &str) {
        let call = self.metrics.calls.begin(client);
        let mut calls = self.calls.lock();
        calls.entry(client.to_owned()).or_default().push(call);
    }

    fn on_end(&self, client: &str, method: &'static str, result: Result<u16, ()>, took: Duration) {
        let mut calls = self.calls.lock();
        let Some(client_calls) = calls.get_mut(client) else { return };
        let call = client_calls.pop();
        if client_calls.is_empty() {
            calls.remove(client);
        }
        drop(calls);
        match (call, result) {
            (Some(call), Ok(code)) => call.on_response(method, code, took),
            (Some(call), Err(())) => call.on_failure(),
            (None, _) => {}
        }
    }
}

/// Removes the series of recommenders that are no longer used.
pub(super) fn retain_recommender_series(controller: &WatermarkController) {
    let objects = controller.queue.objects();
    let used: HashSet<String> = objects
        .iter()
        .filter_map(|object| object.spec.recommender.as_ref())
        .map(|it| client_label(&it.url))
        .collect();
    controller.autoscaler.metrics.calls.retain_clients(&used);
}
