//! The patch of a new pod.

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

/// How pods are admitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionSettings {
    /// The rules of sizing.
    pub rules: SizingRules,
    /// Whether startup boosts are given (gate `CPUStartupBoost`).
    pub startup_boost: bool,
    /// The operator's limit of a boosted CPU; zero is none.
    pub max_boosted_cpu: Quantity,
}

/// What becomes of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPatch {
    /// The operations of its patch, in this order.
    pub operations: Vec<Operation>,
    /// What its containers got, with what happened to the numbers.
    pub sized_containers: Vec<SizedContainer>,
    /// Names of the containers that are boosted.
    pub boosted_containers: Vec<String>,
}

/// The patch of a pod that belongs to a VPA. `ranges` is nothing when the LimitRanges of the namespace are not known.
pub fn patch_pod(
    pod: &Pod,
    plan: &SizingSpec<'_>,
    ranges: Option<&NamespaceLimitRanges>,
    admission: &AdmissionSettings,
) -> Result<PodPatch, SizingError> {
    let rules = admission.rules;
    size_limits::check_size(pod, plan)?;
    let before = without_boost(pod, rules);
    let foreign = InjectedContainers::new(pod, plan, rules);
    let mut sizes = size_containers(&before, plan, ranges, rules)?;
    let boosting = BoostContext {
        spec: plan,
        limit_range: ranges.and_then(|ranges| ranges.container.as_ref()),
        max_cpu: admission.max_boosted_cpu,
        rules,
    };
    let mut admitted = PodPatch::default();
    if pod.annotations.is_none() {
        admitted.operations.push(Operation::add("/metadata/annotations", serde_json::Map::new()));
    }
    let mut updates = Vec::new();
    for size in &mut sizes {
        let (Some(container), Some(now)) =
            (before.container(size.container), pod.container(size.container))
        else {
            continue;
        };
        let is_foreign = foreign.contains(container);
        if plan.update_mode() == UpdateMode::Off || is_foreign {
            *size = SizedContainer::unchanged(size.container);
        }
        if admission.startup_boost && !is_foreign {
            if is_off(plan, container) && !rules.fixes.has(Fix::BoostInModeOff) {
                *size = SizedContainer::unchanged(size.container);
                continue;
            }
            if let Some(boost) = boost::for_container(plan, container)
                && boosting.apply(container, boost, size)?
            {
                let originals = Some(rules.compat).filter(|it| *it == Compat::Plimsoll);
                let originals = originals.and_then(|_| original_resources(pod, container));
                let originals = originals
                    .unwrap_or_else(|| boost::OriginalResources::from_resources(&container.spec));
                let key = boost::annotation_key(&container.name);
                admitted.operations.push(json_patch::set_annotation(&key, originals.to_json()));
                admitted.boosted_containers.push(container.name.to_string());
            }
        }
        if size.is_empty() && rules.compat == Compat::Plimsoll {
            continue;
        }
        let operations = json_patch::resize_operations(size, now.actual());
        if !operations.is_empty() {
            updates.push(annotation_text(size));
            admitted.operations.extend(operations);
        }
    }
    if let Some(ranges) = ranges.filter(|_| rules.compat == Compat::Plimsoll) {
        api_validation::ensure_accepted(&before, &sizes, ranges)?;
    }
    if !updates.is_empty() {
        let text = format!("Pod resources updated by {}: {}", plan.vpa, updates.join("; "));
        admitted.operations.push(json_patch::set_annotation(pod_annotations::UPDATES, text));
    }
    let observed = observed(pod, &foreign, rules);
    admitted.operations.push(json_patch::set_annotation(pod_annotations::OBSERVED, observed));
    admitted.sized_containers = sizes;
    Ok(admitted)
}

/// One container in the annotation that tells what was changed.
fn annotation_text(size: &SizedContainer) -> String {
    let items = size.reasons.iter().filter_map(SizingReason::annotation_text);
    let requests = size.requests.iter().map(|(resource, _)| format!("{resource} request"));
    let limits = size.limits.iter().map(|(resource, _)| format!("{resource} limit"));
    let items: Vec<String> = items.chain(requests).chain(limits).collect();
    let (what, index) = match size.container {
        ContainerRef::Main(index) => ("container", index),
        ContainerRef::Init(index) => ("sidecar", index),
    };
    format!("{what} {index}: {}", items.join(", "))
}

/// Whether upstream and we leave the container alone because its policy says so.
fn is_off(plan: &SizingSpec<'_>, container: &Container) -> bool {
    plan.container_policy(&container.name)
        .is_some_and(|policy| policy.mode == Some(ContainerMode::Off))
}

/// Containers that another webhook injected after the first review, and that no annotation opts in to sizing. Their injector
/// owns their resources, so changing them would start a fight. On reinvocation, an annotation of the pod lists the containers
/// of the first review.
struct InjectedContainers<'a> {
    /// Nothing where the pod does not say.
    observed: Option<HashSet<&'a str>>,
    managed_sidecars: HashSet<&'a str>,
}

impl<'a> InjectedContainers<'a> {
    fn new(pod: &'a Pod, plan: &SizingSpec<'a>, rules: SizingRules) -> Self {
        let is_ours = rules.compat == Compat::Plimsoll;
        let seen = Some(pod).filter(|_| is_ours).and_then(pod_annotations::observed_containers);
        let Some(seen) = seen else {
            return Self { observed: None, managed_sidecars: HashSet::new() };
        };
        let managed = plan.managed_sidecars.iter().map(|name| &**name).collect();
        Self { observed: Some(seen.into_iter().collect()), managed_sidecars: managed }
    }

    fn contains(&self, container: &Container) -> bool {
        let name = &*container.name;
        let is_late = self.observed.as_ref().is_some_and(|seen| !seen.contains(name));
        is_late && !self.managed_sidecars.contains(name)
    }
}

/// The containers that are known to be ours to size.
fn observed(pod: &Pod, foreign: &InjectedContainers<'_>, rules: SizingRules) -> String {
    let ours = pod.sized_containers(rules.sidecars).filter(|(_, one)| !foreign.contains(one));
    ours.map(|(_, one)| &*one.name).collect::<Vec<&str>>().join(", ")
}

/// The pod with the CPU that its containers had before they were boosted, where the webhook is called again for a pod
/// that it has boosted already.
fn without_boost(pod: &Pod, rules: SizingRules) -> Cow<'_, Pod> {
    if rules.compat == Compat::Upstream || boost::boosted_containers(pod).next().is_none() {
        return Cow::Borrowed(pod);
    }
    let mut restored = pod.clone();
    for container in restored.containers.iter_mut().chain(&mut restored.init_containers) {
        let Some(originals) = original_resources(pod, container) else { continue };
        let Resources { requests, limits } = &mut container.spec;
        for (now, then) in [(requests, originals.requests), (limits, originals.limits)] {
            let now = now.get_or_insert_default();
            now.remove(&ResourceName::Cpu);
            now.extend(then.cpu().map(|amount| (ResourceName::Cpu, amount)));
        }
    }
    Cow::Owned(restored)
}

fn original_resources(pod: &Pod, container: &Container) -> Option<boost::OriginalResources> {
    // What cannot be read was not written by us, and is written over.
    boost::OriginalResources::from_pod(pod, &container.name).ok().flatten()
}
