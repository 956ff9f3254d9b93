//! The account of a life: what was requested, used, throttled and killed, added up from its steps.
//!
//! Whole numbers only, so that the sums are exact and do not depend on the order of adding. With the default
//! model the largest (bytes times minutes of the longest demo) stay below 2^53, which every JSON reader
//! keeps exactly; they are wide enough for every request that flags can bring about.

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
    /// Times that a container was killed for lack of memory.
    pub oom_kills: i64,
    /// Pods that were replaced to give them other requests. A pod counts for each of its containers here, and
    /// once in the sums of a life.
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

/// Millicores times minutes as core-hours.
pub fn core_hours(millicore_minutes: i128) -> f64 {
    millicore_minutes as f64 / 60_000.0
}

/// Bytes times minutes as GiB-hours.
pub fn gib_hours(byte_minutes: i128) -> f64 {
    byte_minutes as f64 / (60.0 * 1024.0 * 1024.0 * 1024.0)
}

/// A container of a workload.
pub type ContainerName = (Arc<str>, Arc<str>);

/// The totals of every container of a life.
#[derive(Clone, Debug, Default)]
pub struct TotalsByContainer {
    by_container: BTreeMap<ContainerName, Totals>,
    replaced_pods: BTreeMap<Arc<str>, i64>,
}

impl TotalsByContainer {
    /// The totals of one container; all zero if it never lived.
    pub fn container_totals(&self, workload: &Arc<str>, container: &Arc<str>) -> Totals {
        let place = (workload.clone(), container.clone());
        Totals {
            replaced_pods: self.replaced_pods.get(workload).copied().unwrap_or_default(),
            ..self.by_container.get(&place).copied().unwrap_or_default()
        }
    }

    /// The totals of everything.
    pub fn total(&self) -> Totals {
        let pods = Totals { replaced_pods: self.replaced_pods.values().sum(), ..Totals::default() };
        self.by_container.values().fold(pods, |mut sum, totals| {
            sum.add(totals);
            sum
        })
    }

    /// Takes how many pods of each workload were replaced in the whole life: a step does not say why its pod
    /// is there.
    pub fn set_replaced_pods<'a>(&mut self, of: impl Iterator<Item = (&'a Workload, u64)>) {
        self.replaced_pods =
            of.map(|(workload, pods)| (Arc::clone(&workload.name), pods as i64)).collect();
    }
}

impl MinuteSink for TotalsByContainer {
    fn record(&mut self, step: &ContainerMinute) {
        let place = (step.workload.clone(), step.container.clone());
        self.by_container.entry(place).or_default().count(step);
    }
}
