//! Whether a namespace's ResourceQuotas have room for what a pod would ask for.

use std::fmt;

use serde::Serialize;

use super::{
    pod::{Pod, QosClass},
    pod_totals::PodTotals,
    reason::SizingError,
    sized_container::{SizedContainer, qos_with},
};
use crate::{
    api::{ResourceList, ResourceName},
    types::quantity::Quantity,
};

/// A ResourceQuota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Its name.
    pub name: Box<str>,
    /// What it allows.
    pub hard: ResourceList,
    /// What is in use.
    pub used: ResourceList,
    /// Which pods it counts: those that all of these take.
    pub scopes: Vec<Scope>,
}

/// Which pods a quota counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those that ask for nothing, or those that do.
    BestEffort(bool),
    /// Those that may run for a limited time only, or the others.
    Terminating(bool),
    /// Those of one of these priority classes.
    PriorityIn(Vec<Box<str>>),
    /// Those of another class, or of none.
    PriorityNotIn(Vec<Box<str>>),
    /// Those of any class, or of none.
    HasPriority(bool),
    /// Nobody here knows which. Such a quota is taken to count none, so that nothing is held back for it.
    Unknown,
}

impl Scope {
    fn matches(&self, pod: &Pod, class: QosClass) -> bool {
        let is_of = |classes: &[Box<str>]| {
            pod.priority_class.as_ref().is_some_and(|class| classes.contains(class))
        };
        match self {
            Self::BestEffort(wanted) => (class == QosClass::BestEffort) == *wanted,
            Self::Terminating(wanted) => pod.has_deadline == *wanted,
            Self::PriorityIn(classes) => is_of(classes),
            Self::PriorityNotIn(classes) => !is_of(classes),
            Self::HasPriority(wanted) => pod.priority_class.is_some() == *wanted,
            Self::Unknown => false,
        }
    }
}

impl Quota {
    /// Whether it counts a pod of that class.
    fn applies_to(&self, pod: &Pod, class: QosClass) -> bool {
        self.scopes.iter().all(|scope| scope.matches(pod, class))
    }
}

/// How a pod comes by its new sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOperation {
    /// It is created: all of it counts. One that it replaces counts until it is gone.
    Create,
    /// It is resized: what it has already counts.
    Resize,
}

/// What a quota has no room for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaExceeded {
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
const QUOTA_RESOURCES: [(&str, ResourceName, bool); 6] = [
    ("cpu", ResourceName::Cpu, false),
    ("requests.cpu", ResourceName::Cpu, false),
    ("limits.cpu", ResourceName::Cpu, true),
    ("memory", ResourceName::Memory, false),
    ("requests.memory", ResourceName::Memory, false),
    ("limits.memory", ResourceName::Memory, true),
];

/// All that the quotas have no room for. What would not grow is never refused, however much over its quota a namespace
/// is.
pub fn exceeded_quotas(
    quotas: &[Quota],
    pod: &Pod,
    sizes: &[SizedContainer],
    change: PodOperation,
) -> Vec<QuotaExceeded> {
    let wanted = PodTotals::new(pod, sizes);
    let has = match change {
        PodOperation::Create => PodTotals::default(),
        PodOperation::Resize => PodTotals::new(pod, &[]),
    };
    let class = qos_with(pod, sizes);
    let mut excesses = Vec::new();
    for quota in quotas.iter().filter(|quota| quota.applies_to(pod, class)) {
        for (counted, resource, of_limits) in &QUOTA_RESOURCES {
            let Some(hard) = quota.hard.get(&ResourceName::from(*counted)) else { continue };
            let used = quota.used.get(&ResourceName::from(*counted)).unwrap_or_default();
            let pick = |demand: &PodTotals| {
                let list = if *of_limits { &demand.limits } else { &demand.requests };
                list.get(resource).unwrap_or_default()
            };
            let (more, left) = (pick(&wanted) - pick(&has), hard - used);
            if more > Quantity::ZERO && more > left {
                let (quota, resource) = (quota.name.clone(), (*counted).into());
                excesses.push(QuotaExceeded { quota, resource, wanted: more, left });
            }
        }
    }
    excesses
}

/// Refuses sizes that a quota has no room for, if it has room for the pod as it is: better a pod without them than none.
pub fn ensure_quota(
    quotas: &[Quota],
    pod: &Pod,
    sizes: &[SizedContainer],
    change: PodOperation,
) -> Result<(), SizingError> {
    let Some(excess) = exceeded_quotas(quotas, pod, sizes, change).into_iter().next() else {
        return Ok(());
    };
    if exceeded_quotas(quotas, pod, &[], change).is_empty() {
        return Err(SizingError::QuotaExceeded { excess: Box::new(excess) });
    }
    Ok(())
}

impl fmt::Display for QuotaExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { quota, resource, wanted, left } = self;
        write!(
            f,
            "{wanted} of {resource} more would be asked of ResourceQuota {quota}, which has {left} left"
        )
    }
}
