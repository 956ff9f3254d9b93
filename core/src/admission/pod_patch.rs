//! Computes the JSON patch of a new pod.

use std::{borrow::Cow, collections::HashSet};

use super::boost::BoostContext;
use crate::{
    api::{
        ResourceName,
        vpa::{ContainerMode, UpdateMode},
    },
    sizing::{
        Container, ContainerRef, NamespaceLimitRanges, Operation, Pod, Resources, SizedContainer,
        SizingError, SizingReason, SizingRules, SizingSpec, api_validation, boost, json_patch,
        pod_annotations, size_containers, size_limits,
    },
    types::{
        compat::{Compat, Fix},
        quantity::Quantity,
    },
};

#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionSettings {
    pub rules: SizingRules,
    /// Whether startup boosts are applied (feature gate `CPUStartupBoost`).
    pub startup_boost: bool,
    /// `--max-allowed-cpu-boost`; zero means no limit.
    pub max_boosted_cpu: Quantity,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPatch {
    /// The operations of the JSON patch, in order.
    pub operations: Vec<Operation>,
    /// The new resources of its containers, with reasons.
    pub sized_containers: Vec<SizedContainer>,
    pub boosted_containers: Vec<String>,
}

/// Computes the patch of a pod that a VPA controls. `ranges` is `None` if the LimitRanges of the namespace are unknown.
pub fn patch_pod(
    pod: &Pod,
    sizing_spec: &SizingSpec<'_>,
    ranges: Option<&NamespaceLimitRanges>,
    settings: &AdmissionSettings,
) -> Result<PodPatch, SizingError> {
    let rules = settings.rules;
    size_limits::check_size(pod, sizing_spec)?;
    let before = without_boost(pod, rules);
    let injected = InjectedContainers::new(pod, sizing_spec, rules);
    let mut sizes = size_containers(&before, sizing_spec, ranges, rules)?;
    let boost_context = BoostContext {
        spec: sizing_spec,
        limit_range: ranges.and_then(|ranges| ranges.container.as_ref()),
        max_cpu: settings.max_boosted_cpu,
        rules,
    };
    let mut pod_patch = PodPatch::default();
    if pod.annotations.is_none() {
        pod_patch.operations.push(Operation::add("/metadata/annotations", serde_json::Map::new()));
    }
    let mut updates = Vec::new();
    for size in &mut sizes {
        let (Some(container), Some(current)) =
            (before.container(size.container), pod.container(size.container))
        else {
            continue;
        };
        let is_injected = injected.contains(container);
        if sizing_spec.update_mode() == UpdateMode::Off || is_injected {
            *size = SizedContainer::unchanged(size.container);
        }
        if settings.startup_boost && !is_injected {
            if is_off(sizing_spec, container) && !rules.fixes.has(Fix::BoostInModeOff) {
                *size = SizedContainer::unchanged(size.container);
                continue;
            }
            if let Some(boost) = boost::for_container(sizing_spec, container)
                && boost_context.apply(container, boost, size)?
            {
                let originals = Some(rules.compat).filter(|compat| *compat == Compat::Plimsoll);
                let originals = originals.and_then(|_| original_resources(pod, container));
                let originals = originals
                    .unwrap_or_else(|| boost::OriginalResources::from_resources(&container.spec));
                let key = boost::annotation_key(&container.name);
                pod_patch.operations.push(json_patch::set_annotation(&key, originals.to_json()));
                pod_patch.boosted_containers.push(container.name.to_string());
            }
        }
        if size.is_empty() && rules.compat == Compat::Plimsoll {
            // The annotation gives the reason even if nothing else is changed.
            if size.reasons.iter().any(|reason| matches!(reason, SizingReason::HeldForHpa { .. })) {
                updates.push(annotation_text(size));
            }
            continue;
        }
        let operations = json_patch::resize_operations(size, current.actual());
        if !operations.is_empty() {
            updates.push(annotation_text(size));
            pod_patch.operations.extend(operations);
        }
    }
    if let Some(ranges) = ranges.filter(|_| rules.compat == Compat::Plimsoll) {
        api_validation::ensure_accepted(&before, &sizes, ranges)?;
    }
    if !updates.is_empty() {
        let text = format!("Pod resources updated by {}: {}", sizing_spec.vpa, updates.join("; "));
        pod_patch.operations.push(json_patch::set_annotation(pod_annotations::UPDATES, text));
    }
    let observed = observed(pod, &injected, rules);
    pod_patch.operations.push(json_patch::set_annotation(pod_annotations::OBSERVED, observed));
    pod_patch.sized_containers = sizes;
    Ok(pod_patch)
}

