//! The replicas that a HorizontalPodAutoscaler would have had under other requests: `--hpa=model`.
//!
//! A target in percent is relative to requests: half the request is twice the utilization, and so twice the replicas. Each
//! pass is that of the HPA controller with its defaults: the largest proposal of all metrics, a tolerance of 10 %, the highest
//! proposal of 5 minutes when replicas are removed, then minimum and maximum. A `behavior` of the object is not modelled.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use crate::{
    hpa::{Config, Fixes, HpaState, Tolerance, numbers::percent, proposal, stabilization},
    rightsizing::survey::{Resource, Workload},
    types::Time,
};

/// Where the number of replicas comes from: `--hpa`.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Display,
    EnumString,
    IntoStaticStr,
    Serialize,
    Deserialize,
)]
#[strum(serialize_all = "camelCase")]
#[serde(rename_all = "camelCase")]
pub enum ReplicaRule {
    /// As recorded, whatever a policy requests.
    #[default]
    Recorded,
    /// As the autoscaler of the workload would have set it under the requests of each policy.
    Model,
}

/// How an autoscaler of a workload answers to its requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WorkloadScaling {
    /// Its replicas do not depend on requests.
    #[default]
    Independent,
    /// A HorizontalPodAutoscaler scales it by the utilization of requests, and by nothing else.
    Utilization(UtilizationScaling),
    /// Its replicas depend on requests in a way that is not modelled: on other metrics too, or on several autoscalers.
    NotModelled,
    /// Its autoscalers could not be read.
    Unknown,
}

/// A HorizontalPodAutoscaler whose metrics are all relative to requests.
#[derive(Clone, Debug, PartialEq)]
pub struct UtilizationScaling {
    /// The minimum of replicas.
    pub min: u32,
    /// The maximum.
    pub max: u32,
    /// Its metrics.
    pub targets: Vec<ScalingTarget>,
}

/// A metric that is relative to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalingTarget {
    /// The resource.
    pub resource: Resource,
    /// The container; `None` if all containers count.
    pub container: Option<Box<str>>,
    /// The target in percent of the requests.
    pub percent: u32,
}

/// What the account of a workload says about its replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "camelCase")]
#[serde(rename_all = "camelCase")]
pub enum ReplicaSource {
    /// As recorded; no autoscaler answers to requests.
    #[default]
    Recorded,
    /// As recorded, although an autoscaler would answer to other requests.
    RecordedWithAutoscaler,
    /// As recorded; whether an autoscaler would answer to other requests is unknown.
    RecordedUnknownAutoscaler,
    /// As its autoscaler would have set them.
    Modelled,
}

impl WorkloadScaling {
    /// How the autoscalers of a workload answer to its requests.
    pub fn of(workload: &Workload) -> Self {
        let Workload { utilization_targets: targets, replica_ranges: ranges, .. } = workload;
        if workload.autoscalers_unknown && targets.is_empty() {
            return Self::Unknown;
        }
        if targets.is_empty() {
            return Self::Independent;
        }
        // With several autoscalers, each changes what the other has set.
        let ([range], [_]) = (&**ranges, &*workload.scaled_by) else { return Self::NotModelled };
        let (Some(min), Some(max)) = (range.min, range.max) else { return Self::NotModelled };
        if workload.autoscalers_unknown || range.has_other_metrics || min == 0 || max < min {
            return Self::NotModelled;
        }
        let target = |of: &crate::rightsizing::survey::UtilizationTarget| ScalingTarget {
            resource: of.resource,
            container: of.container.clone(),
            percent: of.percent,
        };
        let is_valid = targets.iter().all(|target| target.percent > 0);
        let targets = targets.iter().map(target).collect();
        if is_valid {
            Self::Utilization(UtilizationScaling { min, max, targets })
        } else {
            Self::NotModelled
        }
    }

    /// Where the replicas of the workload come from under a rule.
    pub fn source(&self, rule: ReplicaRule) -> ReplicaSource {
        match (self, rule) {
            (Self::Independent, _) => ReplicaSource::Recorded,
            (Self::Unknown, _) => ReplicaSource::RecordedUnknownAutoscaler,
            (Self::Utilization(_), ReplicaRule::Model) => ReplicaSource::Modelled,
            (Self::Utilization(_) | Self::NotModelled, _) => ReplicaSource::RecordedWithAutoscaler,
        }
    }
}

/// What all pods use and request, of the containers that a target counts, in millicores or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodSums {
    /// What they use.
    pub used: i64,
    /// What they request.
    pub requested: i64,
}

/// The autoscaler of a workload.
#[derive(Clone, Debug)]
pub struct ReplicaModel<'a> {
    scaling: &'a UtilizationScaling,
    tolerance: Tolerance,
    window: Duration,
    state: HpaState,
}

impl<'a> ReplicaModel<'a> {
    /// An autoscaler that has proposed nothing yet.
    pub fn new(scaling: &'a UtilizationScaling) -> Self {
        let config = Config::default();
        Self {
            scaling,
            tolerance: config.tolerances(None),
            window: config.downscale_stabilization,
            state: HpaState::default(),
        }
    }

    /// Its object.
    pub fn scaling(&self) -> &'a UtilizationScaling {
        self.scaling
    }

    /// The replicas after a pass. `measured` has the sums of each target, or `None` if one is unknown; then no replica is
    /// removed.
    pub fn pass(&mut self, current: u32, measured: &[Option<PodSums>], now: Time) -> u32 {
        if current == 0 {
            // The autoscaler of a workload that was scaled to zero is off.
            return 0;
        }
        let current = i32::try_from(current).unwrap_or(i32::MAX);
        let pairs = self.scaling.targets.iter().zip(measured);
        let proposals: Vec<Option<i32>> =
            pairs.map(|(target, sums)| self.propose(target, (*sums)?, current)).collect();
        let Some(largest) = proposals.iter().copied().flatten().max() else {
            return current.unsigned_abs();
        };
        let is_complete = proposals.iter().all(Option::is_some);
        let recommended = if is_complete { largest } else { largest.max(current) };
        let (state, window) = (&mut self.state, self.window);
        let stabilized =
            stabilization::without_behavior(state, recommended, current, window, now, Fixes::ALL);
        let UtilizationScaling { min, max, .. } = *self.scaling;
        stabilized.stabilized.max(0).unsigned_abs().clamp(min, max)
    }

    fn propose(&self, target: &ScalingTarget, sums: PodSums, current: i32) -> Option<i32> {
        if sums.requested <= 0 {
            return None;
        }
        let utilization = percent(sums.used, sums.requested, Fixes::ALL);
        let ratio = f64::from(utilization) / f64::from(target.percent);
        let pods = usize::try_from(current).unwrap_or_default();
        let changed = proposal::replicas_of_ratio(ratio, pods, self.tolerance, Fixes::ALL);
        Some(changed.unwrap_or(current))
    }
}

#[cfg(test)]
mod tests;
