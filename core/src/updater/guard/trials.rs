//! Trial evictions, which test whether new pods get the recommended resources while that is unproven. The workloads are
//! recorded, so that trials rotate over namespaces and workloads.

use std::collections::BTreeMap;

use crate::types::{ObjectKey, Time};
use serde::{Deserialize, Serialize};

/// Maximum number of stored workloads. There are few trials per day.
const MAX_WORKLOADS: usize = 32;

/// Workloads that were tried without an observed effect: number of trials, and time of the last one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trials(BTreeMap<String, (u32, Time)>);

/// Sort key of a workload for the next trial: the smallest comes first.
///
/// A trial of a workload counts twice: for the workload and for its namespace. So a tried workload waits until others were
/// tried, but not until a namespace with many workloads has tried all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialPriority {
    trials: u32,
    namespace_tried: Option<Time>,
    tried: Option<Time>,
}

#[derive(Debug)]
pub struct TrialOrder<'a> {
    trials: &'a Trials,
    namespaces: BTreeMap<&'a str, (u32, Time)>,
}

impl Trials {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn record(&mut self, vpa: &ObjectKey, now: Time) {
        let trial = self.0.entry(vpa.to_string()).or_insert((0, now));
        *trial = (trial.0.saturating_add(1), now);
        while self.0.len() > MAX_WORKLOADS {
            let oldest = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    /// Removes the trials of a workload, because a new pod of it got the recommended resources.
    pub fn remove(&mut self, vpa: &ObjectKey) {
        self.0.remove(&vpa.to_string());
    }

    pub fn expire_before(&mut self, oldest: Time) {
        self.0.retain(|_, (_, at)| *at > oldest);
    }

    /// Returns the order of all workloads.
    pub fn order(&self) -> TrialOrder<'_> {
        let mut namespaces: BTreeMap<&str, (u32, Time)> = BTreeMap::new();
        for (name, (times, at)) in &self.0 {
            let namespace = name.split_once('/').map_or("", |(namespace, _)| namespace);
            let known = namespaces.entry(namespace).or_insert((0, *at));
            *known = (known.0.saturating_add(*times), known.1.max(*at));
        }
        TrialOrder { trials: self, namespaces }
    }
}

impl TrialOrder<'_> {
    /// Returns the sort key of a workload.
    pub fn priority_of(&self, vpa: &ObjectKey) -> TrialPriority {
        let of_workload = self.trials.0.get(&vpa.to_string());
        let of_namespace = self.namespaces.get(&*vpa.namespace);
        let times = |found: Option<&(u32, Time)>| found.map_or(0, |(times, _)| *times);
        let last = |found: Option<&(u32, Time)>| found.map(|(_, at)| *at);
        TrialPriority {
            trials: times(of_workload).saturating_add(times(of_namespace)),
            namespace_tried: last(of_namespace),
            tried: last(of_workload),
        }
    }
}
