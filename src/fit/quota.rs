//! Whether a namespace's ResourceQuotas have room for what a pod would ask for.

use serde::Serialize;

use super::{demand::Demand, pod::Pod, sizes::Size};
use crate::{
    api::{ResourceList, ResourceName},
    quantity::Quantity,
};

/// A ResourceQuota that counts a pod. One whose scopes leave the pod out is not to be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: Box<str>,
    /// What it allows.
    pub hard: ResourceList,
    /// What is in use.
    pub used: ResourceList,
}

/// How a pod comes by its new sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is created: all of it counts. One that it replaces counts until it is gone.
    Creation,
    /// It is resized: what it has already counts.
    Resize,
}

/// What a quota has no room for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Excess {
    /// The quota.
    pub quota: Box<str>,
    /// What it counts, in its words: `requests.cpu`.
    pub resource: Box<str>,
    /// How much more is wanted.
    pub wanted: Quantity,
    /// How much there is left.
    pub left: Quantity,
}

/// What quotas count about CPU and memory, and of which list.
const COUNTED: [(&str, ResourceName, bool); 6] = [
    ("cpu", ResourceName::Cpu, false),
    ("requests.cpu", ResourceName::Cpu, false),
    ("limits.cpu", ResourceName::Cpu, true),
    ("memory", ResourceName::Memory, false),
    ("requests.memory", ResourceName::Memory, false),
    ("limits.memory", ResourceName::Memory, true),
];

/// All that the quotas have no room for. What would not grow is never refused, however much over its quota a namespace
/// is.
pub fn excesses(quotas: &[Quota], pod: &Pod, sizes: &[Size], change: Change) -> Vec<Excess> {
    let wanted = Demand::of(pod, sizes);
    let has = match change {
        Change::Creation => Demand::default(),
        Change::Resize => Demand::of(pod, &[]),
    };
    let mut excesses = Vec::new();
    for quota in quotas {
        for (counted, resource, of_limits) in &COUNTED {
            let Some(hard) = quota.hard.get(&ResourceName::from(*counted)) else { continue };
            let used = quota.used.get(&ResourceName::from(*counted)).unwrap_or_default();
            let pick = |demand: &Demand| {
                let list = if *of_limits { &demand.limits } else { &demand.requests };
                list.get(resource).unwrap_or_default()
            };
            let (more, left) = (pick(&wanted) - pick(&has), hard - used);
            if more > Quantity::ZERO && more > left {
                let (quota, resource) = (quota.name.clone(), (*counted).into());
                excesses.push(Excess { quota, resource, wanted: more, left });
            }
        }
    }
    excesses
}
