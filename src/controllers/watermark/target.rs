//! The target of an object: its pods and its scale, with what the object says of how they are found.

use kube::ResourceExt as _;
use plimsoll_core::types::ObjectKey;

use super::{
    super::replicas::{ObservedScale, OwnershipRule},
    WatermarkController,
    object_state::ObjectState,
};
use crate::cluster::{
    target::scale::{ObjectReference, ScaleReadError, ScaleState, ScaleSubresource},
    write::WriteError,
};
use plimsoll_core::{api::wpa::WatermarkPodAutoscalerSpec, scaling::Pod, types::compat::Compat};

/// Whoever sets this to `true` trusts the selector of the scale alone.
const SKIP_OWNER_CHECK: &str = "wpa.datadoghq.com/skip-owner-check";

impl WatermarkController {
    /// The pods that the scale's selector finds, with whose they are.
    pub(super) async fn target_pods(
        &self,
        key: &ObjectKey,
        seat: &ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        told: &ScaleState,
    ) -> Vec<Pod> {
        let skips = seat.object.annotations().get(SKIP_OWNER_CHECK).is_some_and(|it| it == "true");
        let belonging = match self.config.compat {
            _ if skips => OwnershipRule::Selector,
            Compat::Upstream => OwnershipRule::OwnerName,
            Compat::Plimsoll => OwnershipRule::OwnerChain,
        };
        self.workloads
            .matching_pods(&key.namespace, &filled.scale_target_ref, told, belonging)
            .await
    }

    /// The scale of a target. Where a change is booked it is asked for: what becomes of that hangs on what the scale is now.
    pub(super) async fn observe_scale(
        &self,
        seat: &mut ObjectState,
        of: ObjectReference,
    ) -> Result<ObservedScale, ScaleReadError> {
        let is_booked = seat.has_pending_scale();
        self.workloads.observe_scale(of, is_booked, &mut seat.scale_version).await
    }

    /// The scale of a target, asked for now.
    pub(super) async fn fetch_scale(
        &self,
        seat: &mut ObjectState,
        of: &ObjectReference,
    ) -> Result<ScaleSubresource, ScaleReadError> {
        self.workloads.fetch_scale(of, &mut seat.scale_version).await
    }

    /// Writes replicas.
    pub(super) async fn update_scale(
        &self,
        seat: &mut ObjectState,
        fresh: &ScaleSubresource,
        to: i32,
    ) -> Result<(), WriteError> {
        self.workloads.update_scale(self.write_context(), fresh, to, &mut seat.scale_version).await
    }
}
