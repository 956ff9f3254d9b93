//! The target of an object: its pods and its scale.

use kube::ResourceExt as _;
use plimsoll_core::types::ObjectKey;

use super::{
    super::replicas::{ObservedScale, OwnershipRule, matching_pods},
    WatermarkController,
    autoscaler::ObjectState,
};
use crate::cluster::target::scale::{ObjectReference, ScaleReadError, ScaleState};
use plimsoll_core::{api::wpa::WatermarkPodAutoscalerSpec, scaling::Pod, types::compat::Compat};

/// If `true`, all pods that match the selector of the scale belong to the target, whatever their owners.
const SKIP_OWNER_CHECK: &str = "wpa.datadoghq.com/skip-owner-check";

impl WatermarkController {
    /// The pods that match the scale's selector, with whether the target owns them.
    pub(super) async fn target_pods(
        &self,
        key: &ObjectKey,
        state: &ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        scale: &ScaleState,
    ) -> Vec<Pod> {
        let skips_owner_check =
            state.object.annotations().get(SKIP_OWNER_CHECK).is_some_and(|it| it == "true");
        let ownership_rule = match self.settings.compat {
            _ if skips_owner_check => OwnershipRule::Selector,
            Compat::Upstream => OwnershipRule::OwnerName,
            Compat::Plimsoll => OwnershipRule::OwnerChain,
        };
        let target = &filled.scale_target_ref;
        matching_pods(&self.workloads, &key.namespace, target, scale, ownership_rule).await
    }

    /// The scale of a target. It is fetched while a change is pending, because the current scale shows whether it was made.
    pub(super) async fn observe_scale(
        &self,
        state: &mut ObjectState,
        target: ObjectReference,
    ) -> Result<ObservedScale, ScaleReadError> {
        let has_pending_scale = state.has_pending_scale();
        self.workloads.observe_scale(target, has_pending_scale, &mut state.scale_version).await
    }
}
