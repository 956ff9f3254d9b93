//! Whether a pod is far enough from its recommendation to be updated.

use std::time::Duration;

use crate::types::Time;

use super::{
    observed_containers::ObservedContainers, pod_status::PodStatus, priority::Priority,
    settings::Settings, skip_reason::SkipReason,
};
use crate::{
    api::{VerticalPodAutoscalerSpec, vpa::ContainerMode},
    types::compat::Fix,
};

/// Why a pod needs an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum UpdateReason {
    /// A container was OOM killed recently, soon after its start.
    QuickOom,
    /// A request is outside the recommended bounds.
    OutsideRange,
    /// The pod is old enough, and its requests are far enough from the target.
    Drift,
}

/// Returns the time after the start of a container within which an OOM kill is a quick one.
fn quick_oom_threshold(spec: &VerticalPodAutoscalerSpec, settings: &Settings) -> Duration {
    let own = spec.update_policy.as_ref().and_then(|policy| policy.evict_after_oom_seconds);
    let own = own.filter(|_| settings.per_vpa_config);
    own.and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(settings.oom_threshold, Duration::from_secs)
}

/// Whether a container of the pod was OOM killed recently, soon after its start.
pub fn had_quick_oom(
    status: &PodStatus,
    observed: &ObservedContainers,
    spec: &VerticalPodAutoscalerSpec,
    settings: &Settings,
    now: Time,
) -> bool {
    let threshold = quick_oom_threshold(spec, settings);
    status.containers.iter().any(|container| {
        let mode = spec.container_policy(&container.name).and_then(|policy| policy.mode);
        let oom_kill = container.last_termination.filter(|termination| termination.out_of_memory);
        let Some(termination) = oom_kill else { return false };
        observed.contains(&container.name)
            && mode != Some(ContainerMode::Off)
            && termination.finished < termination.started.later(threshold)
            && now < termination.finished.later(threshold)
    })
}

/// Returns why a pod needs an update, or why it does not. `resized` is the time of its last resize. If the requests are
/// planned (`is_planned`), age and difference do not count: the plan has decided that a change within the bounds saves less
/// than its price, and requests outside of them follow the plan at once.
pub fn update_reason(
    priority: &Priority,
    quick_oom: bool,
    status: &PodStatus,
    resized: Option<Time>,
    is_planned: bool,
    settings: &Settings,
    now: Time,
) -> Result<UpdateReason, SkipReason> {
    if quick_oom {
        return if priority.resource_diff == 0.0 {
            Err(SkipReason::NearTarget { difference: 0.0 })
        } else {
            Ok(UpdateReason::QuickOom)
        };
    }
    if priority.outside_recommended_range {
        return Ok(UpdateReason::OutsideRange);
    }
    if is_planned {
        return Err(SkipReason::WithinPlan);
    }
    let resized = resized.filter(|_| settings.fixes.has(Fix::ResizeRenewsAge));
    let since =
        status.started.map(|started| resized.map_or(started, |resized| resized.max(started)));
    let since = since.ok_or(SkipReason::AgeUnknown)?;
    let until = since.later(settings.lifetime_threshold);
    // Check the difference first: a pod near its target is not updated at any age.
    if priority.resource_diff < settings.update_threshold {
        return Err(SkipReason::NearTarget { difference: priority.resource_diff });
    }
    if now < until { Err(SkipReason::TooYoung { until }) } else { Ok(UpdateReason::Drift) }
}
