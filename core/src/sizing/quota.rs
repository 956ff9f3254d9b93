//! Checks whether a pod fits the ResourceQuotas of its namespace.

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

/// The fields of a ResourceQuota that are needed to check a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub name: Box<str>,
    /// `status.hard`.
    pub hard: ResourceList,
    /// `status.used`.
    pub used: ResourceList,
    /// Counts only pods that match all of these scopes.
    pub scopes: Vec<Scope>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// `BestEffort` or `NotBestEffort`.
    BestEffort(bool),
    /// `Terminating` or `NotTerminating`.
    Terminating(bool),
    /// Pods with one of these priority classes.
    PriorityIn(Vec<Box<str>>),
    /// Pods with another priority class, or none.
    PriorityNotIn(Vec<Box<str>>),
    /// Pods with any priority class, or without one.
    HasPriority(bool),
    /// An unknown scope. It matches no pod, so that the quota blocks nothing.
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
    /// Whether the quota counts a pod of this QoS class.
    fn applies_to(&self, pod: &Pod, class: QosClass) -> bool {
        self.scopes.iter().all(|scope| scope.matches(pod, class))
    }
}

/// How a pod gets its new resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOperation {
    /// The pod is created: all of its resources are charged, in addition to those of a pod that it replaces.
    Create,
    /// The pod is resized: only the difference is charged.
    Resize,
}

/// A quota that would be exceeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("ResourceQuota {quota} would be exceeded: {wanted} more {resource} needed, {left} left")]
#[serde(rename_all = "camelCase")]
pub struct QuotaExceeded {
    /// Name of the ResourceQuota.
    pub quota: Box<str>,
    /// The resource of the quota, such as `requests.cpu`.
    pub resource: Box<str>,
    /// The additional amount that the pod needs.
    pub wanted: Quantity,
    pub left: Quantity,
}

/// Resources of a quota, the resource of the pod that they count, and whether they count limits.
const QUOTA_RESOURCES: [(&str, ResourceName, bool); 6] = [
    ("cpu", ResourceName::Cpu, false),
    ("requests.cpu", ResourceName::Cpu, false),
    ("limits.cpu", ResourceName::Cpu, true),
    ("memory", ResourceName::Memory, false),
    ("requests.memory", ResourceName::Memory, false),
    ("limits.memory", ResourceName::Memory, true),
];

/// Returns all quotas that would be exceeded. A resource that does not grow is never rejected, even if the namespace is
/// over its quota already.
pub fn exceeded_quotas(
    quotas: &[Quota],
    pod: &Pod,
    sizes: &[SizedContainer],
    change: PodOperation,
) -> Vec<QuotaExceeded> {
    let after = PodTotals::new(pod, sizes);
    let before = match change {
        PodOperation::Create => PodTotals::default(),
        PodOperation::Resize => PodTotals::new(pod, &[]),
    };
    let class = qos_with(pod, sizes);
    let mut excesses = Vec::new();
    for quota in quotas.iter().filter(|quota| quota.applies_to(pod, class)) {
        for (quota_resource, resource, of_limits) in &QUOTA_RESOURCES {
            let Some(hard) = quota.hard.get(&ResourceName::from(*quota_resource)) else { continue };
            let used = quota.used.get(&ResourceName::from(*quota_resource)).unwrap_or_default();
            let pick = |totals: &PodTotals| {
                let list = if *of_limits { &totals.limits } else { &totals.requests };
                list.get(resource).unwrap_or_default()
            };
            let (more, left) = (pick(&after) - pick(&before), hard - used);
            if more > Quantity::ZERO && more > left {
                let (quota, resource) = (quota.name.clone(), (*quota_resource).into());
                excesses.push(QuotaExceeded { quota, resource, wanted: more, left });
            }
        }
    }
    excesses
}

/// Rejects sizes that would exceed a quota, if the unchanged pod would not: an unsized pod is better than none.
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
