//! The exported state of an object: its last decision, and what is known besides. Series of objects are rendered from it.

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::{
    hpa::pod_groups::PodCounts,
    scaling::{MetricDecision, Restriction, ScaleDecision},
    types::{ObjectKey, Time},
    watermark::ScaleDirection,
};

/// A DatadogMonitor that gates scaling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedMonitor {
    pub name: String,
    pub blocks: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExportedState {
    /// Kind and name of the target.
    pub target: (String, String),
    pub dry_run: bool,
    /// Minimum and maximum replicas.
    pub bounds: (i32, i32),
    /// The tolerance around the watermarks, in thousandths of the watermark.
    pub tolerance: i64,
    pub desired_replicas: Option<i32>,
    /// Whether the condition `ScalingActive` is true.
    pub scaling_active: bool,
    /// The conditions that have a gauge, with their values.
    pub conditions: Vec<(&'static str, bool)>,
    pub within_bounds: Option<bool>,
    /// Whether the scale-up limit caps the proposal.
    pub upscale_capping: Option<bool>,
    /// Whether the scale-down limit caps the proposal.
    pub downscale_capping: Option<bool>,
    /// Seconds until the target may be scaled up and down.
    pub cooldown_seconds: Option<(f64, f64)>,
    /// Replicas added and removed by this process.
    pub replicas_moved: Option<(u64, u64)>,
    pub labels: Vec<(String, String)>,
    /// Of an HPA: what the controller does with it.
    pub update_mode: &'static str,
    /// Of an HPA: the pods by how they counted.
    pub pods: Option<PodCounts>,
    /// Of an HPA: the desired replicas minus those of the HPA controller of the cluster.
    pub shadow_difference: Option<i32>,
    /// The monitor that gates scaling, if there is one.
    pub monitor: Option<ExportedMonitor>,
    /// The decision of the last reconcile, if it made one.
    pub decision: Option<Arc<ScaleDecision>>,
    pub reconciled_at: Time,
    /// When one of its metric sources last had a value.
    pub last_value_at: Option<Time>,
}

/// The objects of a controller. Each call visits one page of about [`PAGE_SIZE`](crate::telemetry::objects::PAGE_SIZE) of them
/// in order of their keys, starting after the key `after`, and returns the key to continue from, or `None` after the last
/// page. The lock is held for one page only.
pub trait ReplicaMetricsSource: Send + Sync {
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ReplicaRow<'_>),
    ) -> Option<ObjectKey>;
}

#[derive(Clone, Copy, Debug)]
pub struct ReplicaRow<'a> {
    pub key: &'a ObjectKey,
    pub state: &'a ExportedState,
    pub now: Time,
}

/// Receives the additional label of a series and its value.
pub(in crate::telemetry) type EmitSample<'a> = dyn FnMut(&str, f64) + 'a;

