//! The target of an object: its pods and its scale, with what the object says of how they are found.

use kube::ResourceExt as _;
use plimsoll_core::types::VpaKey;

use super::{
    super::replicas::{Belonging, Sight},
    Role,
    seat::Seat,
};
use crate::{
    act::Unwritten,
    observe::scale::{FreshScale, ObjectKey, ToldScale, Unscaled},
};
use plimsoll_core::{api::wpa::WatermarkPodAutoscalerSpec, scaling::Pod, types::compat::Compat};

/// Whoever sets this to `true` trusts the selector of the scale alone.
const SKIP_OWNER_CHECK: &str = "wpa.datadoghq.com/skip-owner-check";

impl Role {
    /// The pods that the scale's selector finds, with whose they are.
    pub(super) async fn pods_of(
        &self,
        key: &VpaKey,
        seat: &Seat,
        filled: &WatermarkPodAutoscalerSpec,
        told: &ToldScale,
    ) -> Vec<Pod> {
        let skips = seat.object.annotations().get(SKIP_OWNER_CHECK).is_some_and(|it| it == "true");
        let belonging = match self.config.compat {
            _ if skips => Belonging::Selected,
            Compat::Upstream => Belonging::Named,
            Compat::Plimsoll => Belonging::Owned,
        };
        self.workloads.pods_of(&key.namespace, &filled.scale_target_ref, told, belonging).await
    }

    /// The scale of a target. Where a change is booked it is asked for: what becomes of that hangs on what the scale is now.
    pub(super) async fn scale(&self, seat: &mut Seat, of: ObjectKey) -> Result<Sight, Unscaled> {
        let is_booked = seat.is_booked();
        self.workloads.scale(of, is_booked, &mut seat.seen).await
    }

    /// The scale of a target, asked for now.
    pub(super) async fn fresh_scale(
        &self,
        seat: &mut Seat,
        of: &ObjectKey,
    ) -> Result<FreshScale, Unscaled> {
        self.workloads.fresh_scale(of, &mut seat.seen).await
    }

    /// Writes replicas.
    pub(super) async fn put_scale(
        &self,
        seat: &mut Seat,
        fresh: &FreshScale,
        to: i32,
    ) -> Result<(), Unwritten> {
        self.workloads.put_scale(self.pen(), fresh, to, &mut seat.seen).await
    }
}
