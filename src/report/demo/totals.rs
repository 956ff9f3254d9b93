//! The totals of a scenario: requests, usage, throttling and OOM kills, summed up over its steps.
//!
//! All are integers, so that the sums are exact and do not depend on the order of addition. With the default settings the
//! largest (bytes times minutes of the longest demo) stay below 2^53, which every JSON parser represents exactly; the types
//! are wide enough for all requests that flags can cause.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use plimsoll_core::sim::{ContainerMinute, MinuteSink, Workload};

/// Sums over the minutes of some containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Requested CPU, in millicores times minutes.
    pub requested_millicore_minutes: i128,
    /// Requested memory, in bytes times minutes.
    pub requested_byte_minutes: i128,
    /// Used CPU, in millicores times minutes.
    pub used_millicore_minutes: i128,
    /// Used memory, in bytes times minutes.
    pub used_byte_minutes: i128,
    /// Minutes that containers ran.
    pub running_minutes: i64,
    /// Minutes in which CPU was throttled.
    pub throttled_minutes: i64,
    /// OOM kills of containers.
    pub oom_kills: i64,
    /// Pods that were replaced to change their requests. A pod counts once for each of its containers, and once in the
    /// totals of a scenario.
    pub replaced_pods: i64,
}

impl Totals {
    /// Requested CPU in core-hours.
    pub fn core_hours(&self) -> f64 {
        core_hours(self.requested_millicore_minutes)
    }

    /// Requested memory in GiB-hours.
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

    fn add(&mut self, other: &Self) {
        // Destructured, so that a new field cannot be forgotten.
        let Self {
            requested_millicore_minutes,
            requested_byte_minutes,
            used_millicore_minutes,
            used_byte_minutes,
            running_minutes,
            throttled_minutes,
            oom_kills,
            replaced_pods,
        } = other;
        self.requested_millicore_minutes += requested_millicore_minutes;
        self.requested_byte_minutes += requested_byte_minutes;
        self.used_millicore_minutes += used_millicore_minutes;
        self.used_byte_minutes += used_byte_minutes;
        self.running_minutes += running_minutes;
        self.throttled_minutes += throttled_minutes;
        self.oom_kills += oom_kills;
        self.replaced_pods += replaced_pods;
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

/// The names of a workload and one of its containers.
pub type ContainerName = (Arc<str>, Arc<str>);

/// The totals of all containers of a scenario.
#[derive(Clone, Debug, Default)]
pub struct TotalsByContainer {
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

    /// The totals of all containers together.
    pub fn total(&self) -> Totals {
        let pods = Totals { replaced_pods: self.replaced_pods.values().sum(), ..Totals::default() };
        self.by_container.values().fold(pods, |mut sum, totals| {
            sum.add(totals);
            sum
        })
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
        self.by_container.entry(names).or_default().count(step);
    }
}
