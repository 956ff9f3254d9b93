//! Proposals of object and external metrics: for a value as a whole, or divided by the number of pods.

use super::{
    error::MetricError,
    fixes::Fix,
    numbers::{to_milli, to_replicas},
    pod_groups::ready_pods,
    proposal_per_pod::{Calculator, Proposal, UnchangedReason},
};

/// The source of a value. Upstream handles overflow of the two differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An object.
    Object,
    /// An external metric.
    External,
}

impl Calculator<'_> {
    /// The proposal for a value with a target in milli-units: ready pods times the ratio.
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
            // There is no pod to multiply, so any value above zero proposes at least one replica.
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
            proposal.kept = Some(UnchangedReason::NoPodReady);
            return Ok(proposal);
        }
        proposal.replicas = self.capped((ratio * ready as f64).ceil());
        Ok(proposal)
    }

    /// The proposal for a value with a target per pod in milli-units.
    pub fn value_per_pod(&self, value: i64, target: i64, origin: Origin) -> Proposal {
        let pods = self.status_replicas;
        let ratio = value as f64 / (target as f64 * f64::from(pods));
        let wanted = (value as f64 / target as f64).ceil();
        let is_within = self.tolerance.contains(ratio);
        let unchanged = if self.fixes.has(Fix::SurgePodsDoNotCount) { self.replicas } else { pods };
        let average = (value as f64 / f64::from(pods)).ceil();
        Proposal {
            replicas: match origin {
                _ if is_within => unchanged,
                Origin::External => self.capped(wanted),
                Origin::Object => to_replicas(wanted, self.fixes),
            },
            ratio,
            padded_ratio: None,
            kept: is_within.then_some(UnchangedReason::WithinTolerance),
            utilization: None,
            value: match origin {
                Origin::External if value == i64::MAX => value,
                // Without pods the average is undefined.
                _ if pods == 0 && self.fixes.has(Fix::ProposalsSaturate) => 0,
                _ => to_milli(average, self.fixes),
            },
            groups: None,
        }
    }

    /// Converts to replicas, saturating at the largest number.
    fn capped(&self, replicas: f64) -> i32 {
        if replicas > f64::from(i32::MAX) { i32::MAX } else { to_replicas(replicas, self.fixes) }
    }
}
