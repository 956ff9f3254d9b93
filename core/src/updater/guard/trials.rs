//! Evictions that try whether new pods get what is recommended, while none is known to have got it: of which workloads
//! they were, so that each namespace and each workload has its turn.

use std::collections::BTreeMap;

use crate::types::{ObjectKey, Time};
use serde::{Deserialize, Serialize};

/// Workloads that are remembered. There are few trials a day.
const MAX_WORKLOADS: usize = 32;

/// Workloads that were tried without a sign of an effect: how often, and when the last time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Trials(BTreeMap<String, (u32, Time)>);

/// When a workload has its turn: the lesser one first.
///
/// Trials of the workload count twice, as its own and as one of its namespace's. So a workload that was tried waits until
/// the others were, but not until a namespace with any number of workloads has tried all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrialPriority {
    trials: u32,
    namespace_tried: Option<Time>,
    tried: Option<Time>,
}

/// Turns of workloads.
#[derive(Debug)]
pub struct TrialOrder<'a> {
    trials: &'a Trials,
    namespaces: BTreeMap<&'a str, (u32, Time)>,
}

fn name(vpa: &ObjectKey) -> String {
    format!("{}/{}", vpa.namespace, vpa.name)
}

impl Trials {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A pod of this workload is evicted.
    pub fn record(&mut self, vpa: &ObjectKey, now: Time) {
        let trial = self.0.entry(name(vpa)).or_insert((0, now));
        *trial = (trial.0.saturating_add(1), now);
        while self.0.len() > MAX_WORKLOADS {
            let oldest = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.0.remove(&oldest);
        }
    }

    /// A pod of this workload got what is recommended.
    pub fn remove(&mut self, vpa: &ObjectKey) {
        self.0.remove(&name(vpa));
    }

    /// Forgets what was longer ago than that.
    pub fn expire_before(&mut self, oldest: Time) {
        self.0.retain(|_, (_, at)| *at > oldest);
    }

    /// The turns of all workloads.
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
    /// That of a workload.
    pub fn priority_of(&self, vpa: &ObjectKey) -> TrialPriority {
        let own = self.trials.0.get(&name(vpa));
        let all = self.namespaces.get(&*vpa.namespace);
        let times = |found: Option<&(u32, Time)>| found.map_or(0, |(times, _)| *times);
        let last = |found: Option<&(u32, Time)>| found.map(|(_, at)| *at);
        TrialPriority {
            trials: times(own).saturating_add(times(all)),
            namespace_tried: last(all),
            tried: last(own),
        }
    }
}
