//! Limits on the size of a pod and of its VPA. Users choose these sizes, and a large one would delay other pods.

use super::{pod::Pod, reason::SizingError, sizing_spec::SizingSpec};
use crate::api::ResourceList;

/// Maximum number of containers of a pod, init containers included.
pub const MAX_CONTAINERS: usize = 500;
/// Maximum number of container policies of a VPA.
pub const MAX_POLICIES: usize = 500;
/// Maximum number of resources in one list of amounts.
pub const MAX_RESOURCES: usize = 100;

/// Returns an error if the pod or its VPA exceeds a size limit.
pub fn check_size(pod: &Pod, sizing_spec: &SizingSpec<'_>) -> Result<(), SizingError> {
    let at_most = |most: usize, count: usize, what: &'static str| {
        if count > most { Err(SizingError::TooLarge { what, count, most }) } else { Ok(()) }
    };
    let containers = pod.containers.len() + pod.init_containers.len();
    at_most(MAX_CONTAINERS, containers, "containers in the pod")?;
    let policies = sizing_spec.spec.resource_policy.as_ref();
    let policies = policies.map_or(&[][..], |policy| &policy.container_policies);
    at_most(MAX_POLICIES, policies.len(), "container policies in the VPA")?;
    let of_containers = pod.containers.iter().chain(&pod.init_containers).flat_map(|container| {
        let resources = [Some(&container.spec), container.status.as_ref()].into_iter().flatten();
        resources.flat_map(|resources| [resources.requests(), resources.limits()])
    });
    let of_pod = longest_list(of_containers.chain([&pod.overhead]));
    at_most(MAX_RESOURCES, of_pod, "resources of a container")?;
    let of_policies = policies.iter().flat_map(|policy| [&policy.min_allowed, &policy.max_allowed]);
    at_most(
        MAX_RESOURCES,
        longest_list(of_policies),
        "resources in a container policy of the VPA",
    )?;
    let recommended =
        sizing_spec.recommendation.iter().flat_map(|status| &status.container_recommendations);
    let recommended = recommended
        .flat_map(|container| [&container.target, &container.lower_bound, &container.upper_bound]);
    at_most(MAX_RESOURCES, longest_list(recommended), "resources in a recommendation of the VPA")
}

fn longest_list<'a>(lists: impl Iterator<Item = &'a ResourceList>) -> usize {
    lists.map(ResourceList::len).max().unwrap_or_default()
}
