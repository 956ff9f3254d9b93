//! What is told of one WatermarkPodAutoscaler, as plain data borrowed from the memory of the role.

use std::collections::HashMap;

use plimsoll_core::types::ObjectKey;

use plimsoll_core::watermark::{Restriction, ScaleDirection, cooldown::CooldownRemaining};

/// What is told of one object. What is `None` has no series.
#[derive(Clone, Copy)]
pub struct WatermarkRow<'a> {
    /// Which one.
    pub key: &'a ObjectKey,
    /// Kind of what it scales, as it is written in the object.
    pub target_kind: &'a str,
    /// Name of what it scales.
    pub target_name: &'a str,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// The fewest replicas.
    pub min_replicas: i32,
    /// The most replicas.
    pub max_replicas: i32,
    /// How far beyond a mark is still inside, as a share of the mark.
    pub tolerance: f64,
    /// Replicas that were decided last, limits and all; in a dry run those that there would be.
    pub effective_replicas: Option<f64>,
    /// Whether the condition `ScalingActive` is true.
    pub scaling_active: Option<bool>,
    /// Whether the condition `AbleToScale` is true.
    pub able_to_scale: Option<bool>,
    /// Whether the condition `ScalingLimited` is true.
    pub scaling_limited: Option<bool>,
    /// Whether the condition `ScalingBlocked` is true.
    pub scaling_blocked: Option<bool>,
    /// Upstream's `within_bounds`: all metrics are between their marks. Nothing is known of it after a failure.
    pub within_bounds: Option<bool>,
    /// Upstream's `upscale_capping`.
    pub upscale_capping: Option<bool>,
    /// Upstream's `downscale_capping`.
    pub downscale_capping: Option<bool>,
    /// All that holds, for the series of our own.
    pub restrictions: Option<Restrictions>,
    /// Seconds until replicas may be changed again.
    pub cooldown_remaining: Option<CooldownRemaining>,
    /// Replicas that were added by this process, once it has changed any.
    pub upscale_total: Option<u64>,
    /// Replicas that were removed by this process, once it has changed any.
    pub downscale_total: Option<u64>,
    /// Age of the latest value, in seconds.
    pub staleness_seconds: Option<f64>,
    /// The gate of its life cycle, while it has one.
    pub monitor_gate: Option<MonitorGateRow<'a>>,
    /// Its metrics in the order of the object; a recommender is one of them.
    pub sources: &'a [SourceRow<'a>],
    /// The label of the object with this key.
    pub label: &'a dyn Fn(&str) -> Option<&'a str>,
}

/// What has to be well before anything is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorGateRow<'a> {
    /// Name of the monitor.
    pub monitor_name: &'a str,
    /// Where it is.
    pub monitor_namespace: &'a str,
    /// Whether it is not well.
    pub is_blocked: bool,
}

/// What is told of one metric of an object. Values are thousandths of what it counts, as upstream's series have them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SourceRow<'a> {
    /// Its name.
    pub metric_name: &'a str,
    /// What is compared with the marks.
    pub value_milli: Option<f64>,
    /// The high mark, without tolerance.
    pub high_milli: Option<f64>,
    /// The low mark, without tolerance.
    pub low_milli: Option<f64>,
    /// Replicas that follow from it, before any limit.
    pub proposal: Option<f64>,
}

/// A set of restrictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restrictions(u16);

impl Restrictions {
    /// Whether this one holds.
    pub const fn has(self, restriction: Restriction) -> bool {
        self.0 & Self::bit(restriction) != 0
    }

    /// A bit for each restriction that holds.
    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Those with these bits.
    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(bits as u16)
    }

    const fn bit(restriction: Restriction) -> u16 {
        1 << restriction as u16
    }
}

impl FromIterator<Restriction> for Restrictions {
    fn from_iter<I: IntoIterator<Item = Restriction>>(all: I) -> Self {
        Self(all.into_iter().fold(0, |bits, restriction| bits | Self::bit(restriction)))
    }
}

/// The objects of a role, as rows. Each call visits one page of about [`PAGE`](crate::telemetry::objects::PAGE) objects in
/// order of their keys, from the first key after `after` on, and says from where to go on; it holds its lock no longer
/// than that. `None`: that was the last page.
pub trait WpaMetricsSource: Send + Sync {
    /// Visits a page of objects.
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(WatermarkRow<'_>),
    ) -> Option<ObjectKey>;
}

/// Takes a label of its own and a value.
pub(in crate::telemetry) type EmitSample<'a> = dyn FnMut(&str, f64) + 'a;

impl<'a> WatermarkRow<'a> {
    /// Seconds left, by the way that replicas go.
    pub(in crate::telemetry) fn emit_cooldowns(&self, each: &mut EmitSample<'_>) {
        if let Some(left) = self.cooldown_remaining {
            each(ScaleDirection::Down.as_str(), left.down);
            each(ScaleDirection::Up.as_str(), left.up);
        }
    }

    /// Upstream's three reasons, as far as they are known.
    pub(super) fn emit_cappings(&self, each: &mut EmitSample<'_>) {
        for (reason, holds) in [
            (Restriction::DownscaleCapping, self.downscale_capping),
            (Restriction::UpscaleCapping, self.upscale_capping),
            (Restriction::WithinBounds, self.within_bounds),
        ] {
            if let Some(holds) = holds {
                each(reason.as_str(), bool_value(holds));
            }
        }
    }

    /// The conditions that upstream shows.
    pub(super) fn emit_conditions(&self, each: &mut EmitSample<'_>) {
        for (condition, is_true) in [
            ("able_to_scale", self.able_to_scale),
            ("scaling_blocked", self.scaling_blocked),
            ("scaling_limited", self.scaling_limited),
        ] {
            if let Some(is_true) = is_true {
                each(condition, bool_value(is_true));
            }
        }
    }

    /// Its metrics, of those with the same name only the last: series of upstream's know them by nothing else.
    pub(super) fn last_source_by_name(&self) -> impl Iterator<Item = &'a SourceRow<'a>> {
        let sources = self.sources;
        let places = sources.iter().enumerate();
        let last: HashMap<&str, usize> =
            places.map(|(place, source)| (source.metric_name, place)).collect();
        let is_last = move |place, source: &SourceRow<'_>| last[source.metric_name] == place;
        sources
            .iter()
            .enumerate()
            .filter_map(move |(place, source)| is_last(place, source).then_some(source))
    }

    /// Its metrics, each with how many before it have the same name.
    pub(super) fn numbered_sources(&self) -> impl Iterator<Item = (usize, &'a SourceRow<'a>)> {
        let mut seen: HashMap<&str, usize> = HashMap::with_capacity(self.sources.len());
        self.sources.iter().map(move |source| {
            let before = seen.entry(source.metric_name).or_default();
            *before += 1;
            (*before - 1, source)
        })
    }
}

/// As a gauge.
pub(super) const fn bool_value(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it_and_nothing_else() {
        for held in Restriction::ALL {
            let set = Restrictions::from_iter([held]);
            let found = Restriction::ALL.into_iter().filter(|other| set.has(*other));
            assert_eq!(found.collect::<Vec<_>>(), [held]);
        }
        assert!(Restriction::ALL.iter().all(|one| !Restrictions::default().has(*one)));
    }
}
