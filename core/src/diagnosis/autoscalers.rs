//! Checks of autoscalers that disturb each other, or have no target.

use std::collections::BTreeMap;

use super::{
    facts::{ClusterFacts, TargetKey, VpaFacts, target_key},
    finding::{CheckId, Finding, count},
};
use crate::{
    api::{
        ResourceName,
        vpa::{ContainerMode, ContainerPolicy, UpdateMode, VerticalPodAutoscalerSpec},
    },
    rightsizing::survey::Resource,
};

pub(super) fn vpa_target_missing(facts: &ClusterFacts) -> Finding {
    let id = CheckId::VpaTargetMissing;
    let vpas = match &facts.vpas {
        Ok(vpas) => vpas,
        Err(why) => return Finding::unknown(id, why),
    };
    let describe = |vpa: &VpaFacts| {
        let target = &vpa.spec.target_ref;
        format!("{}: {}/{}", vpa.key(), target.kind, target.name)
    };
    let missing: Vec<_> =
        vpas.iter().filter(|vpa| vpa.target_exists == Ok(false)).map(describe).collect();
    if !missing.is_empty() {
        let message = format!("{} a target that does not exist.", have(missing.len(), "VPA"));
        let next = missing.first().map(|first| first.split(':').next().unwrap_or_default());
        let next = format!("plimsoll explain vpa {}", next.unwrap_or_default());
        return Finding::warning(id, message).objects(missing).next(next);
    }
    let unknown: Vec<_> = vpas.iter().filter(|vpa| vpa.target_exists.is_err()).collect();
    match unknown.first().map(|vpa| (vpa, &vpa.target_exists)) {
        Some((vpa, Err(why))) => {
            let count = count(unknown.len(), "target");
            Finding::unknown(
                id,
                format!("{count} not found out, the first of {}: {why}", vpa.key()),
            )
            .objects(unknown.iter().map(|vpa| describe(vpa)))
        }
        _ => Finding::ok(id, format!("{}, and all targets exist.", count(vpas.len(), "VPA"))),
    }
}

pub(super) fn two_vpas_one_workload(facts: &ClusterFacts) -> Finding {
    let id = CheckId::TwoVpasOneWorkload;
    let vpas = match &facts.vpas {
        Ok(vpas) => vpas,
        Err(why) => return Finding::unknown(id, why),
    };
    let mut by_target: BTreeMap<TargetKey<'_>, Vec<&VpaFacts>> = BTreeMap::new();
    for vpa in vpas {
        let key = target_key(&vpa.namespace, &vpa.spec.target_ref);
        by_target.entry(key).or_default().push(vpa);
    }
    let shared: Vec<_> = by_target.iter().filter(|(_, vpas)| vpas.len() > 1).collect();
    if shared.is_empty() {
        return Finding::ok(id, "Each workload has one VPA at most.");
    }
    let acts = |vpa: &&&VpaFacts| vpa.spec.update_mode() != UpdateMode::Off;
    let is_contested = shared.iter().any(|(_, vpas)| vpas.iter().filter(acts).count() > 1);
    let message = format!(
        "{} more than one VPA: only the oldest one that matches has an effect.",
        have(shared.len(), "workload")
    );
    let objects = shared.iter().map(|((namespace, _, kind, name), vpas)| {
        let names: Vec<_> = vpas.iter().map(|vpa| &*vpa.name).collect();
        format!("{namespace}/{kind}/{name}: {}", names.join(", "))
    });
    let finding =
        if is_contested { Finding::problem(id, message) } else { Finding::warning(id, message) };
    finding
        .measured(format!("{} shared", shared.len()), "one VPA for each workload")
        .objects(objects)
        .next("kubectl get vpa -A")
}

