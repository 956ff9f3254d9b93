//! Startup boosts: which container has one, when it is over, and what the container had before.

use std::time::Duration;

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::{
    pod::{Container, Pod, Resources},
    pod_annotations,
    reason::SizingError,
    sizing_spec::{ContainerPolicies, SizingSpec},
};
use crate::api::{
    ResourceList, ResourceName,
    vpa::{ContainerPolicy, StartupBoost},
};

/// What a container had before it was boosted, as the annotation says it: both lists are always there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalResources {
    /// Its requests.
    #[serde(default, deserialize_with = "crate::sizing::boost::or_empty")]
    pub requests: ResourceList,
    /// Its limits.
    #[serde(default, deserialize_with = "crate::sizing::boost::or_empty")]
    pub limits: ResourceList,
}

/// A list that is null is empty.
pub(crate) fn or_empty<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<ResourceList, D::Error> {
    Ok(Option::<ResourceList>::deserialize(deserializer)?.unwrap_or_default())
}

impl OriginalResources {
    /// Of the CPU and memory that the spec asks for.
    pub fn from_resources(spec: &Resources) -> Self {
        let known = |list: &ResourceList| {
            ResourceList::cpu_and_memory(
                list.get(&ResourceName::Cpu),
                list.get(&ResourceName::Memory),
            )
        };
        Self { requests: known(spec.requests()), limits: known(spec.limits()) }
    }

    /// As the annotation has it.
    pub fn to_json(&self) -> String {
        // Two maps of strings cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the pod says that a container had, if it says anything.
    pub fn from_pod(pod: &Pod, container: &str) -> Result<Option<Self>, SizingError> {
        let key = annotation_key(container);
        let Some(text) = pod.annotation(&key) else { return Ok(None) };
        serde_json::from_str(text)
            .map(Some)
            .map_err(|error| SizingError::InvalidOriginals { key, error: error.to_string() })
    }
}

/// The annotation of a boosted container.
pub fn annotation_key(container: &str) -> String {
    format!("{}{container}", pod_annotations::BOOST)
}

/// The containers that the pod's annotations say are boosted. They need not be containers of the pod.
pub fn boosted_containers(pod: &Pod) -> impl Iterator<Item = &str> {
    let keys = pod.annotations.iter().flat_map(|map| map.keys());
    keys.filter_map(|key| key.strip_prefix(pod_annotations::BOOST))
}

/// The boost of a container: that of its policy, else that of the VPA.
pub fn for_container<'a>(plan: &SizingSpec<'a>, container: &Container) -> Option<&'a StartupBoost> {
    let own =
        plan.container_policy(&container.name).and_then(|policy| policy.startup_boost.as_ref());
    own.or(plan.spec.startup_boost.as_ref())
}

/// How long the boost of a container stays after its pod became ready.
pub fn duration(plan: &SizingSpec<'_>, container: &str) -> Duration {
    duration_for_policy(plan, plan.container_policy(container))
}

fn duration_for_policy(plan: &SizingSpec<'_>, policy: Option<&ContainerPolicy>) -> Duration {
    let seconds = |boost: Option<&StartupBoost>| boost?.cpu.as_ref()?.duration_seconds;
    let own = policy.and_then(|policy| policy.startup_boost.as_ref());
    let seconds = seconds(own).or_else(|| seconds(plan.spec.startup_boost.as_ref()));
    Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0))
}

/// How the boosts of a pod stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoostStatus<'a> {
    /// Containers whose boost is over.
    pub expired: Vec<&'a str>,
    /// How long until the next one is over, if one is not.
    pub next_expiry: Option<Duration>,
}

/// How the boosts of a pod stand. Before the pod is ready nothing runs out.
pub fn status<'a>(pod: &'a Pod, plan: &SizingSpec<'_>, now: Time) -> BoostStatus<'a> {
    let mut standing = BoostStatus::default();
    let Some(ready) = pod.ready_since else { return standing };
    let since = Duration::from_nanos(u64::try_from(now.nanos_since(ready)).unwrap_or(0));
    let policies = ContainerPolicies::new(plan);
    for container in boosted_containers(pod) {
        let lasts = duration_for_policy(plan, policies.get(container));
        if lasts.is_zero() || since > lasts {
            standing.expired.push(container);
        } else {
            let left = lasts.saturating_sub(since);
            standing.next_expiry = Some(standing.next_expiry.map_or(left, |next| next.min(left)));
        }
    }
    standing
}
