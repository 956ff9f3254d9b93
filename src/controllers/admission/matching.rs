//! Which VPA a new pod is sized by.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{AdmissionController, watches::TargetKey};
use crate::cluster::{
    cache::{
        controllers::{Owner, WellKnown},
        selector::Selector,
    },
    target::{TargetResolution, TopOwner, scale::ObjectReference},
};
use kube::ResourceExt as _;
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::UpdateMode},
    sizing::AdmissionPod,
    types::compat::Compat,
};

/// A controller makes a pod as soon as it exists itself: what is not known of it yet is waited for so long.
const OWNER_LOOKUP_DELAYS: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
];

/// What was found, or why nothing was, in one word.
pub(super) type VpaMatch = Result<Arc<VerticalPodAutoscaler>, &'static str>;

impl AdmissionController {
    /// The VPA that this pod is sized by.
    pub(super) async fn find_vpa(&self, namespace: &str, young: &mut AdmissionPod) -> VpaMatch {
        let Some(owner) = young.controller.take() else { return Err("no_controller") };
        let owner = Owner { api_version: owner.api_version, kind: owner.kind, name: owner.name };
        let is_well_known = WellKnown::from_kind(&owner.kind).is_some();
        let owner = ObjectReference::from_owner(namespace, owner);
        // Nodes own their mirror pods, and nobody scales those.
        if &*owner.kind == "Node" {
            return Err("no_scalable_controller");
        }
        let top = match self.top_owner(&owner, is_well_known).await {
            TopOwner::Found(top) => top,
            TopOwner::None => return Err("no_scalable_controller"),
            TopOwner::Invalid(why) => {
                tracing::warn!(namespace, kind = %owner.kind, name = %owner.name, %why, "the controller of a new pod cannot be followed; it is let through");
                return Err("controller_unknown");
            }
            TopOwner::Unavailable(why) => {
                tracing::warn!(namespace, kind = %owner.kind, name = %owner.name, %why, "nobody can tell who controls a new pod; it is let through");
                return Err("controller_unavailable");
            }
        };
        let key = TargetKey::new(namespace, &top.kind, &top.name);
        let candidates = self.stores.vpas(&key);
        if candidates.is_empty() {
            return Err("no_vpa");
        }
        self.select_vpa(namespace, &candidates, &top, &young.pod.labels).await
    }

    async fn top_owner(&self, owner: &ObjectReference, is_well_known: bool) -> TopOwner {
        let mut top = self.targets.topmost(owner).await;
        if self.config.compat == Compat::Upstream || !is_well_known {
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
        let (mut chosen, mut why): (Option<&Arc<VerticalPodAutoscaler>>, _) = (None, "vpa_is_off");
        for vpa in candidates {
            if is_off(vpa) {
                continue;
            }
            let selector = match self.selector(namespace, vpa, top).await {
                Ok(selector) => selector,
                Err(outcome) => {
                    why = outcome;
                    continue;
                }
            };
            if !selector.matches_with(label) {
                why = "labels_differ";
                continue;
            }
            if chosen.is_none_or(|chosen| takes_precedence(vpa, chosen)) {
                chosen = Some(vpa);
            }
        }
        chosen.cloned().ok_or(why)
    }

    /// The pods that a VPA means.
    async fn selector(
        &self,
        namespace: &str,
        vpa: &VerticalPodAutoscaler,
        top: &ObjectReference,
    ) -> Result<Selector, &'static str> {
        let target = &vpa.spec.target_ref;
        // Most name what the walk from the pod has just ended at: no second walk is needed.
        if let Some(selector) = self.targets.selector_of_top_owner(target, top) {
            return Ok(selector);
        }
        match self.targets.resolve(namespace, target).await {
            TargetResolution::Found { selector, .. } => Ok(selector),
            TargetResolution::Unsupported { .. } => Err("target_unsupported"),
            TargetResolution::Unavailable { message } => {
                tracing::warn!(namespace, vpa = vpa.name_any(), %message, "the target of a VPA cannot be followed; a new pod is let through");
                Err("target_unavailable")
            }
        }
    }
}

/// Whether a VPA leaves new pods alone: it is off, and boosts nothing.
pub(in crate::controllers) fn is_off(vpa: &VerticalPodAutoscaler) -> bool {
    vpa.spec.update_mode() == UpdateMode::Off && !has_startup_boost(vpa)
}

/// Whether a VPA gives any of its containers more to start with.
pub(in crate::controllers) fn has_startup_boost(vpa: &VerticalPodAutoscaler) -> bool {
    let of_containers =
        vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
    vpa.spec.startup_boost.is_some()
        || of_containers.into_iter().any(|policy| policy.startup_boost.is_some())
}

/// Whether a VPA counts and not the other one: the older does, and of the same age the one whose name comes first.
pub(in crate::controllers) fn takes_precedence(
    one: &VerticalPodAutoscaler,
    other: &VerticalPodAutoscaler,
) -> bool {
    let age =
        |vpa: &VerticalPodAutoscaler| vpa.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (age(one), one.name_any()) < (age(other), other.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vpa(yaml: &str) -> VerticalPodAutoscaler {
        serde_saphyr::from_str(&format!(
            "{{apiVersion: autoscaling.k8s.io/v1, kind: VerticalPodAutoscaler, {yaml}}}"
        ))
        .expect("a VPA")
    }

    #[test]
    fn the_older_vpa_counts_and_then_the_first_by_name() {
        let of = |name: &str, created: &str| {
            vpa(&format!(
                "metadata: {{name: {name}, creationTimestamp: {created:?}}}, spec: {{targetRef: {{kind: Deployment, name: web}}}}"
            ))
        };
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
        assert!(takes_precedence(&of("z", early), &of("a", late)));
        assert!(!takes_precedence(&of("a", late), &of("z", early)));
        assert!(takes_precedence(&of("a", early), &of("b", early)));
        assert!(!takes_precedence(&of("a", early), &of("a", early)));
    }

    #[test]
    fn a_vpa_that_is_off_counts_only_if_it_boosts() {
        let boost = "startupBoost: {cpu: {type: Factor, factor: 2}}";
        for (spec, off) in [
            ("", false),
            ("updatePolicy: {updateMode: Initial},", false),
            ("updatePolicy: {updateMode: \"Off\"},", true),
            (&format!("updatePolicy: {{updateMode: \"Off\"}}, {boost},"), false),
            (
                &format!(
                    "updatePolicy: {{updateMode: \"Off\"}}, resourcePolicy: {{containerPolicies: [{{containerName: a, {boost}}}]}},"
                ),
                false,
            ),
        ] {
            let vpa = vpa(&format!(
                "metadata: {{name: a}}, spec: {{{spec} targetRef: {{kind: Deployment, name: web}}}}"
            ));
            assert_eq!(is_off(&vpa), off, "{spec}");
        }
    }
}
