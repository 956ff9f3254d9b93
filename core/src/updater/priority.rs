//! How much a pod needs what is recommended for it, and which pod goes first.

use std::{cmp::Ordering, collections::BTreeMap};

use super::observed_containers::ObservedContainers;
use crate::{
    api::{
        ResourceName,
        vpa::{ContainerRecommendation, Recommendation},
    },
    sizing,
};

/// How much a pod needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Priority {
    /// Whether some request is below its lower bound, above its upper bound, or not there.
    pub outside_recommended_range: bool,
    /// Whether some request is to grow.
    pub scale_up: bool,
    /// How far the sums of all requests are from those of all targets: shares, added up over the resources.
    pub resource_diff: f64,
}

/// What is recommended for a container.
pub fn recommendation_for<'a>(
    recommendation: &'a Recommendation,
    container: &str,
) -> Option<&'a ContainerRecommendation> {
    recommendation.container_recommendations.iter().find(|one| one.container_name == container)
}

impl Priority {
    /// Of a pod, with what is recommended for it after all rules.
    pub fn new(
        pod: &sizing::Pod,
        recommendation: &Recommendation,
        observed: &ObservedContainers,
        sidecars: bool,
    ) -> Self {
        let mut found = Self::default();
        let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (_, container) in pod.sized_containers(sidecars) {
            let Some(wanted) = recommendation_for(recommendation, &container.name) else {
                continue;
            };
            if !observed.contains(&container.name) {
                continue;
            }
            let requests = container.actual().requests();
            for (name, target) in wanted.target.iter() {
                let (requested, recommended) = sums.entry(name.as_str()).or_default();
                *recommended = recommended.saturating_add(target.milli_value());
                if let Some(request) = requests.get(name) {
                    *requested = requested.saturating_add(request.milli_value());
                    found.scale_up |= target.milli_value() > request.milli_value();
                    found.outside_recommended_range |= is_outside(wanted, name, request);
                } else {
                    found.scale_up = true;
                    found.outside_recommended_range = true;
                }
            }
        }
        found.resource_diff = sums
            .values()
            .map(|(requested, recommended)| {
                let requested = (*requested as f64).max(1.0);
                (requested - *recommended as f64).abs() / requested
            })
            .sum();
        found
    }

    /// Which of two goes first. Those that are to grow go before all others, then the larger difference. Equal ones stay
    /// in their order.
    pub fn compare(&self, other: &Self) -> Ordering {
        let growth = other.scale_up.cmp(&self.scale_up);
        growth.then_with(|| other.resource_diff.total_cmp(&self.resource_diff))
    }
}

fn is_outside(
    wanted: &ContainerRecommendation,
    name: &ResourceName,
    request: crate::types::quantity::Quantity,
) -> bool {
    wanted.lower_bound.get(name).is_some_and(|lower| request < lower)
        || wanted.upper_bound.get(name).is_some_and(|upper| request > upper)
}
