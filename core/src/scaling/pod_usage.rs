//! Usage of pods from raw series, for clusters without a metrics server: CPU as the rate of a counter, memory as the mean of
//! a gauge, over the minute before the newest sample of each pod.
//!
//! ```text
//!   points of a series ──▶ valid, in order, since the last reset ──▶ one series per container ──▶ PodUsage of each pod
//! ```
//!
//! What a series does not tell is unknown, and never zero: a container with too few samples has no amount, and a pod without
//! a sample is left out.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use crate::types::{
    Quantity, Time,
    units::{Bytes, MilliCpu},
};

pub use crate::types::Resource;

/// The length of the window that usage is computed over.
pub const WINDOW: Duration = Duration::from_mins(1);
/// A sample that is older than this does not count.
pub const MAX_AGE: Duration = Duration::from_mins(5);
/// The shortest time between two samples that a rate is computed from. A kubelet measures every ten to fifteen seconds: in a
/// shorter time a counter may show the same measurement twice, whose rate would be zero.
const MIN_SPAN: Duration = Duration::from_secs(15);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// When the newest sample of the pod was taken.
    pub at: Time,
    /// The time before `at` that the amounts were measured in.
    pub window: Duration,
    /// The amount by container; `None` if its series does not tell.
    pub containers: BTreeMap<Box<str>, Option<Quantity>>,
}

/// Points of a series: a time, and a value.
type Points = Vec<(Time, f64)>;

/// The series of the containers of a namespace, for one resource.
#[derive(Clone, Debug)]
pub struct UsageSeries {
    resource: Resource,
    now: Time,
    /// The points that count of each container, by pod. They are in order of time; there may be none.
    pods: HashMap<Box<str>, BTreeMap<Box<str>, Points>>,
}

impl UsageSeries {
    pub fn new(resource: Resource, now: Time) -> Self {
        Self { resource, now, pods: HashMap::new() }
    }

    /// Adds a series of a container, with its points in any order. Of several series of a container the one with the newest
    /// sample counts, else the one with more samples, else the one with the larger value. So after a restart the old
    /// series does not.
    pub fn add(
        &mut self,
        pod: &str,
        container: &str,
        points: impl IntoIterator<Item = (Time, f64)>,
    ) {
        let oldest = self.now.earlier(MAX_AGE);
        let is_current = |(at, _): &(Time, f64)| *at > oldest && *at <= self.now;
        let points: Points = points.into_iter().filter(is_current).collect();
        if points.is_empty() {
            return;
        }
        let points = self.points_that_count(points);
        let containers = self.pods.entry(pod.into()).or_default();
        let stored = containers.entry(container.into()).or_default();
        let rank = |points: &Points| {
            // The bits of amounts have the same order as the amounts; a negative zero becomes zero.
            points.last().map(|&(at, value)| (at, points.len(), (value + 0.0).to_bits()))
        };
        if rank(&points) > rank(stored) {
            *stored = points;
        }
    }

    pub fn containers(&self) -> usize {
        self.pods.values().map(BTreeMap::len).sum()
    }

    pub fn clear(&mut self) {
        self.pods.clear();
    }

    /// The usage of each pod that has a sample.
    pub fn into_usage(self) -> HashMap<String, PodUsage> {
        let resource = self.resource;
        let usage = |(pod, containers): (Box<str>, _)| {
            Some((String::from(pod), pod_usage(resource, containers)?))
        };
        self.pods.into_iter().filter_map(usage).collect()
    }

    /// The valid points in order of time, without those that no window contains. Of a counter only those since its last
    /// reset: what was used between the reset and the point before it is unknown.
    fn points_that_count(&self, mut points: Points) -> Points {
        points.retain(|(_, value)| value.is_finite() && *value >= 0.0);
        points.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        // The larger one of two values at the same time is kept.
        points.reverse();
        points.dedup_by_key(|(at, _)| *at);
        points.reverse();
        let mut from = 0;
        if self.resource == Resource::Cpu {
            let resets = points.windows(2).rposition(|pair| pair[1].1 < pair[0].1);
            from = resets.map_or(0, |before| before + 1);
        }
        if let Some((last, _)) = points.last() {
            let begin = last.earlier(WINDOW);
            let in_window = points.partition_point(|(at, _)| *at <= begin);
            // A rate may begin at the last sample before the window.
            from = from.max(in_window.saturating_sub(1));
        }
        points.split_off(from)
    }
}

/// The usage of a pod; `None` without a sample.
fn pod_usage(resource: Resource, containers: BTreeMap<Box<str>, Points>) -> Option<PodUsage> {
    let newest = |points: &Points| points.last().map(|(at, _)| *at);
    let at = containers.values().filter_map(newest).max()?;
    let begin = at.earlier(WINDOW);
    let mut usage = PodUsage { at, window: WINDOW, containers: BTreeMap::new() };
    for (name, points) in containers {
        if newest(&points).is_some_and(|newest| newest <= begin) {
            // The container has ended, or its series is missing since.
            continue;
        }
        let amount = match resource {
            Resource::Cpu => rate(&points).map(|(cores, span)| {
                usage.window = usage.window.max(span);
                Quantity::cpu(MilliCpu::from_measured(cores))
            }),
            Resource::Memory => {
                mean(&points, begin).map(|bytes| Quantity::memory(Bytes::from_f64(bytes.round())))
            }
        };
        usage.containers.insert(name, amount);
    }
    Some(usage)
}

/// The rate of a counter per second up to its last point, and the time that it is a mean of: from the point that is nearest to
/// a minute before. So samples that are a minute apart have a rate, too.
fn rate(points: &[(Time, f64)]) -> Option<(f64, Duration)> {
    let ((last, value), earlier) = points.split_last()?;
    let begin = last.earlier(WINDOW);
    let distance = |at: Time| at.nanos_since(begin).unsigned_abs();
    let mut base: Option<(Time, f64)> = None;
    for &(at, value) in earlier {
        if base.is_none_or(|(nearest, _)| distance(at) <= distance(nearest)) {
            base = Some((at, value));
        }
    }
    let (at, first) = base?;
    let span = Duration::from_nanos(u64::try_from(last.nanos_since(at)).ok()?);
    (span >= MIN_SPAN).then(|| ((value - first) / span.as_secs_f64(), span))
}

/// The mean of the points after this time.
fn mean(points: &[(Time, f64)], begin: Time) -> Option<f64> {
    let values = points.iter().filter(|(at, _)| *at > begin).map(|(_, value)| *value);
    let count = values.clone().count();
    (count > 0).then(|| values.map(|value| value / count as f64).sum())
}

#[cfg(test)]
mod tests;
