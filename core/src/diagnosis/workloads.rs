//! Checks of workloads: what keeps the updater from changing their pods, and runtimes with fixed sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    facts::{ClusterFacts, Reading, TargetKey, VpaFacts, group_of_target, target_key},
    finding::{CheckId, Finding, subject},
};
use crate::{
    api::vpa::UpdateMode,
    rightsizing::survey::{Container, RuntimeHint, Workload},
    types::{quantity::humanize, units::Bytes},
};

/// The updater's default of `--min-replicas`.
const DEFAULT_MIN_REPLICAS: i32 = 2;
/// The share of the memory limit of a container that a Go runtime may use; the rest is for memory that it does not count.
const GO_SHARE: f64 = 0.9;

fn vpas_by_target(vpas: &[VpaFacts]) -> BTreeMap<TargetKey<'_>, &VpaFacts> {
    vpas.iter().map(|vpa| (target_key(&vpa.namespace, &vpa.spec.target_ref), vpa)).collect()
}

fn workload_key(workload: &Workload) -> TargetKey<'_> {
    let group = group_of_target(workload.api_version.as_deref(), &workload.kind);
    (&workload.namespace, group, &workload.kind, &workload.name)
}

/// Nothing was found: nothing is wrong, unless some workloads could not be read.
fn fine(facts: &ClusterFacts, id: CheckId, message: &str) -> Reading<Finding> {
    let Some(first) = facts.survey.unread.first() else { return Ok(Finding::ok(id, message)) };
    let more = facts.survey.unread.len() - 1;
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(format!("failed to read {}: {}{more}", first.what, first.why))
}

pub(super) fn single_replica_skipped(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let vpas = vpas_by_target(facts.vpas.as_ref()?);
    let mut skipped = Vec::new();
    for workload in &facts.survey.workloads {
        let Some(vpa) = vpas.get(&workload_key(workload)) else { continue };
        let policy = vpa.spec.update_policy.as_ref();
        let minimum = policy.and_then(|policy| policy.min_replicas).unwrap_or(DEFAULT_MIN_REPLICAS);
        // All pods of a DaemonSet are single on their nodes, and its number is that of nodes.
        let has_one = workload.replicas == Some(1) && &*workload.kind != "DaemonSet";
        if has_one && minimum > 1 && vpa.spec.update_mode().changes_running_pods() {
            skipped.push(name(workload));
        }
    }
    if skipped.is_empty() {
        return fine(facts, id, "No VPA waits for a second replica.");
    }
    let message = format!(
        "{} one replica, and the updater skips workloads with fewer than {DEFAULT_MIN_REPLICAS}.",
        if skipped.len() == 1 {
            "1 workload with a VPA has".to_owned()
        } else {
            format!("{} workloads with a VPA have", skipped.len())
        }
    );
    Ok(Finding::warning(id, message)
        .measured("1 replica", "2, or updatePolicy.minReplicas: 1")
        .objects(skipped)
        .next("plimsoll explain pod NAMESPACE/POD"))
}

pub(super) fn pdb_blocks_all(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let (vpas, budgets) = (facts.vpas.as_ref()?, facts.budgets.as_ref()?);
    // Modes that never evict are not concerned.
    let evicts = |vpa: &&VpaFacts| {
        let mode = vpa.spec.update_mode();
        mode.changes_running_pods() && mode != UpdateMode::InPlace
    };
    let namespaces: BTreeSet<&str> =
        vpas.iter().filter(evicts).map(|vpa| &*vpa.namespace).collect();
    let blocking: Vec<_> = budgets
        .iter()
        .filter(|budget| {
            budget.is_observed
                && budget.expected_pods > 0
                && budget.desired_healthy >= budget.expected_pods
                && namespaces.contains(&*budget.namespace)
        })
        .map(|budget| format!("{}/{}", budget.namespace, budget.name))
        .collect();
    if blocking.is_empty() {
        return Ok(Finding::ok(id, "No PodDisruptionBudget blocks all evictions."));
    }
    let message = format!(
        "{} evictions of all pods, even if all are healthy.",
        subject(blocking.len(), "PodDisruptionBudget", ["blocks", "block"])
    );
    Ok(Finding::warning(id, message)
        .measured("0 disruptions allowed", "1 or more")
        .objects(blocking)
        .next("kubectl get pdb -A"))
}

pub(super) fn gomemlimit_static(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let vpas = vpas_by_target(facts.vpas.as_ref()?);
    let mut above = Vec::new();
    for workload in &facts.survey.workloads {
        let Some(vpa) = vpas.get(&workload_key(workload)) else { continue };
        for container in &*workload.containers {
            let Some(RuntimeHint::Go { memory_limit: Some(limit), follows_limit: false, .. }) =
                container.runtime.as_deref()
            else {
                continue;
            };
            let target = vpa.targets.iter().find(|(name, _)| **name == *container.name);
            let Some(target) = target.and_then(|(_, target)| target.memory) else { continue };
            if limit.as_f64() > target.as_f64() * GO_SHARE {
                above.push(format!(
                    "{} {} {}, target {}",
                    name(workload),
                    container.name,
                    humanize(*limit),
                    humanize(target)
                ));
            }
        }
    }
    if above.is_empty() {
        return fine(facts, id, "No GOMEMLIMIT is a number near or above the target.");
    }
    let message = format!(
        "{} GOMEMLIMIT to a number above 90 % of the recommended memory: after a change the \
         runtime collects garbage too late.",
        sets(above.len())
    );
    Ok(Finding::warning(id, message)
        .measured(format!("{} above", above.len()), "resourceFieldRef: limits.memory")
        .objects(above)
        .next("plimsoll recommend --why NAMESPACE/NAME"))
}

pub(super) fn xmx_above_limit(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let heap = |container: &Container| -> Option<(Bytes, Bytes)> {
        let Some(RuntimeHint::Jvm { max_heap: Some(heap), .. }) = container.runtime.as_deref()
        else {
            return None;
        };
        let limit = container.limits.memory?;
        (*heap > limit).then_some((*heap, limit))
    };
    let mut above = Vec::new();
    for workload in &facts.survey.workloads {
        for container in &*workload.containers {
            if let Some((heap, limit)) = heap(container) {
                let (heap, limit) = (humanize(heap), humanize(limit));
                let name = name(workload);
                above.push(format!("{name} {} {heap}, limit {limit}", container.name));
            }
        }
    }
    if above.is_empty() {
        return fine(facts, id, "No maximum heap is above the memory limit.");
    }
    let message = format!(
        "{} a maximum heap above the memory limit: an OOM kill comes before an OutOfMemoryError.",
        sets(above.len())
    );
    Ok(Finding::problem(id, message)
        .measured(format!("{} above", above.len()), "a heap below the limit")
        .objects(above)
        .next("plimsoll recommend --why NAMESPACE/NAME"))
}

fn sets(containers: usize) -> String {
    subject(containers, "container", ["sets", "set"])
}

fn name(workload: &Workload) -> String {
    format!("{}/{}/{}", workload.namespace, workload.kind, workload.name)
}
