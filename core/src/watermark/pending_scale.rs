//! Pending scale updates. A change is recorded in the status before it is sent, so that it is not made twice. This module
//! resolves a recorded change whose outcome was never written because the process stopped.

use super::{
    conditions::{self, ConditionType, condition_since},
    spec::EffectiveSpec,
};
use crate::{api::wpa::WatermarkPodAutoscalerStatus, scaling::Scale};

/// Condition reason for a scale update that is about to be sent.
pub(super) const PENDING: &str = "ReadyForScale";

/// Condition reason for a scale update with an unknown outcome.
pub(super) const INDETERMINATE: &str = "ScaleUnanswered";

/// Whether the status records a scale update that is about to be sent or has an unknown outcome. A dry run records one
/// that is never sent, so it does not count.
pub fn is_pending(status: &WatermarkPodAutoscalerStatus) -> bool {
    let able_to_scale = status
        .conditions
        .iter()
        .find(|condition| condition.kind == ConditionType::AbleToScale.into_str());
    able_to_scale.is_some_and(|condition| [PENDING, INDETERMINATE].contains(&&*condition.reason))
        && !condition_since(status, ConditionType::DryRun).holds
}

/// Resolves a pending scale update against the current replicas. If the update was applied, the status stays. If not,
/// its cooldown is undone, so that it can be made again.
pub fn resolve_pending_scale(
    status: &WatermarkPodAutoscalerStatus,
    scale: Scale,
    rules: &EffectiveSpec,
) -> WatermarkPodAutoscalerStatus {
    let mut resolved = status.clone();
    if !is_pending(status) || status.desired_replicas == scale.spec_replicas {
        return resolved;
    }
    let grows = status.desired_replicas > scale.spec_replicas;
    let window = if grows { rules.upscale_window } else { rules.downscale_window };
    let last = status.last_scale_time.as_ref().map(conditions::from_timestamp);
    resolved.last_scale_time = last.map(|last| conditions::to_timestamp(last.earlier(window)));
    resolved.scaling_events_count = status.scaling_events_count.saturating_sub(1);
    resolved.desired_replicas = scale.spec_replicas;
    resolved
}

#[cfg(test)]
mod tests {
    use crate::types::Time;
    use serde_json::json;

    use super::*;
    use crate::watermark::conditions::ConditionUpdate;

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn status(reason: &str) -> WatermarkPodAutoscalerStatus {
        let mut status: WatermarkPodAutoscalerStatus = serde_json::from_value(json!({
            "currentReplicas": 3, "desiredReplicas": 5, "scalingEventsCount": 7,
        }))
        .expect("a status");
        status.last_scale_time = Some(conditions::to_timestamp(NOW));
        conditions::set_condition(
            &mut status,
            &ConditionUpdate::new(ConditionType::AbleToScale, true, reason, ""),
            NOW,
        );
        status
    }

    fn rules() -> EffectiveSpec {
        let spec = json!({
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 10,
            "upscaleForbiddenWindowSeconds": 40, "downscaleForbiddenWindowSeconds": 70,
        });
        EffectiveSpec::from_spec(&serde_json::from_value(spec).expect("a spec"))
    }

    #[test]
    fn a_pending_scale_that_was_not_made_restores_the_last_scale_time() {
        let scale = |replicas| Scale { spec_replicas: replicas, status_replicas: replicas };
        let resolved = resolve_pending_scale(&status(PENDING), scale(3), &rules());
        let last = resolved.last_scale_time.as_ref().map(conditions::from_timestamp);
        let up = NOW.earlier(std::time::Duration::from_secs(40));
        assert_eq!(
            (last, resolved.scaling_events_count, resolved.desired_replicas),
            (Some(up), 6, 3)
        );
        let resolved = resolve_pending_scale(&status(PENDING), scale(8), &rules());
        let down = NOW.earlier(std::time::Duration::from_secs(70));
        assert_eq!(resolved.last_scale_time.as_ref().map(conditions::from_timestamp), Some(down));
    }

    #[test]
    fn a_pending_scale_of_a_dry_run_is_ignored() {
        let mut before = status(PENDING);
        conditions::set_condition(&mut before, &ConditionUpdate::dry_run(true), NOW);
        assert_eq!(
            resolve_pending_scale(
                &before,
                Scale { spec_replicas: 3, status_replicas: 3 },
                &rules()
            ),
            before
        );
        conditions::set_condition(&mut before, &ConditionUpdate::dry_run(false), NOW);
        assert_ne!(
            resolve_pending_scale(
                &before,
                Scale { spec_replicas: 3, status_replicas: 3 },
                &rules()
            ),
            before
        );
    }

    #[test]
    fn a_scale_that_was_made_or_reported_stays() {
        let scale = |replicas| Scale { spec_replicas: replicas, status_replicas: replicas };
        for (reason, replicas) in
            [(PENDING, 5), (INDETERMINATE, 5), ("SuccessfulScale", 3), ("SucceededGetScale", 3)]
        {
            let before = status(reason);
            assert_eq!(
                resolve_pending_scale(&before, scale(replicas), &rules()),
                before,
                "{reason}"
            );
        }
    }
}
