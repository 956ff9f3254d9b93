//! The patch of a new pod.

use std::{borrow::Cow, collections::HashSet};

use super::boost::Boosting;
use crate::{
    api::{
        ResourceName,
        vpa::{ContainerMode, UpdateMode},
    },
    sizing::{
        Container, Operation, Place, Plan, Pod, Ranges, Reason, Refusal, Resources, Rules, Size,
        annotations, boost, capacity, check, patch, sizes,
    },
    types::{
        compat::{Compat, Fix},
        quantity::Quantity,
    },
};

/// How pods are admitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Admission {
    /// The rules of sizing.
    pub rules: Rules,
    /// Whether startup boosts are given (gate `CPUStartupBoost`).
    pub boosts: bool,
    /// The operator's limit of a boosted CPU; zero is none.
    pub max_boost: Quantity,
}

/// What becomes of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Admitted {
    /// The operations of its patch, in this order.
    pub operations: Vec<Operation>,
    /// What its containers got, with what happened to the numbers.
    pub sizes: Vec<Size>,
    /// Names of the containers that are boosted.
    pub boosted: Vec<String>,
}

/// The patch of a pod that belongs to a VPA. `ranges` is nothing when the LimitRanges of the namespace are not known.
pub fn admit(
    pod: &Pod,
    plan: &Plan<'_>,
    ranges: Option<&Ranges>,
    admission: &Admission,
) -> Result<Admitted, Refusal> {
    let rules = admission.rules;
    capacity::check(pod, plan)?;
    let before = unboosted(pod, rules);
    let foreign = Foreign::of(pod, plan, rules);
    let mut sizes = sizes(&before, plan, ranges, rules)?;
    let boosting = Boosting {
        plan,
        range: ranges.and_then(|ranges| ranges.container.as_ref()),
        max: admission.max_boost,
        rules,
    };
    let mut admitted = Admitted::default();
    if pod.annotations.is_none() {
        admitted.operations.push(Operation::add("/metadata/annotations", serde_json::Map::new()));
    }
    let mut updates = Vec::new();
    for size in &mut sizes {
        let (Some(container), Some(now)) = (before.at(size.place), pod.at(size.place)) else {
            continue;
        };
        let is_foreign = foreign.has(container);
        if plan.mode() == UpdateMode::Off || is_foreign {
            *size = Size::none(size.place);
        }
        if admission.boosts && !is_foreign {
            if is_off(plan, container) && !rules.fixes.has(Fix::BoostInModeOff) {
                *size = Size::none(size.place);
                continue;
            }
            if let Some(boost) = boost::of(plan, container)
                && boosting.apply(container, boost, size)?
            {
                let originals = Some(rules.compat).filter(|it| *it == Compat::Plimsoll);
                let originals = originals.and_then(|_| originals_of(pod, container));
                let originals = originals.unwrap_or_else(|| boost::Originals::of(&container.spec));
                let key = boost::key(&container.name);
                admitted.operations.push(patch::annotate(&key, originals.to_json()));
                admitted.boosted.push(container.name.to_string());
            }
        }
        if size.is_empty() && rules.compat == Compat::Plimsoll {
            continue;
        }
        let operations = patch::resize(size, now.actual());
        if !operations.is_empty() {
            updates.push(told(size));
            admitted.operations.extend(operations);
        }
    }
    if let Some(ranges) = ranges.filter(|_| rules.compat == Compat::Plimsoll) {
        check::acceptable(&before, &sizes, ranges)?;
    }
    if !updates.is_empty() {
        let text = format!("Pod resources updated by {}: {}", plan.vpa, updates.join("; "));
        admitted.operations.push(patch::annotate(annotations::UPDATES, text));
    }
    let observed = observed(pod, &foreign, rules);
    admitted.operations.push(patch::annotate(annotations::OBSERVED, observed));
    admitted.sizes = sizes;
    Ok(admitted)
}

/// One container in the annotation that tells what was changed.
fn told(size: &Size) -> String {
    let items = size.reasons.iter().filter_map(Reason::item);
    let requests = size.requests.iter().map(|(resource, _)| format!("{resource} request"));
    let limits = size.limits.iter().map(|(resource, _)| format!("{resource} limit"));
    let items: Vec<String> = items.chain(requests).chain(limits).collect();
    let (what, index) = match size.place {
        Place::Main(index) => ("container", index),
        Place::Init(index) => ("sidecar", index),
    };
    format!("{what} {index}: {}", items.join(", "))
}

/// Whether upstream and we leave the container alone because its policy says so.
fn is_off(plan: &Plan<'_>, container: &Container) -> bool {
    plan.policy(&container.name).is_some_and(|policy| policy.mode == Some(ContainerMode::Off))
}

/// Containers that another webhook injected after the first review, and that no annotation opts in to sizing. Their injector
/// owns their resources, so changing them would start a fight. On reinvocation, an annotation of the pod lists the containers
/// of the first review.
struct Foreign<'a> {
    /// Nothing where the pod does not say.
    seen: Option<HashSet<&'a str>>,
    managed: HashSet<&'a str>,
}

impl<'a> Foreign<'a> {
    fn of(pod: &'a Pod, plan: &Plan<'a>, rules: Rules) -> Self {
        let is_ours = rules.compat == Compat::Plimsoll;
        let seen = Some(pod).filter(|_| is_ours).and_then(annotations::seen);
        let Some(seen) = seen else { return Self { seen: None, managed: HashSet::new() } };
        let managed = plan.injected.iter().map(|name| &**name).collect();
        Self { seen: Some(seen.into_iter().collect()), managed }
    }

    fn has(&self, container: &Container) -> bool {
        let name = &*container.name;
        let is_late = self.seen.as_ref().is_some_and(|seen| !seen.contains(name));
        is_late && !self.managed.contains(name)
    }
}

/// The containers that are known to be ours to size.
fn observed(pod: &Pod, foreign: &Foreign<'_>, rules: Rules) -> String {
    let ours = pod.sized(rules.sidecars).filter(|(_, one)| !foreign.has(one));
    ours.map(|(_, one)| &*one.name).collect::<Vec<&str>>().join(", ")
}

/// The pod with the CPU that its containers had before they were boosted, where the webhook is called again for a pod
/// that it has boosted already.
fn unboosted(pod: &Pod, rules: Rules) -> Cow<'_, Pod> {
    if rules.compat == Compat::Upstream || boost::boosted(pod).next().is_none() {
        return Cow::Borrowed(pod);
    }
    let mut restored = pod.clone();
    for container in restored.containers.iter_mut().chain(&mut restored.init_containers) {
        let Some(originals) = originals_of(pod, container) else { continue };
        let Resources { requests, limits } = &mut container.spec;
        for (now, then) in [(requests, originals.requests), (limits, originals.limits)] {
            let now = now.get_or_insert_default();
            now.remove(&ResourceName::Cpu);
            now.extend(then.cpu().map(|amount| (ResourceName::Cpu, amount)));
        }
    }
    Cow::Owned(restored)
}

fn originals_of(pod: &Pod, container: &Container) -> Option<boost::Originals> {
    // What cannot be read was not written by us, and is written over.
    boost::Originals::read(pod, &container.name).ok().flatten()
}

/// Whether a VPA has anything for new pods: not when it is off, unless it boosts them. An entry for a boost counts, also
/// where the gate is off or the entry says nothing, as it does upstream.
pub fn is_for(plan: &Plan<'_>) -> bool {
    plan.mode() != UpdateMode::Off || boost::boosts(plan)
}
