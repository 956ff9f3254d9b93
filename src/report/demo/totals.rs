//! The totals of a scenario: requests, usage, throttling and OOM kills, summed up over its steps.
//!
//! All are integers, so that the sums are exact and do not depend on the order of addition. With the default settings the
//! largest (bytes times minutes of the longest demo) stay below 2^53, which every JSON parser represents exactly; the types
//! are wide enough for all requests that flags can cause.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use plimsoll_core::{
    sim::{ContainerMinute, MinuteSink, Workload},
    types::Time,
};
use serde::{Deserialize, Serialize};

/// Sums over the minutes of some containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    pub requested_millicore_minutes: i128,
    pub requested_byte_minutes: i128,
    pub used_millicore_minutes: i128,
    pub used_byte_minutes: i128,
    pub running_minutes: i64,
    pub throttled_minutes: i64,
    pub oom_kills: i64,
    /// Pods that were replaced to change their requests. A pod counts once for each of its containers, and once in the
    /// totals of a scenario.
    pub replaced_pods: i64,
}

impl Totals {
    pub fn core_hours(&self) -> f64 {
        core_hours(self.requested_millicore_minutes)
    }

    pub fn gib_hours(&self) -> f64 {
        gib_hours(self.requested_byte_minutes)
    }

    fn count(&mut self, step: &ContainerMinute) {
        self.requested_millicore_minutes += i128::from(step.share.request.cpu.0);
        self.requested_byte_minutes += i128::from(step.share.request.memory.0);
        self.used_millicore_minutes += i128::from(step.usage.cpu.0);
        self.used_byte_minutes += i128::from(step.usage.memory.0);
        self.running_minutes += i64::from(step.running);
        self.throttled_minutes += i64::from(step.throttled);
        self.oom_kills += i64::from(step.oom_killed);
    }
}

/// Converts millicores times minutes to core-hours.
pub fn core_hours(millicore_minutes: i128) -> f64 {
    millicore_minutes as f64 / 60_000.0
}

/// Converts bytes times minutes to GiB-hours.
pub fn gib_hours(byte_minutes: i128) -> f64 {
    byte_minutes as f64 / (60.0 * 1024.0 * 1024.0 * 1024.0)
}

pub type ContainerName = (Arc<str>, Arc<str>);

#[derive(Clone, Debug, Default)]
pub struct TotalsByContainer {
    all: Totals,
    by_container: BTreeMap<ContainerName, Totals>,
    replaced_pods: BTreeMap<Arc<str>, i64>,
}

impl TotalsByContainer {
    /// The totals of one container; all zero if it never ran.
    pub fn container_totals(&self, workload: &Arc<str>, container: &Arc<str>) -> Totals {
        let names = (workload.clone(), container.clone());
        Totals {
            replaced_pods: self.replaced_pods.get(workload).copied().unwrap_or_default(),
            ..self.by_container.get(&names).copied().unwrap_or_default()
        }
    }

    pub fn total(&self) -> Totals {
        Totals { replaced_pods: self.replaced_pods.values().sum(), ..self.all }
    }

    /// Sets how many pods of each workload were replaced in the whole scenario, which the steps do not show.
    pub fn set_replaced_pods<'a>(&mut self, replaced: impl Iterator<Item = (&'a Workload, u64)>) {
        self.replaced_pods =
            replaced.map(|(workload, pods)| (Arc::clone(&workload.name), pods as i64)).collect();
    }
}

impl MinuteSink for TotalsByContainer {
    fn record(&mut self, step: &ContainerMinute) {
        let names = (step.workload.clone(), step.container.clone());
        self.all.count(step);
        self.by_container.entry(names).or_default().count(step);
    }
}

pub const POINT_MINUTES: u32 = 120;

/// The chart of one container: one entry for each point, `null` if no replica ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chart {
    /// Mean CPU usage of a running replica, in millicores.
    pub cpu_usage: Vec<Option<i64>>,
    /// Mean CPU request of a replica, in millicores.
    pub cpu_request: Vec<Option<i64>>,
    /// Highest memory usage of any replica, in bytes.
    pub memory_usage: Vec<Option<i64>>,
    /// Mean memory request of a replica, in bytes.
    pub memory_request: Vec<Option<i64>>,
    pub oom_kills: Vec<i64>,
}

#[derive(Clone, Debug)]
pub struct Charts {
    start: Time,
    points: usize,
    by_container: BTreeMap<ContainerName, Vec<PointSums>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PointSums {
    running: i64,
    replicas: i64,
    cpu_usage: i128,
    cpu_request: i128,
    memory_peak: i64,
    memory_request: i128,
    oom_kills: i64,
}

impl Charts {
    /// Creates charts for a scenario that starts at `start`.
    pub fn new(start: Time, days: u32) -> Self {
        let points = (days * 24 * 60).div_ceil(POINT_MINUTES) as usize;
        Self { start, points, by_container: BTreeMap::new() }
    }

    /// The chart of one container, without values if it never ran.
    pub fn container_chart(&self, workload: &Arc<str>, container: &Arc<str>) -> Chart {
        let mut chart = Chart::default();
        let no_points = vec![PointSums::default(); self.points];
        let names = (workload.clone(), container.clone());
        for point in self.by_container.get(&names).unwrap_or(&no_points) {
            let mean = |sum: i128, of: i64| {
                // A mean lies within the range of its values, so it fits.
                (of > 0).then(|| i64::try_from(sum / i128::from(of)).unwrap_or(i64::MAX))
            };
            chart.cpu_usage.push(mean(point.cpu_usage, point.running));
            chart.cpu_request.push(mean(point.cpu_request, point.replicas));
            chart.memory_usage.push((point.running > 0).then_some(point.memory_peak));
            chart.memory_request.push(mean(point.memory_request, point.replicas));
            chart.oom_kills.push(point.oom_kills);
        }
        chart
    }
}

impl MinuteSink for Charts {
    fn record(&mut self, step: &ContainerMinute) {
        // A step has the timestamp of the end of its minute, and belongs to the point in which it started.
        let started = step.at.earlier(Duration::from_mins(1)).nanos_since(self.start);
        let width = i64::from(POINT_MINUTES) * 60 * 1_000_000_000;
        let Ok(index) = usize::try_from(started.div_euclid(width)) else { return };
        let names = (step.workload.clone(), step.container.clone());
        let points = self.points;
        let point_sums = self
            .by_container
            .entry(names)
            .or_insert_with(|| vec![PointSums::default(); points])
            .get_mut(index);
        let Some(point) = point_sums else { return };
        point.replicas += 1;
        point.running += i64::from(step.running);
        point.cpu_usage += i128::from(step.usage.cpu.0);
        point.cpu_request += i128::from(step.share.request.cpu.0);
        point.memory_peak = point.memory_peak.max(step.usage.memory.0);
        point.memory_request += i128::from(step.share.request.memory.0);
        point.oom_kills += i64::from(step.oom_killed);
    }
}
