//! Finds the VPA that sizes a new pod.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::watches::WatchStores;
use crate::cluster::{
    cache::{
        controllers::{Owner, WellKnown},
        selector::Selector,
    },
    target::{TargetResolution, TargetResolver, TopOwner, scale::ObjectReference},
};
use kube::ResourceExt as _;
use plimsoll_core::{
    api::VerticalPodAutoscaler, sizing::AdmissionPod, types::compat::Compat, vpa_match,
};

/// A controller creates pods as soon as it exists. Delays between lookups of an owner that is not in the cache yet.
const OWNER_LOOKUP_DELAYS: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
];

/// The VPA, or the reason why there is none, as a label value.
pub(super) type VpaMatch = Result<Arc<VerticalPodAutoscaler>, &'static str>;

/// Finds VPAs among the watched ones, by the controller of a pod.
pub(super) struct VpaMatcher {
    pub stores: Arc<WatchStores>,
    pub targets: TargetResolver,
    pub compat: Compat,
}

impl VpaMatcher {
    pub async fn find_vpa(&self, namespace: &str, pod: &mut AdmissionPod) -> VpaMatch {
        let Some(owner) = pod.controller.take() else { return Err("no_controller") };
        let owner = Owner { api_version: owner.api_version, kind: owner.kind, name: owner.name };
        let is_well_known = WellKnown::from_kind(&owner.kind).is_some();
        let owner = ObjectReference::from_owner(namespace, owner);
        // A Node owns its mirror pods, and is not scalable.
        if &*owner.kind == "Node" {
            return Err("no_scalable_controller");
        }
        let top = match self.top_owner(&owner, is_well_known).await {
            TopOwner::Found(top) => top,
            TopOwner::None => return Err("no_scalable_controller"),
            TopOwner::Invalid(error) => {
                tracing::warn!(namespace, kind = %owner.kind, name = %owner.name, %error, "failed to resolve the controller of a new pod; admitting it unchanged");
                return Err("controller_unknown");
            }
            TopOwner::Unavailable(error) => {
                tracing::warn!(namespace, kind = %owner.kind, name = %owner.name, %error, "failed to look up the controller of a new pod; admitting it unchanged");
                return Err("controller_unavailable");
            }
        };
        let candidates = self.stores.vpas(namespace, &top.kind, &top.name);
        if candidates.is_empty() {
            return Err("no_vpa");
        }
        self.select_vpa(namespace, &candidates, &top, &pod.pod.labels).await
    }

    async fn top_owner(&self, owner: &ObjectReference, is_well_known: bool) -> TopOwner {
        let mut top = self.targets.topmost(owner).await;
        if self.compat == Compat::Upstream || !is_well_known {
            return top;
        }
        for pause in OWNER_LOOKUP_DELAYS {
            if !matches!(top, TopOwner::Invalid(_)) {
                break;
            }
            tokio::time::sleep(pause).await;
            top = self.targets.topmost(owner).await;
        }
        top
    }

    async fn select_vpa(
        &self,
        namespace: &str,
        candidates: &[Arc<VerticalPodAutoscaler>],
        top: &ObjectReference,
        labels: &BTreeMap<String, String>,
    ) -> VpaMatch {
        let label = |key: &str| labels.get(key).map(String::as_str);
        let (mut matching, mut outcome) = (Vec::new(), "vpa_is_off");
        for vpa in candidates {
            if !vpa_match::changes_new_pods(vpa) {
                continue;
            }
            let selector = match self.selector(namespace, vpa, top).await {
                Ok(selector) => selector,
                Err(reason) => {
                    outcome = reason;
                    continue;
                }
            };
            if !selector.matches_with(label) {
                outcome = "labels_differ";
                continue;
            }
            matching.push(vpa);
        }
        vpa_match::select(matching, |vpa| vpa).cloned().ok_or(outcome)
    }

    async fn selector(
        &self,
        namespace: &str,
        vpa: &VerticalPodAutoscaler,
        top: &ObjectReference,
    ) -> Result<Selector, &'static str> {
        let target = &vpa.spec.target_ref;
        // Most VPAs name the top owner that was just found for the pod: reuse its selector.
        if let Some(selector) = self.targets.selector_of_top_owner(target, top) {
            return Ok(selector);
        }
        match self.targets.resolve(namespace, target).await {
            TargetResolution::Found { selector, .. } => Ok(selector),
            TargetResolution::Unsupported { .. } => Err("target_unsupported"),
            TargetResolution::Unavailable { message } => {
                tracing::warn!(namespace, vpa = vpa.name_any(), %message, "failed to resolve the target of a VPA; admitting a new pod unchanged");
                Err("target_unavailable")
            }
        }
    }
}
