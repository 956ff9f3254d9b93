//! The requests or limits of pods, in milli-units, which utilization is relative to.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    error::MetricError,
    fixes::{Fix, Fixes},
    options::UtilizationOf,
    pod::{Container, Pod},
};
use crate::types::Quantity;

/// Requests or limits by pod name.
pub type Requests = BTreeMap<String, i64>;

/// Selects the request or limit of a pod.
#[derive(Clone, Copy, Debug)]
pub struct RequestRules<'a> {
    pub resource: &'a str,
    /// The container name, for the source `ContainerResource`.
    pub container: Option<&'a str>,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// Which of the two utilization is relative to.
    pub of: UtilizationOf,
    pub fixes: Fixes,
}

/// Requests of pods, and the containers without a request, whose usage does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// Requests in milli-units.
    pub requests: Requests,
    /// Containers without a request, by pod name.
    pub left_out: BTreeMap<String, BTreeSet<String>>,
}

impl PodRequests {
    /// Collects the requests of all pods, including those that do not count otherwise.
    pub fn of(pods: &[&Pod], rules: RequestRules<'_>) -> Result<Self, MetricError> {
        let mut result = Self::default();
        let mut pods = pods.to_vec();
        if rules.fixes.has(Fix::MessagesStandStill) {
            pods.sort_by(|left, right| left.name.cmp(&right.name));
        }
        for pod in pods {
            if let Some(request) = result.of_pod(pod, rules)? {
                result.requests.insert(pod.name.clone(), request);
            }
        }
        Ok(result)
    }

    /// The request of a pod; `None` if all its containers are left out.
    fn of_pod(&mut self, pod: &Pod, rules: RequestRules<'_>) -> Result<Option<i64>, MetricError> {
        if let Some(name) = rules.container {
            let mut containers = running(pod);
            let container = containers.find(|container| container.name == name);
            let container = container.ok_or_else(|| MetricError::no_container(name, &pod.name))?;
            let request = rules.request(container);
            let missing = || rules.missing(name, &pod.name);
            return Ok(Some(request.ok_or_else(missing)?.milli_value()));
        }
        if rules.of == UtilizationOf::Limit {
            let pod_level = pod.limits.get(rules.resource);
            let pod_level = pod_level.filter(|_| rules.pod_level_resources);
            if let Some(limit) = pod_level.filter(|_| is_pod_level(rules.resource)) {
                return Ok(Some(limit.milli_value()));
            }
        } else if rules.pod_level_resources && pod.requests.keys().any(|name| is_pod_level(name)) {
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
                return Err(rules.missing(first, &pod.name));
            }
            let names = without.into_iter().map(str::to_owned).collect();
            self.left_out.insert(pod.name.clone(), names);
        }
        Ok(Some(super::numbers::sum(requests, rules.fixes)))
    }
}

impl RequestRules<'_> {
    fn request(&self, container: &Container) -> Option<Quantity> {
        if self.of == UtilizationOf::Limit {
            return container.limits.get(self.resource).copied();
        }
        let actuated = container.actuated.as_ref();
        let actuated = actuated.filter(|_| self.fixes.has(Fix::ActuatedRequestsCount));
        let known = actuated.and_then(|requests| requests.get(self.resource));
        known.or_else(|| container.requests.get(self.resource)).copied()
    }

    fn missing(&self, container: &str, pod: &str) -> MetricError {
        if self.of == UtilizationOf::Limit {
            return MetricError::missing_limit(self.resource, container, pod);
        }
        MetricError::missing_request(self.resource, container, pod)
    }
}

/// Containers that run as long as the pod: regular containers and sidecars.
fn running(pod: &Pod) -> impl Iterator<Item = &Container> {
    let sidecars = pod.init_containers.iter().filter(|container| container.is_restartable);
    pod.containers.iter().chain(sidecars)
}

/// Whether a resource can be requested at pod level.
fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// The effective request of a pod with pod-level requests: the pod-level request, or else the maximum that its
/// containers need at the same time, plus the overhead of its RuntimeClass.
fn effective(pod: &Pod, rules: RequestRules<'_>) -> Option<Quantity> {
    let add = |left: Option<Quantity>, right: Option<Quantity>| match (left, right) {
        (Some(left), Some(right)) => Some(left + right),
        (left, right) => left.or(right),
    };
    let pod_level = pod.requests.get(rules.resource).filter(|_| is_pod_level(rules.resource));
    let request = pod_level.copied().or_else(|| {
        let containers = pod.containers.iter().map(|container| rules.request(container));
        let mut concurrent = containers.fold(None, add);
        let mut sidecars = None;
        let mut peak_during_init = None;
        for container in &pod.init_containers {
            let request = rules.request(container);
            if container.is_restartable {
                concurrent = add(concurrent, request);
                sidecars = add(sidecars, request);
                peak_during_init = peak_during_init.max(sidecars);
            } else {
                peak_during_init = peak_during_init.max(add(sidecars, request));
            }
        }
        concurrent.max(peak_during_init)
    });
    add(request, pod.overhead.get(rules.resource).copied())
}
