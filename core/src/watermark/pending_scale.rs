//! Changes are booked before they are made, so that nobody makes one twice. This is what becomes of one that was booked
//! and that nobody said to be made: who wanted to make it is gone.

use super::{
    conditions::{self, ConditionType, condition_since},
    spec::EffectiveSpec,
};
use crate::{api::wpa::WatermarkPodAutoscalerStatus, scaling::Scale};

/// The reason of a change that is about to be made.
pub(super) const PENDING: &str = "ReadyForScale";

/// The reason of one of which nobody knows yet whether it was made.
pub(super) const INDETERMINATE: &str = "ScaleUnanswered";

/// Whether a status says that a change is about to be made, or may have been. A dry run says what it would be, and means nothing by it.
pub fn is_pending(status: &WatermarkPodAutoscalerStatus) -> bool {
    let able = status.conditions.iter().find(|one| one.kind == ConditionType::AbleToScale.name());
    able.is_some_and(|able| [PENDING, INDETERMINATE].contains(&&*able.reason))
        && !condition_since(status, ConditionType::DryRun).holds
}

/// What a status means now that the target has these replicas. A change that was made stays booked. One that was not
/// gives the time back that it took: what let it pass still does.
pub fn resolve_pending_scale(
    status: &WatermarkPodAutoscalerStatus,
    scale: Scale,
    rules: &EffectiveSpec,
) -> WatermarkPodAutoscalerStatus {
    let mut settled = status.clone();
    if !is_pending(status) || status.desired_replicas == scale.spec_replicas {
        return settled;
    }
    let grows = status.desired_replicas > scale.spec_replicas;
    let window = if grows { rules.upscale_window } else { rules.downscale_window };
    let last = status.last_scale_time.as_ref().map(conditions::from_timestamp);
    settled.last_scale_time = last.map(|last| conditions::to_timestamp(last.earlier(window)));
    settled.scaling_events_count = status.scaling_events_count.saturating_sub(1);
    settled.desired_replicas = scale.spec_replicas;
    settled
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
    fn a_change_that_was_booked_and_not_made_gives_its_time_back() {
        let scale = |wanted| Scale { spec_replicas: wanted, status_replicas: wanted };
        let settled = resolve_pending_scale(&status(PENDING), scale(3), &rules());
        let last = settled.last_scale_time.as_ref().map(conditions::from_timestamp);
        let up = NOW.earlier(std::time::Duration::from_secs(40));
        assert_eq!(
            (last, settled.scaling_events_count, settled.desired_replicas),
            (Some(up), 6, 3)
        );
        let settled = resolve_pending_scale(&status(PENDING), scale(8), &rules());
        let down = NOW.earlier(std::time::Duration::from_secs(70));
        assert_eq!(settled.last_scale_time.as_ref().map(conditions::from_timestamp), Some(down));
    }

    #[test]
    fn what_a_dry_run_would_have_changed_is_nothing_that_was_booked() {
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
    fn a_change_that_was_made_or_said_stays() {
        let scale = |wanted| Scale { spec_replicas: wanted, status_replicas: wanted };
        for (reason, wanted) in
            [(PENDING, 5), (INDETERMINATE, 5), ("SuccessfulScale", 3), ("SucceededGetScale", 3)]
        {
            let before = status(reason);
            assert_eq!(resolve_pending_scale(&before, scale(wanted), &rules()), before, "{reason}");
        }
    }
}