pub(super) fn hpa_same_metric(facts: &ClusterFacts) -> Finding {
    let id = CheckId::HpaSameMetric;
    let (vpas, hpas) = match (&facts.vpas, &facts.hpas) {
        (Ok(vpas), Ok(hpas)) => (vpas, hpas),
        (Err(why), _) | (_, Err(why)) => return Finding::unknown(id, why),
    };
    let mut by_target: BTreeMap<TargetKey<'_>, Vec<&VpaFacts>> = BTreeMap::new();
    for vpa in vpas.iter().filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off) {
        let key = target_key(&vpa.namespace, &vpa.spec.target_ref);
        by_target.entry(key).or_default().push(vpa);
    }
    let mut contested = Vec::new();
    for hpa in hpas {
        let scaler = &hpa.scaler;
        let key = target_key(&scaler.namespace, &scaler.target);
        for vpa in by_target.get(&key).into_iter().flatten() {
            let mut resources: Vec<Resource> = hpa
                .utilization
                .iter()
                .filter(|(resource, container)| {
                    controls(&vpa.spec, *resource, container.as_deref())
                })
                .map(|(resource, _)| *resource)
                .collect();
            resources.sort_unstable();
            resources.dedup();
            if !resources.is_empty() {
                let resources: Vec<_> = resources.iter().map(ToString::to_string).collect();
                let resources = resources.join(" and ");
                contested.push(format!("HPA {} and VPA {}: {resources}", scaler.key(), vpa.key()));
            }
        }
    }
    if contested.is_empty() {
        return Finding::ok(id, "No HPA aims at a percentage of a request that a VPA changes.");
    }
    let message = format!(
        "{} a percentage of a request that a VPA changes.",
        if contested.len() == 1 {
            "1 HPA aims at".to_owned()
        } else {
            format!("{} HPAs aim at", contested.len())
        }
    );
    Finding::problem(id, message)
        .measured(format!("{} contested", contested.len()), "another metric, or AverageValue")
        .objects(contested)
        .next("plimsoll recommend --hpa=joint")
}

/// Whether a VPA changes the request of a resource of a container, or of any container for `None`.
fn controls(spec: &VerticalPodAutoscalerSpec, resource: Resource, container: Option<&str>) -> bool {
    let name = match resource {
        Resource::Cpu => ResourceName::Cpu,
        Resource::Memory => ResourceName::Memory,
    };
    let is_controlled = |policy: &ContainerPolicy| {
        policy.mode.unwrap_or_default() == ContainerMode::Auto
            && policy.controlled_resources.as_ref().is_none_or(|all| all.contains(&name))
    };
    if let Some(container) = container {
        return spec.container_policy(container).is_none_or(is_controlled);
    }
    let mut policies = spec.resource_policy.iter().flat_map(|all| &all.container_policies);
    // Containers without a policy are controlled, unless the default policy says otherwise.
    spec.container_policy("*").is_none_or(is_controlled) || policies.any(is_controlled)
}

pub(super) fn wpa_and_hpa(facts: &ClusterFacts) -> Finding {
    let id = CheckId::WpaAndHpa;
    let (wpas, hpas) = match (&facts.wpas, &facts.hpas) {
        (Ok(wpas), Ok(hpas)) => (wpas, hpas),
        (Err(why), _) | (_, Err(why)) => return Finding::unknown(id, why),
    };
    let mut by_target = BTreeMap::new();
    for hpa in hpas {
        let scaler = &hpa.scaler;
        by_target.insert(target_key(&scaler.namespace, &scaler.target), scaler);
    }
    let shared: Vec<_> = wpas
        .iter()
        .filter_map(|wpa| {
            let hpa = by_target.get(&target_key(&wpa.namespace, &wpa.target))?;
            Some(format!("WPA {} and HPA {}", wpa.key(), hpa.key()))
        })
        .collect();
    if shared.is_empty() {
        return Finding::ok(id, "No workload is scaled by a WPA and an HPA.");
    }
    let message = format!(
        "{} scaled by a WPA and an HPA: each undoes the changes of the other.",
        if shared.len() == 1 {
            "1 workload is".to_owned()
        } else {
            format!("{} workloads are", shared.len())
        }
    );
    let measured = format!("{} with both", shared.len());
    Finding::problem(id, message)
        .measured(measured, "one of both")
        .objects(shared)
        .next("kubectl get hpa,wpa -A")
}

/// `1 VPA has`, `2 VPAs have`.
fn have(number: usize, singular: &str) -> String {
    let verb = if number == 1 { "has" } else { "have" };
    format!("{} {verb}", count(number, singular))
}
