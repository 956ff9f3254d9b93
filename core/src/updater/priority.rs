//! How far a pod is from its recommendation, and which pod is updated first.

use std::{cmp::Ordering, collections::BTreeMap};

use super::observed_containers::ObservedContainers;
use crate::{
    api::{
        ResourceName,
        vpa::{ContainerRecommendation, Recommendation},
    },
    sizing,
};

/// The update priority of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Priority {
    /// Whether a request is below its lower bound, above its upper bound, or unset.
    pub outside_recommended_range: bool,
    /// Whether a request would grow.
    pub scale_up: bool,
    /// Relative difference between the total requests and the total targets, summed over the resources.
    pub resource_diff: f64,
}

/// Returns the recommendation of a container.
pub fn recommendation_for<'a>(
    recommendation: &'a Recommendation,
    container: &str,
) -> Option<&'a ContainerRecommendation> {
    recommendation.container_recommendations.iter().find(|found| found.container_name == container)
}

impl Priority {
    /// Computes the priority of a pod from its capped recommendation.
    pub fn new(
        pod: &sizing::Pod,
        recommendation: &Recommendation,
        observed: &ObservedContainers,
        sidecars: bool,
    ) -> Self {
        let mut priority = Self::default();
        let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for (_, container) in pod.sized_containers(sidecars) {
            let found = recommendation_for(recommendation, &container.name);
            let Some(container_recommendation) = found else { continue };
            if !observed.contains(&container.name) {
                continue;
            }
            let requests = container.actual().requests();
            for (name, target) in container_recommendation.target.iter() {
                let (requested, recommended) = sums.entry(name.as_str()).or_default();
                *recommended = recommended.saturating_add(target.milli_value());
                if let Some(request) = requests.get(name) {
                    *requested = requested.saturating_add(request.milli_value());
                    priority.scale_up |= target.milli_value() > request.milli_value();
                    priority.outside_recommended_range |=
                        is_outside(container_recommendation, name, request);
                } else {
                    priority.scale_up = true;
                    priority.outside_recommended_range = true;
                }
            }
        }
        priority.resource_diff = sums
            .values()
            .map(|(requested, recommended)| {
                let requested = (*requested as f64).max(1.0);
                (requested - *recommended as f64).abs() / requested
            })
            .sum();
        priority
    }

    /// Compares two pods: scale-ups come first, then the larger difference. Equal ones keep their order.
    pub fn compare(&self, other: &Self) -> Ordering {
        let growth = other.scale_up.cmp(&self.scale_up);
        growth.then_with(|| other.resource_diff.total_cmp(&self.resource_diff))
    }
}

fn is_outside(
    recommendation: &ContainerRecommendation,
    name: &ResourceName,
    request: crate::types::quantity::Quantity,
) -> bool {
    recommendation.lower_bound.get(name).is_some_and(|lower| request < lower)
        || recommendation.upper_bound.get(name).is_some_and(|upper| request > upper)
}
