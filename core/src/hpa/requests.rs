//! What utilization is relative to: the requests of pods, in milli-units.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    error::MetricError,
    fixes::{Fix, Fixes},
    pod::{Container, Pod},
};
use crate::types::Quantity;

/// Requests by the name of the pod.
pub type Requests = BTreeMap<String, i64>;

/// Which request of a pod counts.
#[derive(Clone, Copy, Debug)]
pub struct RequestRules<'a> {
    /// The resource.
    pub resource: &'a str,
    /// The container, for the source `ContainerResource`.
    pub container: Option<&'a str>,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// Which fixes are on.
    pub fixes: Fixes,
}

/// Requests of pods, and the containers whose usage must not count because they have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// In milli-units.
    pub requests: Requests,
    /// Containers without a request, by the name of their pod.
    pub left_out: BTreeMap<String, BTreeSet<String>>,
}

impl PodRequests {
    /// Of all pods, also of those that do not count otherwise.
    pub fn of(pods: &[&Pod], rules: RequestRules<'_>) -> Result<Self, MetricError> {
        let mut found = Self::default();
        let mut pods = pods.to_vec();
        if rules.fixes.has(Fix::MessagesStandStill) {
            pods.sort_by(|one, other| one.name.cmp(&other.name));
        }
        for pod in pods {
            if let Some(request) = found.of_pod(pod, rules)? {
                found.requests.insert(pod.name.clone(), request);
            }
        }
        Ok(found)
    }

    /// `None` for a pod of which all containers are left out.
    fn of_pod(&mut self, pod: &Pod, rules: RequestRules<'_>) -> Result<Option<i64>, MetricError> {
        if let Some(name) = rules.container {
            let mut containers = running(pod);
            let container = containers.find(|container| container.name == name);
            let container = container.ok_or_else(|| MetricError::no_container(name, &pod.name))?;
            let request = rules.request(container);
            let missing = || MetricError::missing_request(rules.resource, name, &pod.name);
            return Ok(Some(request.ok_or_else(missing)?.milli_value()));
        }
        if rules.pod_level_resources && pod.requests.keys().any(|name| is_pod_level(name)) {
            let request = effective(pod, rules);
            let missing = || MetricError::missing_pod_request(rules.resource, &pod.name);
            return Ok(Some(request.ok_or_else(missing)?.milli_value()));
        }
        let mut requests = Vec::new();
        let mut without = Vec::new();
        for container in running(pod) {
            match rules.request(container) {
                Some(request) => requests.push(request.milli_value()),
                None => without.push(container.name.as_str()),
            }
        }
        if let Some(first) = without.first() {
            if requests.is_empty() || !rules.fixes.has(Fix::ContainersWithoutRequestAreLeftOut) {
                return Err(MetricError::missing_request(rules.resource, first, &pod.name));
            }
            let names = without.into_iter().map(str::to_owned).collect();
            self.left_out.insert(pod.name.clone(), names);
        }
        Ok(Some(super::numbers::sum(requests, rules.fixes)))
    }
}

impl RequestRules<'_> {
    fn request(&self, container: &Container) -> Option<Quantity> {
        let actuated = container.actuated.as_ref();
        let actuated = actuated.filter(|_| self.fixes.has(Fix::ActuatedRequestsCount));
        let known = actuated.and_then(|requests| requests.get(self.resource));
        known.or_else(|| container.requests.get(self.resource)).copied()
    }
}

/// Containers that run as long as the pod does.
fn running(pod: &Pod) -> impl Iterator<Item = &Container> {
    let sidecars = pod.init_containers.iter().filter(|container| container.is_restartable);
    pod.containers.iter().chain(sidecars)
}

/// Which resources can be requested for a pod as a whole.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// What the scheduler reserves for a pod with requests of its own: those, or else what its containers need at most at
/// the same time; and the overhead of its runtime class.
fn effective(pod: &Pod, rules: RequestRules<'_>) -> Option<Quantity> {
    let add = |one: Option<Quantity>, other: Option<Quantity>| match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    };
    let own = pod.requests.get(rules.resource).filter(|_| is_pod_level(rules.resource));
    let request = own.copied().or_else(|| {
        let containers = pod.containers.iter().map(|container| rules.request(container));
        let mut together = containers.fold(None, add);
        let mut sidecars = None;
        let mut most_before = None;
        for container in &pod.init_containers {
            let request = rules.request(container);
            if container.is_restartable {
                together = add(together, request);
                sidecars = add(sidecars, request);
                most_before = most_before.max(sidecars);
            } else {
                most_before = most_before.max(add(sidecars, request));
            }
        }
        together.max(most_before)
    });
    add(request, pod.overhead.get(rules.resource).copied())
}