/// Formats the changes of one container for the `vpaUpdates` annotation.
fn annotation_text(size: &SizedContainer) -> String {
    let items = size.reasons.iter().filter_map(SizingReason::annotation_text);
    let requests = size.requests.iter().map(|(resource, _)| format!("{resource} request"));
    let limits = size.limits.iter().map(|(resource, _)| format!("{resource} limit"));
    let items: Vec<String> = items.chain(requests).chain(limits).collect();
    let (kind, index) = match size.container {
        ContainerRef::Main(index) => ("container", index),
        ContainerRef::Init(index) => ("sidecar", index),
    };
    format!("{kind} {index}: {}", items.join(", "))
}

/// Whether the container policy has mode `Off`.
fn is_off(sizing_spec: &SizingSpec<'_>, container: &Container) -> bool {
    sizing_spec
        .container_policy(&container.name)
        .is_some_and(|policy| policy.mode == Some(ContainerMode::Off))
}

/// Containers that another webhook injected after the first review, and that no annotation opts in to sizing. Their
/// injector owns their resources, and would revert a change. On reinvocation, an annotation of the pod lists the
/// containers of the first review.
struct InjectedContainers<'a> {
    /// `None` if the pod has no such annotation.
    observed: Option<HashSet<&'a str>>,
    managed_sidecars: HashSet<&'a str>,
}

impl<'a> InjectedContainers<'a> {
    fn new(pod: &'a Pod, sizing_spec: &SizingSpec<'a>, rules: SizingRules) -> Self {
        let is_enabled = rules.compat == Compat::Plimsoll;
        let seen = Some(pod).filter(|_| is_enabled).and_then(pod_annotations::observed_containers);
        let Some(seen) = seen else {
            return Self { observed: None, managed_sidecars: HashSet::new() };
        };
        let managed = sizing_spec.managed_sidecars.iter().map(|name| &**name).collect();
        Self { observed: Some(seen.into_iter().collect()), managed_sidecars: managed }
    }

    fn contains(&self, container: &Container) -> bool {
        let name = &*container.name;
        let is_late = self.observed.as_ref().is_some_and(|seen| !seen.contains(name));
        is_late && !self.managed_sidecars.contains(name)
    }
}

/// Formats the containers that are sized, as the value of the `vpaObservedContainers` annotation.
fn observed(pod: &Pod, injected: &InjectedContainers<'_>, rules: SizingRules) -> String {
    let own =
        pod.sized_containers(rules.sidecars).filter(|(_, container)| !injected.contains(container));
    own.map(|(_, container)| &*container.name).collect::<Vec<&str>>().join(", ")
}

/// Returns the pod with the CPU that its containers had before their boost, if the webhook is reinvoked for a pod that it
/// has boosted.
fn without_boost(pod: &Pod, rules: SizingRules) -> Cow<'_, Pod> {
    if rules.compat == Compat::Upstream || boost::boosted_containers(pod).next().is_none() {
        return Cow::Borrowed(pod);
    }
    let mut restored = pod.clone();
    for container in restored.containers.iter_mut().chain(&mut restored.init_containers) {
        let Some(originals) = original_resources(pod, container) else { continue };
        let Resources { requests, limits } = &mut container.spec;
        for (current, original) in [(requests, originals.requests), (limits, originals.limits)] {
            let current = current.get_or_insert_default();
            current.remove(&ResourceName::Cpu);
            current.extend(original.cpu().map(|amount| (ResourceName::Cpu, amount)));
        }
    }
    Cow::Owned(restored)
}

fn original_resources(pod: &Pod, container: &Container) -> Option<boost::OriginalResources> {
    // A malformed annotation was not written by us, and is overwritten.
    boost::OriginalResources::from_pod(pod, &container.name).ok().flatten()
}
