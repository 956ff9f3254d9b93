//! Startup boosts: which containers are boosted, when a boost expires, and the resources before the boost.

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
    ResourceList,
    vpa::{ContainerPolicy, StartupBoost},
};

/// The resources of a container before its boost, as stored in the annotation. Both lists are always written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginalResources {
    /// Requests before the boost.
    #[serde(default, deserialize_with = "crate::sizing::boost::or_empty")]
    pub requests: ResourceList,
    /// Limits before the boost.
    #[serde(default, deserialize_with = "crate::sizing::boost::or_empty")]
    pub limits: ResourceList,
}

/// Deserializes `null` as an empty list.
pub(crate) fn or_empty<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<ResourceList, D::Error> {
    Ok(Option::<ResourceList>::deserialize(deserializer)?.unwrap_or_default())
}

impl OriginalResources {
    /// Returns the CPU and memory of a spec.
    pub fn from_resources(spec: &Resources) -> Self {
        let known = |list: &ResourceList| ResourceList::cpu_and_memory(list.cpu(), list.memory());
        Self { requests: known(spec.requests()), limits: known(spec.limits()) }
    }

    /// Serializes the value of the annotation.
    pub fn to_json(&self) -> String {
        // Serializing two maps of strings cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the annotation of a container; `None` if the pod has none.
    pub fn from_pod(pod: &Pod, container: &str) -> Result<Option<Self>, SizingError> {
        let key = annotation_key(container);
        let Some(text) = pod.annotation(&key) else { return Ok(None) };
        serde_json::from_str(text)
            .map(Some)
            .map_err(|error| SizingError::InvalidOriginals { key, error: error.to_string() })
    }
}

pub fn annotation_key(container: &str) -> String {
    format!("{}{container}", pod_annotations::BOOST)
}

/// Returns the boosted containers by the pod's annotations. The pod may not have such a container.
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

/// Returns how long the boost of a container lasts after its pod became ready.
pub fn duration(sizing_spec: &SizingSpec<'_>, container: &str) -> Duration {
    duration_for_policy(sizing_spec, sizing_spec.container_policy(container))
}

fn duration_for_policy(sizing_spec: &SizingSpec<'_>, policy: Option<&ContainerPolicy>) -> Duration {
    let seconds = |boost: Option<&StartupBoost>| boost?.cpu.as_ref()?.duration_seconds;
    let own = policy.and_then(|policy| policy.startup_boost.as_ref());
    let seconds = seconds(own).or_else(|| seconds(sizing_spec.spec.startup_boost.as_ref()));
    Duration::from_secs(seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0))
}

/// The state of a pod's boosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoostStatus<'a> {
    /// Containers whose boost has expired.
    pub expired: Vec<&'a str>,
    /// Time until the next boost expires, if one is active.
    pub next_expiry: Option<Duration>,
}

/// Returns the state of a pod's boosts. No boost expires before the pod is ready.
pub fn status<'a>(pod: &'a Pod, sizing_spec: &SizingSpec<'_>, now: Time) -> BoostStatus<'a> {
    let mut boost_status = BoostStatus::default();
    let Some(ready) = pod.ready_since else { return boost_status };
    let ready_for = Duration::from_nanos(u64::try_from(now.nanos_since(ready)).unwrap_or(0));
    let policies = ContainerPolicies::new(sizing_spec);
    for container in boosted_containers(pod) {
        let boost_duration = duration_for_policy(sizing_spec, policies.get(container));
        if boost_duration.is_zero() || ready_for > boost_duration {
            boost_status.expired.push(container);
        } else {
            let left = boost_duration.saturating_sub(ready_for);
            let next_expiry = boost_status.next_expiry.map_or(left, |next| next.min(left));
            boost_status.next_expiry = Some(next_expiry);
        }
    }
    boost_status
}
