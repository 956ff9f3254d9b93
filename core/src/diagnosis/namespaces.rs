//! Checks of the limits of namespaces: ResourceQuotas and LimitRanges.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    facts::{ClusterFacts, Reading, VpaFacts},
    finding::{CheckId, Finding, count},
};
use crate::{
    api::{ResourceName, vpa::UpdateMode},
    rightsizing::survey::{Amounts, Workload},
    sizing::limit_range::LimitType,
    types::quantity::Quantity,
};

/// The recommended requests of one pod more than its requests now, by namespace: the largest of each resource.
fn largest_increases(
    vpas: &[VpaFacts],
    workloads: &[Arc<Workload>],
) -> BTreeMap<Box<str>, Amounts> {
    let by_name: BTreeMap<_, _> =
        workloads.iter().map(|one| ((&*one.namespace, &*one.kind, &*one.name), one)).collect();
    let mut increases: BTreeMap<Box<str>, Amounts> = BTreeMap::new();
    for vpa in vpas.iter().filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off) {
        let target = &vpa.spec.target_ref;
        let Some(workload) = by_name.get(&(&*vpa.namespace, &*target.kind, &*target.name)) else {
            continue;
        };
        let (mut cpu, mut memory) = (0, 0);
        for (container, wanted) in &vpa.targets {
            let Some(now) = workload.containers.iter().find(|one| *one.name == **container) else {
                continue;
            };
            if let Some(wanted) = wanted.cpu {
                cpu += wanted.0 - now.requests.cpu.unwrap_or_default().0;
            }
            if let Some(wanted) = wanted.memory {
                memory += wanted.0 - now.requests.memory.unwrap_or_default().0;
            }
        }
        let largest = increases.entry(vpa.namespace.clone()).or_default();
        if cpu > 0 {
            let cpu = crate::types::units::MilliCpu(cpu);
            largest.cpu = Some(largest.cpu.map_or(cpu, |other| other.max(cpu)));
        }
        if memory > 0 {
            let memory = crate::types::units::Bytes(memory);
            largest.memory = Some(largest.memory.map_or(memory, |other| other.max(memory)));
        }
    }
    increases
}

pub(super) fn quota_without_room(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let (vpas, quotas) = (facts.vpas.as_ref()?, facts.quotas.as_ref()?);
    let increases = largest_increases(vpas, &facts.survey.workloads);
    let mut full = Vec::new();
    for quota in quotas {
        let Some(needed) = increases.get(&quota.namespace) else { continue };
        let needs = [
            (["requests.cpu", "cpu"], needed.cpu.map(Quantity::cpu)),
            (["requests.memory", "memory"], needed.memory.map(Quantity::memory)),
        ];
        for (names, needed) in needs {
            let Some(needed) = needed else { continue };
            for name in names.map(ResourceName::from) {
                let Some(hard) = quota.hard.get(&name) else { continue };
                let used = quota.used.get(&name).map_or(0, Quantity::nanos);
                if used + needed.nanos() > hard.nanos() {
                    full.push(format!(
                        "{}/{}: {name} {} of {hard} used, one pod needs {needed} more",
                        quota.namespace,
                        quota.name,
                        quota
                            .used
                            .get(&name)
                            .map_or_else(|| "0".to_owned(), |used| used.to_string()),
                    ));
                }
            }
        }
    }
    if full.is_empty() {
        return Ok(Finding::ok(id, "Each ResourceQuota has room for the recommendations."));
    }
    let message = format!(
        "{} no room for the recommendation of one more pod.",
        if full.len() == 1 {
            "1 ResourceQuota has".to_owned()
        } else {
            format!("{} resources of ResourceQuotas have", full.len())
        }
    );
    Ok(Finding::warning(id, message)
        .measured(format!("{} full", full.len()), "room for one pod")
        .objects(full)
        .next("kubectl get resourcequota -A"))
}

pub(super) fn limitrange_fights(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let (vpas, ranges) = (facts.vpas.as_ref()?, facts.limit_ranges.as_ref()?);
    let mut by_namespace: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for range in ranges {
        by_namespace.entry(&range.namespace).or_default().push(range);
    }
    let mut fights = Vec::new();
    for vpa in vpas.iter().filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off) {
        for range in by_namespace.get(&*vpa.namespace).into_iter().flatten() {
            let items = range.items.iter().filter(|item| item.kind == LimitType::Container);
            for item in items {
                for (container, target) in &vpa.targets {
                    let targets = [
                        (ResourceName::Cpu, target.cpu.map(Quantity::cpu)),
                        (ResourceName::Memory, target.memory.map(Quantity::memory)),
                    ];
                    for (resource, target) in targets {
                        let Some(target) = target else { continue };
                        let max = item.max.as_ref().and_then(|list| list.get(&resource));
                        let min = item.min.as_ref().and_then(|list| list.get(&resource));
                        let bound = match (max, min) {
                            (Some(max), _) if target.nanos() > max.nanos() => ("max", max),
                            (_, Some(min)) if target.nanos() < min.nanos() => ("min", min),
                            _ => continue,
                        };
                        fights.push(format!(
                            "{} {container}: {resource} {target}, {} {} of LimitRange {}",
                            vpa.key(),
                            bound.0,
                            bound.1,
                            range.name
                        ));
                    }
                }
            }
        }
    }
    if fights.is_empty() {
        return Ok(Finding::ok(id, "Each recommendation is within the LimitRanges."));
    }
    let message = format!(
        "{} outside of a LimitRange, which caps them.",
        count(fights.len(), "recommendation")
    );
    Ok(Finding::warning(id, message)
        .measured(format!("{} outside", fights.len()), "within min and max")
        .objects(fights)
        .next("kubectl get limitrange -A"))
}
