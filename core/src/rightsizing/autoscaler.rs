//! Autoscalers of replicas whose targets are relative to requests: `--hpa`.
//!
//! A changed request changes what such a target means. If only the requests follow usage, each run lowers
//! them by the target again: fewer requests, more replicas, less usage per pod, fewer requests.

use std::{collections::BTreeMap, ops::RangeInclusive};

use super::{
    report::TargetChange,
    survey::{ContainerRole, Resource, UtilizationTarget},
};
use crate::coordination::retarget::moved_percent;

/// Targets outside of this range leave too little room for a peak, or mostly idle requests: the requests stay
/// instead.
pub const PERCENT_RANGE: RangeInclusive<i64> = 20..=400;

/// What happens to requests that an autoscaler of replicas uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "camelCase")]
pub enum AutoscalerRule {
    /// The target changes together with the requests, so that replicas are added at the same usage.
    #[default]
    Joint,
    /// They stay.
    Skip,
    /// They change, and the target stays.
    Ignore,
}

/// A rule that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value `{0}` of --hpa; use `joint`, `skip` or `ignore`")]
pub struct InvalidAutoscalerRule(String);

impl std::str::FromStr for AutoscalerRule {
    type Err = InvalidAutoscalerRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Joint, Self::Skip, Self::Ignore]
            .into_iter()
            .find(|rule| <&str>::from(rule) == text)
            .ok_or_else(|| InvalidAutoscalerRule(text.to_owned()))
    }
}

/// The request of a container for one resource, in millicores or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerRequest<'a> {
    pub name: &'a str,
    /// When it runs. Init containers do not count for an autoscaler.
    pub role: ContainerRole,
    /// What its pods request; `None` if there is no request or it is unknown.
    pub current: Option<i64>,
    /// What they should request.
    pub new: Option<i64>,
}

/// What follows for a resource of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedDecision {
    /// Targets that change, or why they do not.
    pub target_changes: Vec<TargetChange>,
    /// The containers whose requests stay, and why.
    pub held: BTreeMap<String, String>,
}

/// Decides which requests of a resource change, and which targets change with them.
pub fn decide(
    rule: AutoscalerRule,
    resource: Resource,
    targets: &[UtilizationTarget],
    containers: &[ContainerRequest<'_>],
) -> SharedDecision {
    let mut decision = SharedDecision::default();
    if rule == AutoscalerRule::Ignore {
        return decision;
    }
    let relevant: Vec<&UtilizationTarget> =
        targets.iter().filter(|target| target.resource == resource).collect();
    let mut failed: BTreeMap<usize, String> = BTreeMap::new();
    // A request that stays changes the sum that another target is relative to, so this repeats until nothing
    // changes. Each round holds at least one target more.
    loop {
        let failures: Vec<(usize, String)> = relevant
            .iter()
            .enumerate()
            .filter(|(index, _)| !failed.contains_key(index))
            .filter_map(|(index, target)| {
                let sums = Sums::of(target, containers, &decision.held);
                Some((index, reason_to_hold(rule, target, &sums)?))
            })
            .collect();
        if failures.is_empty() {
            break;
        }
        for (index, reason) in failures {
            for container in
                containers.iter().filter(|container| counts(relevant[index], container))
            {
                decision.held.entry(container.name.to_owned()).or_insert_with(|| reason.clone());
            }
            failed.insert(index, reason);
        }
    }
    for (index, target) in relevant.iter().enumerate() {
        let sums = Sums::of(target, containers, &decision.held);
        let held = failed.get(&index).cloned();
        let percent = sums.percent(target).and_then(|percent| u32::try_from(percent).ok());
        let new_percent = percent.filter(|percent| held.is_none() && *percent != target.percent);
        if new_percent.is_some() || held.is_some() {
            let target = (*target).clone();
            decision.target_changes.push(TargetChange { target, new_percent, held });
        }
    }
    decision
}

/// All requests stay, as it is unknown which targets are relative to them.
pub fn stay_all(containers: &[ContainerRequest<'_>]) -> SharedDecision {
    let reason =
        "HorizontalPodAutoscalers could not be read, and its target may have to change too";
    let held = containers.iter().map(|container| (container.name.to_owned(), reason.to_owned()));
    SharedDecision { target_changes: Vec::new(), held: held.collect() }
}

/// The requests that a target is relative to.
struct Sums<'a> {
    current: i64,
    new: i64,
    /// A container without a request: the autoscaler cannot compute the utilization.
    without_request: Option<&'a str>,
    changes: bool,
}

impl<'a> Sums<'a> {
    fn of(
        target: &UtilizationTarget,
        containers: &[ContainerRequest<'a>],
        held: &BTreeMap<String, String>,
    ) -> Self {
        let mut sums = Self { current: 0, new: 0, without_request: None, changes: false };
        for container in containers.iter().filter(|container| counts(target, container)) {
            let new =
                if held.contains_key(container.name) { container.current } else { container.new };
            sums.changes |= new != container.current;
            match (container.current, new) {
                (Some(current), Some(new)) => {
                    sums.current = sums.current.saturating_add(current);
                    sums.new = sums.new.saturating_add(new);
                }
                _ => sums.without_request = sums.without_request.or(Some(container.name)),
            }
        }
        sums
    }

    /// The target that means the same usage with the new requests.
    fn percent(&self, target: &UtilizationTarget) -> Option<i64> {
        let is_known = self.without_request.is_none() && self.current > 0 && self.new > 0;
        is_known.then(|| moved_percent(target.percent.into(), self.current, self.new))
    }
}

/// Whether a target is relative to the request of a container.
fn counts(target: &UtilizationTarget, container: &ContainerRequest<'_>) -> bool {
    let is_named = target.container.as_deref().is_none_or(|name| name == container.name);
    container.role != ContainerRole::Init && is_named
}

/// Why the requests that a target is relative to stay; `None` if they may change.
fn reason_to_hold(
    rule: AutoscalerRule,
    target: &UtilizationTarget,
    sums: &Sums<'_>,
) -> Option<String> {
    if !sums.changes {
        return None;
    }
    let UtilizationTarget { kind, name, resource, percent, .. } = target;
    if rule == AutoscalerRule::Skip {
        return Some(format!("{kind} {name} scales by the utilization of {resource} (--hpa=skip)"));
    }
    if let Some(container) = sums.without_request {
        return Some(format!(
            "{kind} {name} scales by the utilization of {resource}, which is unknown: the container {container} has no request"
        ));
    }
    let new = sums.percent(target)?;
    let (min, max) = (PERCENT_RANGE.start(), PERCENT_RANGE.end());
    (!PERCENT_RANGE.contains(&new)).then(|| {
        format!(
            "{kind} {name} scales at {percent} % of the requested {resource}, which would have to become {new} %; from {min} to \
             {max} % are possible"
        )
    })
}

#[cfg(test)]
mod tests;
