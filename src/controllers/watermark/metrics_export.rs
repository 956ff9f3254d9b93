//! Exports metrics: of recommender calls as they happen, of objects at each scrape.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError, Weak},
    time::Duration,
};

use plimsoll_core::types::{ObjectKey, Time};

use super::{WatermarkController, exported_state::ExportedState};
use crate::{
    cluster::metrics_api::source::recommender::RecommenderCallObserver,
    telemetry::{
        MonitorGateRow, RecommenderCall, SourceRow, WatermarkMetrics, WatermarkRow,
        WpaMetricsSource, client_label, objects::PAGE_SIZE,
    },
};
use plimsoll_core::watermark::cooldown::CooldownRemaining;

/// Counts calls to recommenders.
pub(super) struct RecommenderCallMetrics {
    metrics: WatermarkMetrics,
    /// Calls in flight by client.
    calls: Mutex<HashMap<String, Vec<RecommenderCall>>>,
}

impl RecommenderCallMetrics {
    /// Creates an observer that counts in `metrics`.
    pub fn new(metrics: WatermarkMetrics) -> Self {
        Self { metrics, calls: Mutex::default() }
    }
}

impl RecommenderCallObserver for RecommenderCallMetrics {
    fn on_start(&self, client: &str) {
        let call = self.metrics.begin_recommender_call(client);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.entry(client.to_owned()).or_default().push(call);
    }

    fn on_end(&self, client: &str, method: &'static str, result: Result<u16, ()>, took: Duration) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
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

/// The objects of the controller, for a scrape.
pub(super) struct WatermarkObjectMetrics(pub Weak<WatermarkController>);

impl WpaMetricsSource for WatermarkObjectMetrics {
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(WatermarkRow<'_>),
    ) -> Option<ObjectKey> {
        let controller = self.0.upgrade()?;
        // Another process leads and exports them; the state here is outdated. While the leader is unknown, keep exporting.
        if controller.is_standby() {
            return None;
        }
        let (exported, next) = controller.queue.exported_page(after, PAGE_SIZE);
        let now = controller.clock.now();
        for (key, exported) in &exported {
            let sources: Vec<SourceRow<'_>> = exported.sources.iter().map(source_row).collect();
            let label = |key: &str| {
                exported.labels.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
            };
            visit(object_row(key, exported, &sources, now, &label));
        }
        next
    }
}

fn source_row(source: &super::exported_state::ExportedSource) -> SourceRow<'_> {
    SourceRow {
        metric_name: &source.label,
        value_milli: source.value,
        high_milli: source.watermarks.map(|(_, high)| high as f64),
        low_milli: source.watermarks.map(|(low, _)| low as f64),
        proposal: source.proposal.map(f64::from),
    }
}

fn object_row<'a>(
    key: &'a ObjectKey,
    exported: &'a ExportedState,
    sources: &'a [SourceRow<'a>],
    now: Time,
    label: &'a dyn Fn(&str) -> Option<&'a str>,
) -> WatermarkRow<'a> {
    let condition = |name: &str| {
        exported.conditions.iter().find(|(known, _)| *known == name).map(|(_, holds)| *holds)
    };
    WatermarkRow {
        key,
        target_kind: &exported.target.0,
        target_name: &exported.target.1,
        dry_run: exported.dry_run,
        min_replicas: exported.bounds.0,
        max_replicas: exported.bounds.1,
        tolerance: exported.tolerance as f64 / 1000.0,
        effective_replicas: exported.desired_replicas.map(f64::from),
        scaling_active: Some(exported.scaling_active),
        able_to_scale: condition("able_to_scale"),
        scaling_limited: condition("scaling_limited"),
        scaling_blocked: condition("scaling_blocked"),
        within_bounds: exported.within_bounds,
        upscale_capping: exported.upscale_capping,
        downscale_capping: exported.downscale_capping,
        restrictions: Some(exported.restrictions.iter().copied().collect()),
        cooldown_remaining: exported
            .cooldown_seconds
            .map(|(up, down)| CooldownRemaining { up, down }),
        upscale_total: exported.replicas_moved.map(|(up, _)| up),
        downscale_total: exported.replicas_moved.map(|(_, down)| down),
        staleness_seconds: exported.last_value_at.map(|at| now.nanos_since(at) as f64 / 1e9),
        monitor_gate: exported.monitor.as_ref().map(|monitor| MonitorGateRow {
            monitor_name: &monitor.name,
            monitor_namespace: &key.namespace,
            is_blocked: monitor.blocks,
        }),
        sources,
        label,
    }
}

impl WatermarkController {
    /// Removes the series of recommenders that are no longer used.
    pub(super) fn retain_recommender_series(&self) {
        let objects = self.queue.objects();
        let used: HashSet<String> = objects
            .iter()
            .filter_map(|object| object.spec.recommender.as_ref())
            .map(|it| client_label(&it.url))
            .collect();
        self.autoscaler.metrics.retain_clients(&used);
    }
}
