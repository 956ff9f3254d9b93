//! Strategic merge patches that set the resources of a workload.

use crate::rightsizing::{
    fail_on::changes,
    report::{ContainerReport, Report, ResourceReport, WorkloadReport},
    survey::ContainerRole,
};

use super::{
    amount::amount_text,
    autoscaler::KIND as AUTOSCALER,
    yaml_text::{Yaml, map, quoted_if_needed},
};

pub(super) struct WorkloadPatch<'r> {
    pub workload: &'r WorkloadReport,
    /// `None` if nothing is patched.
    pub patch: Option<Yaml>,
    /// What is left out and why, each on one line.
    pub remarks: Vec<String>,
}

/// Which changes can be part of a patch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Autoscalers {
    /// Targets of HorizontalPodAutoscalers are patched with the requests.
    Patched,
    /// Requests that a target has to follow are left out.
    LeftOut,
}

/// The patches of all workloads that should change.
pub(super) fn patches(report: &Report, autoscalers: Autoscalers) -> Vec<WorkloadPatch<'_>> {
    let patches = report.workloads.iter().map(|workload| patch(workload, autoscalers));
    patches.filter(|patch| patch.patch.is_some() || !patch.remarks.is_empty()).collect()
}

fn patch(workload: &WorkloadReport, autoscalers: Autoscalers) -> WorkloadPatch<'_> {
    let mut remarks = Vec::new();
    // kustomize puts the containers that a patch names before the others, and init containers run in their order:
    // those before a patched one are named too.
    let mut lists = [("containers", Vec::new(), 0), ("initContainers", Vec::new(), 0)];
    // A container that is named and not in the template would be added to it.
    let of_template = workload.containers.iter().filter(|one| one.no_patch.is_none());
    for container in of_template {
        let wanted = container.resources.iter().filter(|resource| changes(&resource.change));
        let (possible, joint): (Vec<_>, Vec<_>) =
            wanted.partition(|resource| blocking_target(workload, resource, autoscalers).is_none());
        for resource in joint {
            if let Some(target) = blocking_target(workload, resource, autoscalers) {
                let mut remark = format!(
                    "{}: {} of container {} is left out: the target of {target} has to change in the same step",
                    title(workload),
                    resource.resource,
                    quoted_if_needed(&container.name),
                );
                if autoscalers == Autoscalers::Patched && !knows_metric_index(workload) {
                    remark += ", and its index in spec.metrics is unknown without the API server";
                }
                remarks.push(remark);
            }
        }
        let (_, items, needed) = &mut lists[usize::from(container.role != ContainerRole::Main)];
        let mut item = vec![("name".to_owned(), Yaml::text(&container.name))];
        let resources = resources(&possible);
        let is_patched = resources.is_some();
        item.extend(resources.map(|resources| ("resources".to_owned(), resources)));
        items.push(Yaml::Map(item));
        if is_patched {
            *needed = items.len();
        }
    }
    let [_, (_, init, patched_init)] = &mut lists;
    // Series do not tell the order.
    if *patched_init > 0 && init.len() > 1 && workload.api_version.is_none() {
        *patched_init = 0;
        remarks.push(format!(
            "{}: its init containers are left out: their order is unknown without the API server",
            title(workload)
        ));
    }
    let containers: Vec<_> = lists
        .into_iter()
        .filter(|(_, _, needed)| *needed > 0)
        .map(|(key, mut items, needed)| {
            items.truncate(needed);
            (key.to_owned(), Yaml::List(items))
        })
        .collect();
    let mut patch = None;
    if !containers.is_empty() {
        match mergeable_version(workload) {
            Some(api_version) => patch = Some(object(workload, api_version, Yaml::Map(containers))),
            None => remarks.push(format!(
                "{} is left out: a patch of this kind would replace the whole list of containers; use --diff",
                title(workload)
            )),
        }
    }
    WorkloadPatch { workload, patch, remarks }
}

/// The kind, namespace and name of a workload, for a comment.
pub(super) fn title(workload: &WorkloadReport) -> String {
    quoted_if_needed(&format!("{}/{}/{}", workload.namespace, workload.kind, workload.name))
}

/// Whether the index of a metric in `spec.metrics` was read: series do not tell it.
pub(super) fn knows_metric_index(workload: &WorkloadReport) -> bool {
    workload.api_version.is_some()
}

/// The autoscaler whose target would have to be patched too, and cannot.
fn blocking_target(
    workload: &WorkloadReport,
    resource: &ResourceReport,
    autoscalers: Autoscalers,
) -> Option<String> {
    let blocks = workload.target_changes.iter().find(|change| {
        change.new_percent.is_some()
            && change.target.resource == resource.resource
            && (autoscalers == Autoscalers::LeftOut
                || &*change.target.kind != AUTOSCALER
                || !knows_metric_index(workload))
    })?;
    let target = &blocks.target;
    Some(quoted_if_needed(&format!("{}/{}", target.kind, target.name)))
}

/// The `resources` of a container; `None` if nothing changes.
fn resources(wanted: &[&ResourceReport]) -> Option<Yaml> {
    let requests = wanted.iter().filter_map(|wanted| {
        let amount = wanted.change.request?;
        Some((wanted.resource.to_string(), Yaml::Plain(amount_text(wanted.resource, amount))))
    });
    let limits = wanted.iter().filter_map(|wanted| {
        let limit = if wanted.change.remove_limit {
            Yaml::Null
        } else {
            Yaml::Plain(amount_text(wanted.resource, wanted.change.limit?))
        };
        Some((wanted.resource.to_string(), limit))
    });
    let sections = [("requests", requests.collect::<Vec<_>>()), ("limits", limits.collect())];
    let sections: Vec<_> = sections
        .into_iter()
        .filter(|(_, values)| !values.is_empty())
        .map(|(key, values)| (key.to_owned(), Yaml::Map(values)))
        .collect();
    (!sections.is_empty()).then_some(Yaml::Map(sections))
}

/// The `resources` of a container, for values of a chart.
pub(super) fn container_resources(container: &ContainerReport) -> Option<Yaml> {
    let wanted: Vec<_> =
        container.resources.iter().filter(|resource| changes(&resource.change)).collect();
    resources(&wanted)
}

fn object(workload: &WorkloadReport, api_version: &str, pod_spec: Yaml) -> Yaml {
    let template = || map([("template", map([("spec", pod_spec.clone())]))]);
    let spec = match &*workload.kind {
        "Pod" => pod_spec,
        "CronJob" => map([("jobTemplate", map([("spec", template())]))]),
        _ => template(),
    };
    map([
        ("apiVersion", Yaml::text(api_version)),
        ("kind", Yaml::text(&workload.kind)),
        (
            "metadata",
            map([
                ("name", Yaml::text(&workload.name)),
                ("namespace", Yaml::text(&workload.namespace)),
            ]),
        ),
        ("spec", spec),
    ])
}

/// The version of the API that has a kind; `None` for kinds of others.
pub(super) fn default_version(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => "apps/v1",
        "Job" | "CronJob" => "batch/v1",
        "Pod" | "ReplicationController" => "v1",
        _ => return None,
    })
}

/// The API version of a workload if patches of it merge containers by their name. Lists of custom resources
/// are replaced as a whole, and those may have a built-in kind: OpenKruise has a StatefulSet too.
fn mergeable_version(workload: &WorkloadReport) -> Option<&'static str> {
    default_version(&workload.kind).filter(|built_in| {
        workload.api_version.as_deref().is_none_or(|version| version == *built_in)
    })
}
