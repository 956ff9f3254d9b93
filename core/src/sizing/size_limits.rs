//! How large a pod and a VPA may be for the pod to be sized. Users choose these sizes, and other pods wait meanwhile.

use super::{pod::Pod, reason::SizingError, sizing_spec::SizingSpec};
use crate::api::ResourceList;

/// Containers of a pod, init containers included.
pub const MAX_CONTAINERS: usize = 500;
/// Container policies of a VPA.
pub const MAX_POLICIES: usize = 500;
/// Resources in one list of amounts.
pub const MAX_RESOURCES: usize = 100;

/// Refuses a pod that is too large to be sized, and any pod of a VPA that is.
pub fn check_size(pod: &Pod, plan: &SizingSpec<'_>) -> Result<(), SizingError> {
    let at_most = |most: usize, count: usize, what: &'static str| {
        if count > most { Err(SizingError::TooLarge { what, count, most }) } else { Ok(()) }
    };
    let containers = pod.containers.len() + pod.init_containers.len();
    at_most(MAX_CONTAINERS, containers, "containers in the pod")?;
    let policies = plan.spec.resource_policy.as_ref();
    let policies = policies.map_or(&[][..], |policy| &policy.container_policies);
    at_most(MAX_POLICIES, policies.len(), "container policies in the VPA")?;
    let of_containers = pod.containers.iter().chain(&pod.init_containers).flat_map(|container| {
        let all = [Some(&container.spec), container.status.as_ref()].into_iter().flatten();
        all.flat_map(|resources| [resources.requests(), resources.limits()])
    });
    let of_pod = longest_list(of_containers.chain([&pod.overhead]));
    at_most(MAX_RESOURCES, of_pod, "resources of a container")?;
    let of_policies = policies.iter().flat_map(|policy| [&policy.min_allowed, &policy.max_allowed]);
    at_most(
        MAX_RESOURCES,
        longest_list(of_policies),
        "resources in a container policy of the VPA",
    )?;
    let recommended = plan.recommendation.iter().flat_map(|it| &it.container_recommendations);
    let recommended = recommended.flat_map(|it| [&it.target, &it.lower_bound, &it.upper_bound]);
    at_most(MAX_RESOURCES, longest_list(recommended), "resources in a recommendation of the VPA")
}

fn longest_list<'a>(lists: impl Iterator<Item = &'a ResourceList>) -> usize {
    lists.map(ResourceList::len).max().unwrap_or_default()
}
