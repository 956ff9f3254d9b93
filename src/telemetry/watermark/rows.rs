//! The metrics of one WatermarkPodAutoscaler, as plain data borrowed from the state of the controller.

use std::collections::HashMap;

use plimsoll_core::types::ObjectKey;

use plimsoll_core::watermark::{Restriction, ScaleDirection, cooldown::CooldownRemaining};

/// Metrics of one object. `None` emits no series.
#[derive(Clone, Copy)]
pub struct WatermarkRow<'a> {
    /// The object.
    pub key: &'a ObjectKey,
    /// The kind of the target, as in the object.
    pub target_kind: &'a str,
    /// The name of the target.
    pub target_name: &'a str,
    /// Whether the object is in dry-run mode.
    pub dry_run: bool,
    /// The minimum replicas.
    pub min_replicas: i32,
    /// The maximum replicas.
    pub max_replicas: i32,
    /// How far beyond a watermark still counts as inside, as a share of the watermark.
    pub tolerance: f64,
    /// The replicas of the last decision after all limits, including in dry-run mode.
    pub effective_replicas: Option<f64>,
    /// Whether the condition `ScalingActive` is true.
    pub scaling_active: Option<bool>,
    /// Whether the condition `AbleToScale` is true.
    pub able_to_scale: Option<bool>,
    /// Whether the condition `ScalingLimited` is true.
    pub scaling_limited: Option<bool>,
    /// Whether the condition `ScalingBlocked` is true.
    pub scaling_blocked: Option<bool>,
    /// Upstream's `within_bounds`: all metrics are between their watermarks. `None` after a failure.
    pub within_bounds: Option<bool>,
    /// Upstream's `upscale_capping`.
    pub upscale_capping: Option<bool>,
    /// Upstream's `downscale_capping`.
    pub downscale_capping: Option<bool>,
    /// The active restrictions, for our own series.
    pub restrictions: Option<Restrictions>,
    /// Seconds until replicas may be changed again.
    pub cooldown_remaining: Option<CooldownRemaining>,
    /// Replicas added by this process, once it has changed any.
    pub upscale_total: Option<u64>,
    /// Replicas removed by this process, once it has changed any.
    pub downscale_total: Option<u64>,
    /// The age of the latest value, in seconds.
    pub staleness_seconds: Option<f64>,
    /// The monitor that gates scaling, if there is one.
    pub monitor_gate: Option<MonitorGateRow<'a>>,
    /// The metrics in the order of the object, including a recommender.
    pub sources: &'a [SourceRow<'a>],
    /// Returns the label of the object with this key.
    pub label: &'a dyn Fn(&str) -> Option<&'a str>,
}

/// A monitor that gates scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorGateRow<'a> {
    /// The name of the monitor.
    pub monitor_name: &'a str,
    /// The namespace of the monitor.
    pub monitor_namespace: &'a str,
    /// Whether the monitor blocks scaling.
    pub is_blocked: bool,
}

/// Metrics of one metric of an object. Values are in thousandths of its unit, as in upstream's series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SourceRow<'a> {
    /// The name of the metric.
    pub metric_name: &'a str,
    /// The value that is compared with the watermarks.
    pub value_milli: Option<f64>,
    /// The high watermark, without tolerance.
    pub high_milli: Option<f64>,
    /// The low watermark, without tolerance.
    pub low_milli: Option<f64>,
    /// The proposed replicas, before limits.
    pub proposal: Option<f64>,
}

/// A set of restrictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions(u16);

impl Restrictions {
    /// Whether the set contains a restriction.
    pub const fn has(self, restriction: Restriction) -> bool {
        self.0 & Self::bit(restriction) != 0
    }

    /// One bit for each restriction in the set.
    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The set with these bits.
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits as u16)
    }

    const fn bit(restriction: Restriction) -> u16 {
        1 << restriction as u16
    }
}

impl FromIterator<Restriction> for Restrictions {
    fn from_iter<I: IntoIterator<Item = Restriction>>(restrictions: I) -> Self {
        Self(restrictions.into_iter().fold(0, |bits, restriction| bits | Self::bit(restriction)))
    }
}

/// The objects of a controller as rows. Each call visits one page of about
/// [`PAGE_SIZE`](crate::telemetry::objects::PAGE_SIZE) objects in order of their keys, starting after the key `after`, and
/// returns the key to continue from, or `None` after the last page. The lock is held for one page only.
pub trait WpaMetricsSource: Send + Sync {
    /// Visits a page of objects.
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(WatermarkRow<'_>),
    ) -> Option<ObjectKey>;
}

/// Receives the additional label of a series and its value.
pub(in crate::telemetry) type EmitSample<'a> = dyn FnMut(&str, f64) + 'a;

impl<'a> WatermarkRow<'a> {
    /// Emits the remaining seconds by direction.
    pub(in crate::telemetry) fn emit_cooldowns(&self, emit: &mut EmitSample<'_>) {
        if let Some(remaining) = self.cooldown_remaining {
            emit(ScaleDirection::Down.as_str(), remaining.down);
            emit(ScaleDirection::Up.as_str(), remaining.up);
        }
    }

    /// Emits upstream's three reasons, as far as they are known.
    pub(super) fn emit_cappings(&self, emit: &mut EmitSample<'_>) {
        for (reason, is_active) in [
            (Restriction::DownscaleCapping, self.downscale_capping),
            (Restriction::UpscaleCapping, self.upscale_capping),
            (Restriction::WithinBounds, self.within_bounds),
        ] {
            if let Some(is_active) = is_active {
                emit(reason.as_str(), bool_value(is_active));
            }
        }
    }

    /// Emits the conditions that upstream exposes.
    pub(super) fn emit_conditions(&self, emit: &mut EmitSample<'_>) {
        for (condition, is_true) in [
            ("able_to_scale", self.able_to_scale),
            ("scaling_blocked", self.scaling_blocked),
            ("scaling_limited", self.scaling_limited),
        ] {
            if let Some(is_true) = is_true {
                emit(condition, bool_value(is_true));
            }
        }
    }

    /// The metrics, but of those with the same name only the last: upstream's series distinguish them by name only.
    pub(super) fn last_source_by_name(&self) -> impl Iterator<Item = &'a SourceRow<'a>> {
        let sources = self.sources;
        let indexed = sources.iter().enumerate();
        let last: HashMap<&str, usize> =
            indexed.map(|(index, source)| (source.metric_name, index)).collect();
        let is_last = move |index, source: &SourceRow<'_>| last[source.metric_name] == index;
        sources
            .iter()
            .enumerate()
            .filter_map(move |(index, source)| is_last(index, source).then_some(source))
    }

    /// The metrics, each with the number of preceding ones with the same name.
    pub(super) fn numbered_sources(&self) -> impl Iterator<Item = (usize, &'a SourceRow<'a>)> {
        let mut counts: HashMap<&str, usize> = HashMap::with_capacity(self.sources.len());
        self.sources.iter().map(move |source| {
            let count = counts.entry(source.metric_name).or_default();
            *count += 1;
            (*count - 1, source)
        })
    }
}

/// The gauge value of a boolean.
pub(super) const fn bool_value(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_contains_exactly_what_was_inserted() {
        for restriction in Restriction::ALL {
            let set = Restrictions::from_iter([restriction]);
            let found = Restriction::ALL.into_iter().filter(|other| set.has(*other));
            assert_eq!(found.collect::<Vec<_>>(), [restriction]);
        }
        assert!(Restriction::ALL.iter().all(|other| !Restrictions::default().has(*other)));
    }
}
