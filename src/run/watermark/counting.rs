//! What metrics are told: calls of recommenders as they happen, objects when somebody asks.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError, Weak},
    time::Duration,
};

use plimsoll_core::types::{Time, VpaKey};

use super::{Role, look::Next, rows::Shown};
use crate::{
    act::Standing,
    metrics::{
        LifecycleRow, RecommenderCall, Returned, SourceRow, WatermarkMetrics, WatermarkRow,
        Watermarks, client_label, objects::PAGE,
    },
    observe::source::recommender::Calls,
};
use plimsoll_core::watermark::gate::Left;

/// Counts calls of recommenders.
pub(super) struct Counting {
    metrics: WatermarkMetrics,
    /// Those under way, by whom they ask.
    calls: Mutex<HashMap<String, Vec<RecommenderCall>>>,
}

impl Counting {
    /// Counts into these.
    pub fn new(metrics: WatermarkMetrics) -> Self {
        Self { metrics, calls: Mutex::default() }
    }
}

impl Calls for Counting {
    fn began(&self, client: &str) {
        let call = self.metrics.call(client);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.entry(client.to_owned()).or_default().push(call);
    }

    fn ended(&self, client: &str, method: &'static str, result: Result<u16, ()>, took: Duration) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = calls.get_mut(client) else { return };
        let call = waiting.pop();
        if waiting.is_empty() {
            calls.remove(client);
        }
        drop(calls);
        match (call, result) {
            (Some(call), Ok(code)) => call.answered(method, code, took),
            (Some(call), Err(())) => call.failed(),
            (None, _) => {}
        }
    }
}

/// The objects of a role, for a scrape.
pub(super) struct Objects(pub Weak<Role>);

impl Watermarks for Objects {
    fn visit(
        &self,
        after: Option<&VpaKey>,
        visit: &mut dyn FnMut(WatermarkRow<'_>),
    ) -> Option<VpaKey> {
        let role = self.0.upgrade()?;
        // Another one tells of them by now, and what is known here grows old. While nobody can say who leads, it stays.
        if role.election.get().is_some_and(|election| election.standing() == Standing::Standby) {
            return None;
        }
        let (shown, next) = role.book.shown(after, PAGE);
        let now = role.clock.now();
        for (key, shown) in &shown {
            let sources: Vec<SourceRow<'_>> = shown.sources.iter().map(row).collect();
            let label = |key: &str| {
                shown.labels.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
            };
            visit(object(key, shown, &sources, now, &label));
        }
        next
    }
}

fn row(source: &super::rows::ShownSource) -> SourceRow<'_> {
    SourceRow {
        metric_name: &source.label,
        value_milli: source.value,
        high_milli: source.marks.map(|(_, high)| high as f64),
        low_milli: source.marks.map(|(low, _)| low as f64),
        proposal: source.proposal.map(f64::from),
    }
}

fn object<'a>(
    key: &'a VpaKey,
    shown: &'a Shown,
    sources: &'a [SourceRow<'a>],
    now: Time,
    label: &'a dyn Fn(&str) -> Option<&'a str>,
) -> WatermarkRow<'a> {
    let condition = |name: &str| {
        shown.conditions.iter().find(|(known, _)| *known == name).map(|(_, holds)| *holds)
    };
    WatermarkRow {
        key,
        target_kind: &shown.target.0,
        target_name: &shown.target.1,
        dry_run: shown.dry_run,
        min_replicas: shown.bounds.0,
        max_replicas: shown.bounds.1,
        tolerance: shown.tolerance as f64 / 1000.0,
        effective: shown.effective.map(f64::from),
        scaling_active: Some(shown.scaling_active),
        able_to_scale: condition("able_to_scale"),
        scaling_limited: condition("scaling_limited"),
        scaling_blocked: condition("scaling_blocked"),
        within_bounds: shown.within_bounds,
        upscale_capping: shown.upscale_capping,
        downscale_capping: shown.downscale_capping,
        restrictions: Some(shown.reasons.iter().copied().collect()),
        countdown: shown.countdown.map(|(up, down)| Left { up, down }),
        upscale_total: shown.moved.map(|(up, _)| up),
        downscale_total: shown.moved.map(|(_, down)| down),
        staleness_seconds: shown.told.map(|at| now.nanos_since(at) as f64 / 1e9),
        lifecycle: shown.monitor.as_ref().map(|monitor| LifecycleRow {
            monitor_name: &monitor.name,
            monitor_namespace: &key.namespace,
            is_blocked: monitor.blocks,
        }),
        sources,
        label,
    }
}

impl Role {
    /// What upstream's framework would call the end of a look.
    pub(super) fn returned(outcome: &str, next: Next) -> Returned {
        match next {
            _ if outcome == "error" => Returned::Error,
            Next::Change => Returned::Success,
            Next::Period | Next::After(_) => Returned::RequeueAfter,
        }
    }

    /// Series of recommenders that nobody asks any more end.
    pub(super) fn keep_clients(&self) {
        let used: HashSet<String> =
            self.book.recommenders().iter().map(|url| client_label(url)).collect();
        self.metrics.keep_clients(&used);
    }
}
