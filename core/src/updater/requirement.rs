//! `evictionRequirements`: how targets must relate to requests before a pod may be evicted.

use super::priority::recommendation_for;
use crate::{
    api::vpa::{ChangeRequirement, EvictionRequirement, Recommendation},
    sizing,
    types::quantity::Quantity,
};

/// Whether at least one container with a recommendation meets all requirements.
pub fn are_met(
    requirements: &[EvictionRequirement],
    pod: &sizing::Pod,
    recommendation: &Recommendation,
    sidecars: bool,
) -> bool {
    pod.sized_containers(sidecars).any(|(_, container)| {
        let Some(recommended) = recommendation_for(recommendation, &container.name) else {
            return false;
        };
        let requests = container.actual().requests();
        if requests.cpu().is_none() || requests.memory().is_none() {
            return true;
        }
        requirements.iter().all(|requirement| {
            requirement.resources.iter().any(|name| {
                let milli =
                    |amount: Option<Quantity>| amount.unwrap_or(Quantity::ZERO).milli_value();
                let target = milli(recommended.target.get(name));
                let request = milli(requests.get(name));
                match requirement.change_requirement {
                    ChangeRequirement::TargetHigherThanRequests => target > request,
                    ChangeRequirement::TargetLowerThanRequests => target < request,
                }
            })
        })
    })
}
