//! Why a pod belongs to no VPA that has a say about it, as the updater matches them.

use std::sync::Arc;

use kube::ResourceExt as _;

use super::{
    super::matching::{Target, owner_of},
    Updater,
};
use crate::cluster::{
    cache::updater_pod::UpdaterPod,
    target::{TargetResolution, TopOwner},
};
use plimsoll_core::{api::VerticalPodAutoscaler, updater::Phase};

/// Why nobody decides about a pod.
#[derive(Debug)]
pub(super) struct Unmatched {
    /// In one word.
    pub code: &'static str,
    /// In a sentence.
    pub message: String,
    /// The VPA that is meant for it all the same.
    pub vpa: Option<Arc<VerticalPodAutoscaler>>,
    /// The topmost of its controllers, if it was found.
    pub top_owner: Option<Target>,
    /// Whether something is to be put right.
    pub is_misconfigured: bool,
}

impl Unmatched {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), vpa: None, top_owner: None, is_misconfigured: false }
    }

    fn with_vpa(self, vpa: &Arc<VerticalPodAutoscaler>, is_fault: bool) -> Self {
        Self { vpa: Some(Arc::clone(vpa)), is_misconfigured: is_fault, ..self }
    }
}

impl Updater {
    /// Of a pod that no workload has. `is_seen` says whether it is among those that run.
    pub(super) async fn explain_unmatched(
        &self,
        namespace: &str,
        pod: &UpdaterPod,
        is_seen: bool,
    ) -> Unmatched {
        if pod.is_terminating() {
            return Unmatched::new("terminating", "it is being deleted");
        }
        if !is_seen {
            return match pod.status.phase {
                Phase::Pending => Unmatched::new(
                    "unscheduled",
                    "it has no node yet: it got its resources when it was made, and nothing runs that could be changed",
                ),
                _ => Unmatched::new("ended", "it has ended"),
            };
        }
        let Some(owner) = owner_of(namespace, pod) else {
            let message = "no controller owns it, so nobody would make a new one, and VPAs are for controllers";
            return Unmatched::new("no_controller", message);
        };
        let Some(top) = self.top_owner(&owner).await else {
            let (kind, name) = (&owner.kind, &owner.name);
            let why = match self.targets.topmost(&owner).await {
                TopOwner::Invalid(why) | TopOwner::Unavailable(why) => why,
                TopOwner::Found(_) | TopOwner::None => "nobody can scale it".to_owned(),
            };
            let message = format!("its controller, {kind} {name}, cannot be followed: {why}");
            return Unmatched::new("controller_unknown", message);
        };
        let found = self.explain_unmatched_owner(namespace, pod, &top).await;
        Unmatched { top_owner: Some(top), ..found }
    }

    async fn explain_unmatched_owner(
        &self,
        namespace: &str,
        pod: &UpdaterPod,
        top: &Target,
    ) -> Unmatched {
        let (kind, name) = top;
        let vpas = self.stores.vpas(namespace);
        let is_for = |vpa: &VerticalPodAutoscaler, kind: &str, name: &str| {
            vpa.spec.target_ref.kind == kind && vpa.spec.target_ref.name == name
        };
        let mut meant: Vec<_> = vpas.iter().filter(|vpa| is_for(vpa, kind, name)).collect();
        if meant.is_empty() {
            let below = pod.status.owner.as_ref();
            let wrong = vpas
                .iter()
                .find(|vpa| below.is_some_and(|owner| is_for(vpa, &owner.kind, &owner.name)));
            let Some(vpa) = wrong else {
                let message = format!("no VPA of namespace {namespace} is for {kind} {name}");
                return Unmatched::new("no_vpa", message);
            };
            let target = &vpa.spec.target_ref;
            let message = format!(
                "VPA {} is for {} {}, which {kind} {name} controls: it has to be for that",
                vpa.name_any(),
                target.kind,
                target.name
            );
            return Unmatched::new("target_unsupported", message).with_vpa(vpa, true);
        }
        let first = meant[0];
        meant.retain(|vpa| self.is_active(vpa));
        let Some(vpa) = meant.first() else {
            let message = format!("VPA {} leaves running pods alone", first.name_any());
            return Unmatched::new("vpa_off", message).with_vpa(first, false);
        };
        let name = vpa.name_any();
        match self.targets.resolve(namespace, &vpa.spec.target_ref).await {
            TargetResolution::Unsupported { message } => {
                let message = format!("the target of VPA {name} leads nowhere: {message}");
                Unmatched::new("target_unsupported", message).with_vpa(vpa, true)
            }
            TargetResolution::Unavailable { message } => {
                let message = format!("the target of VPA {name} cannot be read: {message}");
                Unmatched::new("target_unavailable", message).with_vpa(vpa, true)
            }
            TargetResolution::Found { selector, .. } if !selector.matches(&pod.labels) => {
                let message = format!(
                    "its labels are not those that its controller selects ({})",
                    selector.as_str()
                );
                Unmatched::new("labels_differ", message).with_vpa(vpa, true)
            }
            TargetResolution::Found { .. } => {
                Unmatched::new("changed_meanwhile", "it changed while it was looked at: ask again")
                    .with_vpa(vpa, true)
            }
        }
    }
}
