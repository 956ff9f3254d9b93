//! Checks of autoscalers that disturb each other, or have no target.

use std::collections::BTreeMap;

use super::{
    facts::{ClusterFacts, Reading, TargetKey, VpaFacts, target_key},
    finding::{CheckId, Finding, HAVE, Level, count, subject},
};
use crate::{
    api::vpa::{ContainerPolicy, UpdateMode, VerticalPodAutoscalerSpec},
    types::Resource,
};

pub(super) fn vpa_target_missing(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let vpas = facts.vpas.as_ref()?;
    let describe = |vpa: &VpaFacts| {
        let target = &vpa.spec.target_ref;
        format!("{}: {}/{}", vpa.key(), target.kind, target.name)
    };
    let missing: Vec<_> =
        vpas.iter().filter(|vpa| vpa.target_exists == Ok(false)).map(describe).collect();
    if !missing.is_empty() {
        let message =
            format!("{} a target that does not exist.", subject(missing.len(), "VPA", HAVE));
        let next = missing.first().map(|first| first.split(':').next().unwrap_or_default());
        let next = format!("plimsoll explain vpa {}", next.unwrap_or_default());
        return Ok(Finding::warning(id, message).objects(missing).next(next));
    }
    let unknown: Vec<_> = vpas.iter().filter(|vpa| vpa.target_exists.is_err()).collect();
    if let Some((vpa, Err(why))) = unknown.first().map(|vpa| (vpa, &vpa.target_exists)) {
        let count = count(unknown.len(), "target");
        let why = format!("{count} not found out, the first of {}: {why}", vpa.key());
        return Ok(Finding::unknown(id, why).objects(unknown.into_iter().map(describe)));
    }
    Ok(Finding::ok(id, format!("{}, and all targets exist.", count(vpas.len(), "VPA"))))
}

fn group_by_target<'a>(
    vpas: impl Iterator<Item = &'a VpaFacts>,
) -> BTreeMap<TargetKey<'a>, Vec<&'a VpaFacts>> {
    let mut by_target: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for vpa in vpas {
        let key = target_key(&vpa.namespace, &vpa.spec.target_ref);
        by_target.entry(key).or_default().push(vpa);
    }
    by_target
}

pub(super) fn two_vpas_one_workload(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let vpas = facts.vpas.as_ref()?;
    let by_target = group_by_target(vpas.iter());
    let shared: Vec<_> = by_target.iter().filter(|(_, vpas)| vpas.len() > 1).collect();
    if shared.is_empty() {
        return Ok(Finding::ok(id, "Each workload has one VPA at most."));
    }
    let acts = |vpa: &&&VpaFacts| vpa.spec.update_mode() != UpdateMode::Off;
    let is_contested = shared.iter().any(|(_, vpas)| vpas.iter().filter(acts).count() > 1);
    let message = format!(
        "{} more than one VPA: only the oldest one that matches has an effect.",
        subject(shared.len(), "workload", HAVE)
    );
    let objects = shared.iter().map(|((namespace, _, kind, name), vpas)| {
        let names: Vec<_> = vpas.iter().map(|vpa| &*vpa.name).collect();
        format!("{namespace}/{kind}/{name}: {}", names.join(", "))
    });
    let level = if is_contested { Level::Problem } else { Level::Warning };
    Ok(Finding::new(id, level, message)
        .measured(format!("{} shared", shared.len()), "one VPA for each workload")
        .objects(objects)
        .next("kubectl get vpa -A"))
}

pub(super) fn hpa_same_metric(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let (vpas, hpas) = (facts.vpas.as_ref()?, facts.hpas.as_ref()?);
    let acting = vpas.iter().filter(|vpa| vpa.spec.update_mode() != UpdateMode::Off);
    let by_target = group_by_target(acting);
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
        return Ok(Finding::ok(id, "No HPA aims at a percentage of a request that a VPA changes."));
    }
    let message = format!(
        "{} a percentage of a request that a VPA changes.",
        subject(contested.len(), "HPA", ["aims at", "aim at"])
    );
    Ok(Finding::problem(id, message)
        .measured(format!("{} contested", contested.len()), "another metric, or AverageValue")
        .objects(contested)
        .next("plimsoll recommend --hpa=joint"))
}

/// Whether a VPA changes the request of a resource of a container, or of any container for `None`.
fn controls(spec: &VerticalPodAutoscalerSpec, resource: Resource, container: Option<&str>) -> bool {
    let is_controlled = |policy: &ContainerPolicy| policy.controls(resource);
    if let Some(container) = container {
        return spec.container_policy(container).is_none_or(is_controlled);
    }
    let mut policies = spec.resource_policy.iter().flat_map(|all| &all.container_policies);
    // Containers without a policy are controlled, unless the default policy says otherwise.
    spec.container_policy("*").is_none_or(is_controlled) || policies.any(is_controlled)
}

pub(super) fn wpa_and_hpa(id: CheckId, facts: &ClusterFacts) -> Reading<Finding> {
    let (wpas, hpas) = (facts.wpas.as_ref()?, facts.hpas.as_ref()?);
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
        return Ok(Finding::ok(id, "No workload is scaled by a WPA and an HPA."));
    }
    let message = format!(
        "{} scaled by a WPA and an HPA: each undoes the changes of the other.",
        subject(shared.len(), "workload", ["is", "are"])
    );
    let measured = format!("{} with both", shared.len());
    Ok(Finding::problem(id, message)
        .measured(measured, "one of both")
        .objects(shared)
        .next("kubectl get hpa,wpa -A"))
}
