//! The requests of a VPA's pods that HorizontalPodAutoscalers of a snapshot use too.

use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::UpdateMode},
    coordination::{Resource, SharedRequest, SharingContext},
    hpa,
    types::Time,
};

use crate::{
    cluster::{
        cache::controllers::{ControllerCache, WellKnown},
        snapshot::{ClusterSnapshot, Listed, ReadErrorCause},
    },
    controllers::runtime::hpa_replacement,
    report::{
        explain::{Finding, VpaReport},
        style::sentence,
    },
};

/// Whether Plimsoll replaces the HPA controller of the cluster, by the Leases of its namespace. If they may not be read, as if
/// it did not.
pub(super) fn is_hpa_controller_replaced(leases: Option<&Listed<Lease>>, now: Time) -> bool {
    let leases = leases.and_then(|listed| listed.as_ref().ok());
    let leases = leases.into_iter().flat_map(|leases| &leases.objects);
    let mut leases = leases.filter(|lease| lease.name_any() == hpa_replacement::LEASE);
    leases.any(|lease| hpa_replacement::is_replaced_at(lease, now))
}

/// The requests that the autoscalers of the VPA's target use. `controllers` has the target, if it is well known.
pub(super) fn shared_requests(
    snapshot: &ClusterSnapshot,
    controllers: &ControllerCache,
    vpa: &VerticalPodAutoscaler,
    context: SharingContext,
    notes: &mut Vec<String>,
) -> Vec<SharedRequest> {
    let hpas = match &snapshot.hpas {
        Ok(hpas) => &hpas.objects[..],
        Err(error) => {
            if error.cause != ReadErrorCause::NotRequested {
                notes.push(format!(
                    "HorizontalPodAutoscalers are not known, and one may hold requests: {}.",
                    error.why
                ));
            }
            return Vec::new();
        }
    };
    let (namespace, target) = (vpa.namespace().unwrap_or_default(), &vpa.spec.target_ref);
    let template = WellKnown::from_kind(&target.kind)
        .and_then(|kind| controllers.template(kind, &namespace, &target.name));
    let followers = hpas.iter().filter_map(|hpa| {
        Some(hpa::request_follower(&hpa.metadata, hpa.spec.as_ref()?, hpa.status.as_ref()))
    });
    let of_target = followers.filter(|one| one.scales(&target.kind, &target.name));
    let shared =
        of_target.map(|one| one.shared_requests(template.as_ref(), context).collect::<Vec<_>>());
    shared.flatten().collect()
}

/// Adds what the autoscalers of the VPA's target mean to a report. `is_replaced` is whether Plimsoll replaces the HPA controller
/// of the cluster.
pub(super) fn add(
    report: &mut VpaReport,
    snapshot: &ClusterSnapshot,
    controllers: &ControllerCache,
    vpa: &VerticalPodAutoscaler,
    is_replaced: bool,
) {
    let notes = &mut report.notes;
    let context = SharingContext { is_replaced, ..SharingContext::default() };
    let shared = shared_requests(snapshot, controllers, vpa, context, notes);
    explain(report, vpa, &shared);
}

/// Adds what the shared requests mean to a report: a finding for each that is not changed, with its solution.
fn explain(report: &mut VpaReport, vpa: &VerticalPodAutoscaler, shared: &[SharedRequest]) {
    if vpa.spec.update_mode() == UpdateMode::Off {
        return;
    }
    let is_recommended = |request: &&SharedRequest| {
        let mut containers = report.containers.iter();
        containers.any(|container| {
            let amounts = match request.resource {
                Resource::Cpu => &container.cpu,
                Resource::Memory => &container.memory,
            };
            request.counts(&container.name) && amounts.is_some()
        })
    };
    let recommended: Vec<_> = shared.iter().filter(is_recommended).collect();
    for request in recommended {
        let text = sentence(&request.to_string());
        if request.is_held() {
            report.findings.push(Finding::new("hpa_same_resource", text));
        } else {
            report.notes.push(text);
        }
    }
}
