//! Where what was read meets the rules: the one place that knows how decisions are asked for.

use super::Role;
use crate::{
    admit::{self, Admission, validation},
    api::VerticalPodAutoscaler,
    fit::{Operation, Plan, Pod, Ranges, Rules},
    quantity::Quantity,
};

/// Why a pod is let through as it is: in one word, and in a sentence.
pub(super) type Refused = (&'static str, String);

impl Role {
    /// The patch of a new pod.
    pub(super) fn decide_pod(
        &self,
        pod: &Pod,
        vpa: &VerticalPodAutoscaler,
        ranges: &Ranges,
    ) -> Result<Vec<Operation>, Refused> {
        let gates = self.config.gates;
        let admission = Admission {
            rules: Rules {
                compat: self.config.compat,
                fixes: self.config.fixes,
                sidecars: gates.native_sidecars,
            },
            boosts: gates.startup_boost,
            max_boost: self.config.max_boost.unwrap_or(Quantity::ZERO),
        };
        let plan = Plan::of(vpa).with_limits(self.config.limit_policy);
        admit::admit(pod, &plan, Some(ranges), &admission)
            .map(|admitted| admitted.operations)
            .map_err(|refusal| (refusal.name(), refusal.to_string()))
    }

    /// What is said about a VPA.
    pub(super) fn decide_vpa(
        &self,
        object: &[u8],
        old: Option<&[u8]>,
        others: &[validation::Neighbour<'_>],
    ) -> validation::Verdict {
        let gates = self.config.gates;
        let gates = validation::Gates {
            startup_boost: gates.startup_boost,
            per_vpa_config: gates.per_vpa_config,
            in_place: gates.in_place,
        };
        validation::validate(object, old, gates, self.config.compat, others)
    }
}
