//! Usage and requests over a scenario, in equal intervals: the data of the sparklines.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use serde::{Deserialize, Serialize};

use super::totals::ContainerName;
use plimsoll_core::sim::{ContainerMinute, MinuteSink};

/// Minutes of one point.
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
    /// OOM kills.
    pub oom_kills: Vec<i64>,
}

/// Collects the charts of all containers.
#[derive(Clone, Debug)]
pub struct Charts {
    start: Time,
    points: usize,
    by_container: BTreeMap<ContainerName, Vec<PointSums>>,
}

/// Sums of one container for one point.
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
