//! Proposals of metrics that belong to no pod: a value as a whole, or divided by the number of pods.

use super::{
    calculator::{Calculator, Proposal, UnchangedReason},
    error::MetricError,
    fixes::Fix,
    numbers::{to_milli, to_replicas},
    pod_groups::ready_pods,
};

/// Where a value comes from; upstream treats overflow of the two differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An object.
    Object,
    /// An external metric.
    External,
}

impl Calculator<'_> {
    /// A value, held to a target in milli-units: the number of ready pods grows with the ratio.
    pub fn value(&self, value: i64, target: i64) -> Result<Proposal, MetricError> {
        let ratio = value as f64 / target as f64;
        let mut proposal = Proposal {
            replicas: self.replicas,
            ratio,
            padded_ratio: None,
            kept: None,
            utilization: None,
            value,
            groups: None,
        };
        if self.replicas == 0 {
            // There is no pod to multiply, and any value at all is reason to have one.
            proposal.replicas = to_replicas(ratio.ceil(), self.fixes);
            return Ok(proposal);
        }
        if self.tolerance.contains(ratio) {
            proposal.kept = Some(UnchangedReason::WithinTolerance);
            return Ok(proposal);
        }
        if self.pods.is_empty() {
            return Err(MetricError::no_pods()
                .within(|cause| format!("unable to calculate ready pods: {cause}")));
        }
        let ready = ready_pods(self.pods, self.fixes);
        if ready == 0 && self.fixes.has(Fix::UnreadyWorkloadHolds) {
            proposal.kept = Some(UnchangedReason::NobodyReady);
            return Ok(proposal);
        }
        proposal.replicas = self.capped((ratio * ready as f64).ceil());
        Ok(proposal)
    }

    /// A value, of which each pod is to have no more than a target in milli-units.
    pub fn value_per_pod(&self, value: i64, target: i64, origin: Origin) -> Proposal {
        let pods = self.status_replicas;
        let ratio = value as f64 / (target as f64 * f64::from(pods));
        let wanted = (value as f64 / target as f64).ceil();
        let is_within = self.tolerance.contains(ratio);
        let held = if self.fixes.has(Fix::SurgePodsDoNotCount) { self.replicas } else { pods };
        let average = (value as f64 / f64::from(pods)).ceil();
        Proposal {
            replicas: match origin {
                _ if is_within => held,
                Origin::External => self.capped(wanted),
                Origin::Object => to_replicas(wanted, self.fixes),
            },
            ratio,
            padded_ratio: None,
            kept: is_within.then_some(UnchangedReason::WithinTolerance),
            utilization: None,
            value: match origin {
                Origin::External if value == i64::MAX => value,
                // There is nothing to divide by.
                _ if pods == 0 && self.fixes.has(Fix::ProposalsSaturate) => 0,
                _ => to_milli(average, self.fixes),
            },
            groups: None,
        }
    }

    /// At most the largest number of replicas.
    fn capped(&self, replicas: f64) -> i32 {
        if replicas > f64::from(i32::MAX) { i32::MAX } else { to_replicas(replicas, self.fixes) }
    }
}
