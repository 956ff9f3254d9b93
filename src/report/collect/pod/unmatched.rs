//! Explains why the updater matches a pod to no active VPA.

use kube::ResourceExt as _;

use crate::{
    cluster::{
        cache::updater_pod::UpdaterPod,
        snapshot::SnapshotPod,
        target::{TargetResolution, TargetResolver, TopOwner},
    },
    controllers::updater::matching::{Target, owner_of, top_owner},
};
use plimsoll_core::{api::VerticalPodAutoscaler, types::compat::Compat, updater::Phase, vpa_match};

#[derive(Debug)]
pub(super) struct Unmatched {
    pub code: &'static str,
    pub message: String,
    /// The VPA that was probably meant for the pod.
    pub vpa: Option<VerticalPodAutoscaler>,
    /// The topmost controller of the pod, if it was resolved.
    pub top_owner: Option<Target>,
    pub is_misconfigured: bool,
}

impl Unmatched {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), vpa: None, top_owner: None, is_misconfigured: false }
    }

    fn with_vpa(self, vpa: &VerticalPodAutoscaler, is_misconfigured: bool) -> Self {
        Self { vpa: Some(vpa.clone()), is_misconfigured, ..self }
    }
}

pub(super) async fn explain(
    targets: &TargetResolver,
    namespace: &str,
    pod: &SnapshotPod,
    vpas: &[VerticalPodAutoscaler],
    compat: Compat,
) -> Unmatched {
    let (is_running, pod) = (pod.is_running(), &pod.updater);
    if pod.is_terminating() {
        return Unmatched::new("terminating", "it is being deleted");
    }
    if !is_running {
        return match pod.status.phase {
            Phase::Pending => Unmatched::new(
                "unscheduled",
                "it is not scheduled yet: its resources were set when it was created, and there is nothing to update",
            ),
            _ => Unmatched::new("ended", "it has terminated"),
        };
    }
    let Some(owner) = owner_of(namespace, pod) else {
        let message = "it has no controller that would replace it, and VPAs target controllers";
        return Unmatched::new("no_controller", message);
    };
    let Some(top) = top_owner(targets, &owner).await else {
        let (kind, name) = (&owner.kind, &owner.name);
        let why = match targets.topmost(&owner).await {
            TopOwner::Invalid(why) | TopOwner::Unavailable(why) => why,
            TopOwner::Found(_) | TopOwner::None => "it has no scale subresource".to_owned(),
        };
        let message = format!("failed to resolve its controller {kind} {name}: {why}");
        return Unmatched::new("controller_unknown", message);
    };
    let active = |vpa: &VerticalPodAutoscaler| vpa_match::changes_running_pods(vpa, compat);
    let found = explain_owner(targets, namespace, pod, &top, vpas, active).await;
    Unmatched { top_owner: Some(top), ..found }
}

async fn explain_owner(
    targets: &TargetResolver,
    namespace: &str,
    pod: &UpdaterPod,
    top: &Target,
    vpas: &[VerticalPodAutoscaler],
    is_active: impl Fn(&VerticalPodAutoscaler) -> bool,
) -> Unmatched {
    let (kind, name) = top;
    let has_target = |vpa: &VerticalPodAutoscaler, kind: &str, name: &str| {
        vpa.spec.target_ref.kind == kind && vpa.spec.target_ref.name == name
    };
    let mut candidates: Vec<_> = vpas.iter().filter(|vpa| has_target(vpa, kind, name)).collect();
    if candidates.is_empty() {
        let direct_owner = pod.status.owner.as_ref();
        let misdirected = vpas.iter().find(|vpa| {
            direct_owner.is_some_and(|owner| has_target(vpa, &owner.kind, &owner.name))
        });
        let Some(vpa) = misdirected else {
            let message = format!("no VPA in namespace {namespace} targets {kind} {name}");
            return Unmatched::new("no_vpa", message);
        };
        let target = &vpa.spec.target_ref;
        let message = format!(
            "VPA {} targets {} {}, which is controlled by {kind} {name}: it has to target the latter",
            vpa.name_any(),
            target.kind,
            target.name
        );
        return Unmatched::new("target_unsupported", message).with_vpa(vpa, true);
    }
    let first = candidates[0];
    candidates.retain(|vpa| is_active(vpa));
    let Some(vpa) = candidates.first() else {
        let message = format!("VPA {} does not update running pods", first.name_any());
        return Unmatched::new("vpa_off", message).with_vpa(first, false);
    };
    let name = vpa.name_any();
    match targets.resolve(namespace, &vpa.spec.target_ref).await {
        TargetResolution::Unsupported { message } => {
            let message = format!("the targetRef of VPA {name} is invalid: {message}");
            Unmatched::new("target_unsupported", message).with_vpa(vpa, true)
        }
        TargetResolution::Unavailable { message } => {
            let message = format!("failed to read the target of VPA {name}: {message}");
            Unmatched::new("target_unavailable", message).with_vpa(vpa, true)
        }
        TargetResolution::Found { selector, .. } if !selector.matches(&pod.labels) => {
            let message = format!(
                "its labels do not match the selector of its controller ({})",
                selector.as_str()
            );
            Unmatched::new("labels_differ", message).with_vpa(vpa, true)
        }
        TargetResolution::Found { .. } => {
            Unmatched::new("changed_meanwhile", "it changed in the meantime: try again")
                .with_vpa(vpa, true)
        }
    }
}
