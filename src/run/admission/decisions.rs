//! Where what was read meets the rules: the one place that knows how decisions are asked for.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Role;
use crate::run::annotations::bad;
use plimsoll_core::{
    admission::{self, Admission, validation},
    api::VerticalPodAutoscaler,
    sizing::{
        Operation, Pod, Ranges, Refusal, Rules, Wishes,
        quota::{self, Change, Quota},
    },
    types::{compat::Compat, quantity::Quantity},
};

impl Role {
    fn rules(&self) -> Rules {
        Rules {
            compat: self.config.compat,
            fixes: self.config.fixes,
            sidecars: self.config.gates.native_sidecars,
        }
    }

    /// The patch of a new pod.
    pub(super) fn decide_pod(
        &self,
        pod: &Pod,
        vpa: &VerticalPodAutoscaler,
        ranges: &Ranges,
        quotas: &[Quota],
    ) -> Result<Vec<Operation>, Refusal> {
        let gates = self.config.gates;
        let admission = Admission {
            rules: self.rules(),
            boosts: gates.startup_boost,
            max_boost: self.config.max_boost.unwrap_or(Quantity::ZERO),
        };
        let wishes = Wishes::of(vpa, self.config.compat);
        let plan = wishes.plan(vpa, self.config.limit_policy);
        let admitted = admission::admit(pod, &plan, Some(ranges), &admission)?;
        quota::acceptable(quotas, pod, &admitted.sizes, Change::Creation)?;
        Ok(admitted.operations)
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
        let mut said = validation::validate(object, old, gates, self.rules(), others);
        if self.config.compat == Compat::Plimsoll {
            said.warnings.extend(ignored(object));
        }
        said
    }
}

/// A line for each annotation that makes no sense.
fn ignored(object: &[u8]) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        annotations: Option<BTreeMap<String, String>>,
    }
    let Object { metadata } = serde_json::from_slice(object).unwrap_or_default();
    bad(&metadata.annotations.unwrap_or_default()).iter().map(ToString::to_string).collect()
}