pub(in crate::telemetry) const fn bool_value(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

impl ExportedState {
    /// Clears the limits of the last decision, because the object is not being evaluated.
    pub fn clear_limits(&mut self) {
        self.within_bounds = None;
        self.upscale_capping = None;
        self.downscale_capping = None;
    }

    /// Also clears what would go stale, because the object is not reconciled again until it changes.
    pub fn clear_decision(&mut self) {
        self.clear_limits();
        self.cooldown_seconds = None;
        self.monitor = None;
    }

    /// Lets the cooldown elapse, even if no decision is made.
    pub fn advance_cooldown(&mut self, since: Time) {
        let elapsed = self.reconciled_at.nanos_since(since) as f64 / 1e9;
        let remaining = |seconds: f64| (seconds - elapsed).max(0.0);
        self.cooldown_seconds =
            self.cooldown_seconds.map(|(up, down)| (remaining(up), remaining(down)));
    }

    pub fn set_decision(&mut self, decision: Arc<ScaleDecision>) {
        if decision.metrics.iter().any(|metric| metric.unknown.is_none()) {
            self.last_value_at = Some(self.reconciled_at);
        }
        self.desired_replicas = decision.desired.or(self.desired_replicas);
        self.decision = Some(decision);
    }

    fn metrics(&self) -> &[MetricDecision] {
        self.decision.as_ref().map_or(&[], |decision| decision.metrics.as_slice())
    }

    /// Why the target does not have the replicas that its metrics propose.
    pub fn restrictions(&self) -> &[Restriction] {
        self.decision.as_ref().map_or(&[], |decision| decision.restrictions.as_slice())
    }

    pub(in crate::telemetry) fn staleness_seconds(&self, now: Time) -> Option<f64> {
        self.last_value_at.map(|at| now.nanos_since(at) as f64 / 1e9)
    }

    /// The active restrictions, one bit for each.
    pub(super) fn restriction_bits(&self) -> u64 {
        self.restrictions().iter().fold(0, |bits, restriction| bits | 1 << *restriction as u64)
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
    }

    /// Emits how long a stabilization window still delays a change.
    pub(in crate::telemetry) fn emit_held(&self, now: Time, emit: &mut EmitSample<'_>) {
        let Some(until) = self.decision.as_ref().and_then(|decision| decision.held_until) else {
            return;
        };
        let is_up = self.restrictions().contains(&Restriction::StabilizedUp);
        let direction = if is_up { ScaleDirection::Up } else { ScaleDirection::Down };
        emit(direction.into_str(), until.nanos_since(now).max(0) as f64 / 1e9);
    }

    pub(in crate::telemetry) fn emit_pods(&self, emit: &mut EmitSample<'_>) {
        let Some(pods) = self.pods else { return };
        for (state, count) in pods.by_state() {
            emit(state, count as f64);
        }
    }

    pub(in crate::telemetry) fn emit_cooldowns(&self, emit: &mut EmitSample<'_>) {
        if let Some((up, down)) = self.cooldown_seconds {
            emit(ScaleDirection::Down.into_str(), down);
            emit(ScaleDirection::Up.into_str(), up);
        }
    }

    /// Emits upstream's three reasons, as far as they are known.
    pub(in crate::telemetry) fn emit_cappings(&self, emit: &mut EmitSample<'_>) {
        for (reason, is_active) in [
            (Restriction::DownscaleCapping, self.downscale_capping),
            (Restriction::UpscaleCapping, self.upscale_capping),
            (Restriction::WithinBounds, self.within_bounds),
        ] {
            if let Some(is_active) = is_active {
                emit(reason.into_str(), bool_value(is_active));
            }
        }
    }

    pub(in crate::telemetry) fn emit_conditions(&self, emit: &mut EmitSample<'_>) {
        for name in ["able_to_scale", "scaling_blocked", "scaling_limited"] {
            if let Some((_, holds)) = self.conditions.iter().find(|(known, _)| *known == name) {
                emit(name, bool_value(*holds));
            }
        }
    }

    /// The metrics, but of those with the same name only the last: upstream's series distinguish them by name only.
    pub(super) fn last_metric_by_name(&self) -> impl Iterator<Item = &MetricDecision> {
        let indexed = self.metrics().iter().enumerate();
        let last: HashMap<&str, usize> =
            indexed.clone().map(|(index, metric)| (&*metric.label, index)).collect();
        indexed.filter(move |(index, metric)| last[&*metric.label] == *index).map(|(_, it)| it)
    }

    /// The metrics, each with the number of preceding ones with the same name.
    pub(super) fn numbered_metrics(&self) -> impl Iterator<Item = (usize, &MetricDecision)> {
        let mut counts: HashMap<&str, usize> = HashMap::with_capacity(self.metrics().len());
        self.metrics().iter().map(move |metric| {
            let count = counts.entry(&metric.label).or_default();
            *count += 1;
            (*count - 1, metric)
        })
    }
}
