//! HorizontalPodAutoscalers as a kind of replica autoscaler.

use std::{borrow::Cow, future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus};
use plimsoll_core::{
    api::scale_target::ScaleTarget,
    hpa::{
        HpaState,
        comparison::Shadow,
        conditions::{ABLE_TO_SCALE, Condition, Conditions},
    },
    scaling::{Restriction, ScaleDecision},
    types::{ObjectKey, Time},
};
use plimsoll_storage::WritePermit;
use tracing::Span;

use super::{
    super::replicas::{self, AutoscalerKind, MetadataResult, ReconcileResult, ReplicaAutoscaler},
    HorizontalController,
    config::HorizontalConfig,
    horizontal_decision::HorizontalDecision,
    horizontal_pod::HorizontalPod,
    reconcile::reconcile,
    selector_index::SelectorIndex,
    spare_capacity::{shrink_spec, shrink_status},
    usage_cache::UsageCache,
};
use crate::telemetry::{ExportedState, HorizontalMetrics};

/// The annotation with the whole object that kubectl stores.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// HorizontalPodAutoscalers: flags, metrics, usage, and the selectors of all objects.
pub struct HorizontalAutoscaler {
    pub(super) config: HorizontalConfig,
    pub(super) metrics: HorizontalMetrics,
    pub(super) usage: UsageCache,
    pub(super) selectors: SelectorIndex,
}

/// An object with the state that is kept from reconcile to reconcile.
pub(super) type ObjectState = replicas::ObjectState<HorizontalAutoscaler>;

/// What is kept from reconcile to reconcile for this kind of object alone.
#[derive(Clone, Debug, Default)]
pub struct HorizontalState {
    /// Recommendations and scale events of the decisions that are exported.
    pub memory: HpaState,
    /// Those of the decisions that are compared, which are made as by upstream.
    pub compared_memory: HpaState,
    /// The decisions that are still to be compared.
    pub shadow: Shadow,
    /// The last decision that was exported.
    pub last_decision: Arc<ScaleDecision>,
}

impl AutoscalerKind for HorizontalAutoscaler {
    type Object = HorizontalPodAutoscaler;
    type Status = HorizontalPodAutoscalerStatus;
    type State = HorizontalState;
    type Pod = HorizontalPod;
    type Exported = ExportedState;

    const RESOURCE: &'static str = "horizontalpodautoscalers";

    fn trimmed(mut object: HorizontalPodAutoscaler) -> Arc<HorizontalPodAutoscaler> {
        object.metadata.managed_fields = None;
        if let Some(annotations) = &mut object.metadata.annotations {
            annotations.remove(LAST_APPLIED);
        }
        object.spec.iter_mut().for_each(shrink_spec);
        object.status.iter_mut().for_each(shrink_status);
        Arc::new(object)
    }

    fn stored_status(object: &HorizontalPodAutoscaler) -> Option<&HorizontalPodAutoscalerStatus> {
        object.status.as_ref()
    }

    fn is_material_change(
        before: &HorizontalPodAutoscaler,
        after: &HorizontalPodAutoscaler,
    ) -> bool {
        before.spec != after.spec || before.metadata.annotations != after.metadata.annotations
    }

    /// The status has no record of a scale that is about to be written.
    fn is_pending(_: &HorizontalPodAutoscalerStatus) -> bool {
        false
    }

    fn on_takeover(state: &mut HorizontalState) {
        *state = HorizontalState::default();
    }
}

impl ReplicaAutoscaler for HorizontalAutoscaler {
    type Decision = HorizontalDecision;
    type Condition = Condition;

    const API_VERSION: &'static str = "autoscaling/v2";
    const KIND: &'static str = "HorizontalPodAutoscaler";
    const FIELD_MANAGER: &'static str = "plimsoll-horizontal";

    fn log_span(_: &HorizontalPodAutoscaler) -> Span {
        Span::none()
    }

    fn target(object: &HorizontalPodAutoscaler) -> Cow<'_, ScaleTarget> {
        let target = object.spec.as_ref().map(|spec| &spec.scale_target_ref);
        Cow::Owned(target.map_or_else(ScaleTarget::default, |target| ScaleTarget {
            api_version: target.api_version.clone().unwrap_or_default(),
            kind: target.kind.clone(),
            name: target.name.clone(),
        }))
    }

    fn last_scale(status: &HorizontalPodAutoscalerStatus) -> Option<Time> {
        status.last_scale_time.as_ref().map(|time| time.0.into())
    }

    fn reconcile(
        controller: &HorizontalController,
        key: &ObjectKey,
        state: &mut ObjectState,
    ) -> impl Future<Output = ReconcileResult> + Send {
        reconcile(controller, key, state)
    }

    /// No write of the metadata is ever queued.
    async fn write_metadata(
        _: &HorizontalController,
        _: &HorizontalPodAutoscaler,
        _: &dyn WritePermit,
    ) -> MetadataResult<Self> {
        Ok(None)
    }

    fn complete_metadata(
        _: &HorizontalController,
        _: &mut ObjectState,
        _: &MetadataResult<Self>,
    ) -> Option<Time> {
        None
    }

    fn unknown_outcome(why: &str) -> Condition {
        let message = format!("the HPA controller was unable to update the target scale: {why}");
        Condition::new(ABLE_TO_SCALE, false, "FailedUpdateScale", message)
    }

    fn with_conditions(
        &self,
        before: &HorizontalPodAutoscalerStatus,
        updates: &[Condition],
        now: Time,
    ) -> HorizontalPodAutoscalerStatus {
        let mut conditions = Conditions(before.conditions.clone().unwrap_or_default());
        for update in updates {
            conditions.set(update.clone(), now);
        }
        HorizontalPodAutoscalerStatus { conditions: Some(conditions.0), ..before.clone() }
    }

    fn is_same_status(
        before: &HorizontalPodAutoscalerStatus,
        after: &HorizontalPodAutoscalerStatus,
    ) -> bool {
        before == after
    }

    fn without_values(status: &HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus {
        HorizontalPodAutoscalerStatus { current_metrics: None, ..status.clone() }
    }

    fn drop_unstored(
        &self,
        _: Option<&HorizontalPodAutoscalerStatus>,
        _: &mut HorizontalPodAutoscalerStatus,
        _: Time,
    ) {
    }

    fn on_stored(
        &self,
        _: &HorizontalPodAutoscalerStatus,
        _: Option<&HorizontalPodAutoscalerStatus>,
        _: Time,
    ) {
    }

    fn export_scale(exported: &mut ExportedState, moved: (u64, u64), desired: i32) {
        exported.replicas_moved = Some(moved);
        exported.desired_replicas = Some(desired);
    }

    fn export_status(_: &mut ExportedState, _: &HorizontalPodAutoscalerStatus) {}

    fn health_of(exported: &ExportedState) -> (bool, Time) {
        (exported.restrictions().contains(&Restriction::MetricUnknown), exported.reconciled_at)
    }

    fn begin_reconcile(&self, lateness: Duration) {
        self.metrics.lateness.observe_duration(lateness);
    }

    fn end_reconcile(&self, (outcome, _): ReconcileResult, took: Duration) {
        self.metrics.reconciles.with_labels([outcome]).increment();
        self.metrics.reconcile_seconds.observe_duration(took);
    }
}
