//! HorizontalPodAutoscalers as a kind of replica autoscaler.

use std::{borrow::Cow, convert::Infallible, future::Future, sync::Arc, time::Duration};

use kube::ResourceExt as _;
use plimsoll_core::{
    api::scale_target::ScaleTarget,
    hpa::{HpaState, SharedMemory, comparison::Shadow},
    scaling::ScaleDecision,
    types::{ObjectKey, Time},
};
use tracing::Span;

use super::{
    super::replicas::{self, AutoscalerKind, ReconcileResult, ReplicaAutoscaler},
    HorizontalController,
    config::HorizontalConfig,
    horizontal_decision::HorizontalDecision,
    horizontal_pod::HorizontalPod,
    object::RecordedHpa,
    object_queries::ObjectQueries,
    own_rules::CachedRules,
    reconcile::reconcile,
    replacement::Replacement,
    selector_index::SelectorIndex,
    stored_status::StoredStatus,
    usage_cache::UsageCache,
};
use crate::{
    cluster::write::{WriteContext, WriteError},
    controllers::runtime::target_vpas::Vpas,
    telemetry::HorizontalMetrics,
};

/// HorizontalPodAutoscalers: flags, metrics, usage, queries, and the selectors of all objects.
pub struct HorizontalAutoscaler {
    pub(super) config: HorizontalConfig,
    pub(super) metrics: HorizontalMetrics,
    pub(super) usage: UsageCache,
    pub(super) queries: ObjectQueries,
    /// With `--mode=replace`.
    pub(super) replacement: Option<Replacement>,
    pub(super) selectors: SelectorIndex,
    /// Watched in modes that change replicas.
    pub(super) vpas: Vpas,
}

/// An object with the state that is kept from reconcile to reconcile.
pub(super) type ObjectState = replicas::ObjectState<HorizontalAutoscaler>;

/// What is kept from reconcile to reconcile for this kind of object alone.
#[derive(Clone, Debug, Default)]
pub struct HorizontalState {
    /// Whether the record that an earlier process stored was read.
    pub is_restored: bool,
    pub(super) rules: CachedRules,
    /// Recommendations and scale events of the decisions that are exported.
    pub memory: HpaState,
    /// What is remembered about requests that VPAs change.
    pub shared_requests: SharedMemory,
    /// Those of the decisions that are compared, which are made as by upstream.
    pub compared_memory: HpaState,
    /// The decisions that are still to be compared.
    pub shadow: Shadow,
    /// The annotations without effect that were reported.
    pub reported_annotations: Vec<(&'static str, String)>,
    pub last_decision: Arc<ScaleDecision>,
}

impl AutoscalerKind for HorizontalAutoscaler {
    type Object = RecordedHpa;
    type Status = StoredStatus;
    type State = HorizontalState;
    type Pod = HorizontalPod;

    const RESOURCE: &'static str = "horizontalpodautoscalers";

    fn trimmed(object: RecordedHpa) -> Arc<RecordedHpa> {
        object.trimmed()
    }

    fn stored_status(object: &RecordedHpa) -> Option<&StoredStatus> {
        Some(&object.stored)
    }

    fn is_material_change(before: &RecordedHpa, after: &RecordedHpa) -> bool {
        before.spec != after.spec
            || before.annotations() != after.annotations()
            || before.owner_references() != after.owner_references()
    }

    fn is_pending(stored: &StoredStatus) -> bool {
        stored.record.as_ref().is_some_and(|record| record.pending.is_some())
    }

    fn on_takeover(state: &mut HorizontalState) {
        *state = HorizontalState::default();
    }
}

impl ReplicaAutoscaler for HorizontalAutoscaler {
    type Decision = HorizontalDecision;
    /// Conditions are those of the HPA controller.
    type Condition = Infallible;

    const NAME: &'static str = "horizontal";
    const FIELD_MANAGER: &'static str = "plimsoll-horizontal";

    fn log_span(_: &RecordedHpa) -> Span {
        Span::none()
    }

    fn target(object: &RecordedHpa) -> Cow<'_, ScaleTarget> {
        let target = &object.spec.scale_target_ref;
        Cow::Owned(ScaleTarget {
            api_version: target.api_version.clone().unwrap_or_default(),
            kind: target.kind.clone(),
            name: target.name.clone(),
        })
    }

    /// A pending change counts, because it may have been made.
    fn last_scale(stored: &StoredStatus) -> Option<Time> {
        let record = stored.record.as_ref()?;
        let last = record.pending.as_ref().or(record.last_scale.as_ref());
        last.map(|change| change.at)
    }

    fn reconcile(
        controller: &HorizontalController,
        key: &ObjectKey,
        state: &mut ObjectState,
    ) -> impl Future<Output = ReconcileResult> + Send {
        reconcile(controller, key, state)
    }

    /// Stores the record in an annotation.
    async fn store_status(
        context: WriteContext<'_>,
        object: &RecordedHpa,
        after: &StoredStatus,
    ) -> Result<RecordedHpa, WriteError> {
        let (target, patch) = object.stored.patch(after);
        context.patch_object(object, target, patch).await
    }

    fn on_scaled(state: &mut HorizontalState, decision: &HorizontalDecision, now: Time) {
        let HorizontalDecision { decision, .. } = decision;
        if let (Some(from), Some(to)) = (decision.current, decision.write)
            && let Some(behavior) = decision.behavior()
        {
            state.memory.scaled_once(from, to, behavior, now);
        }
        state.memory.scaled_to_zero = decision.write == Some(0);
    }

    fn with_conditions(&self, before: &StoredStatus, _: &[Infallible], _: Time) -> StoredStatus {
        before.clone()
    }

    fn is_same_status(before: &StoredStatus, after: &StoredStatus) -> bool {
        before.is_same(after)
    }

    fn differ_in_values_only(before: &StoredStatus, after: &StoredStatus) -> bool {
        before.differs_in_values_only(after)
    }

    fn missing(&self) -> Option<String> {
        self.replacement.as_ref()?.sentinel.pending()
    }

    fn mode(&self) -> Option<&'static str> {
        Some(self.config.mode.as_str())
    }

    fn begin_reconcile(&self, lateness: Duration) {
        self.metrics.lateness.observe_duration(lateness);
    }

    fn end_reconcile(&self, (outcome, _): ReconcileResult, took: Duration) {
        self.metrics.reconciles.with_labels([outcome]).increment();
        self.metrics.reconcile_seconds.observe_duration(took);
    }
}
