//! Whether a pod needs what is recommended for it so much that it is worth a change.

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

/// Why a pod is worth a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateReason {
    /// It ran out of memory soon after its start, a short while ago.
    QuickOom,
    /// Some request is out of bounds.
    OutsideRange,
    /// It is old enough, and far enough from the target.
    Drift,
}

impl UpdateReason {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuickOom => "quick_oom",
            Self::OutsideRange => "outside_range",
            Self::Drift => "drift",
        }
    }
}

/// Within which time of its start a kill for memory is a quick one.
fn quick_oom_threshold(spec: &VerticalPodAutoscalerSpec, settings: &Settings) -> Duration {
    let own = spec.update_policy.as_ref().and_then(|policy| policy.evict_after_oom_seconds);
    let own = own.filter(|_| settings.per_vpa_config);
    own.and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(settings.oom_threshold, Duration::from_secs)
}

/// Whether a container of the pod ran out of memory soon after its start, a short while ago.
pub fn had_quick_oom(
    life: &PodStatus,
    observed: &ObservedContainers,
    spec: &VerticalPodAutoscalerSpec,
    settings: &Settings,
    now: Time,
) -> bool {
    let threshold = quick_oom_threshold(spec, settings);
    life.containers.iter().any(|container| {
        let mode = spec.container_policy(&container.name).and_then(|policy| policy.mode);
        let Some(ending) = container.last_termination.filter(|ending| ending.out_of_memory) else {
            return false;
        };
        observed.contains(&container.name)
            && mode != Some(ContainerMode::Off)
            && ending.finished < ending.started.later(threshold)
            && now < ending.finished.later(threshold)
    })
}

/// Whether a pod is worth a change, and why; or why it is not. The time is that of its last resize, if it had one.
pub fn update_reason(
    priority: &Priority,
    quick_oom: bool,
    life: &PodStatus,
    resized: Option<Time>,
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
    let resized = resized.filter(|_| settings.fixes.has(Fix::ResizeRenewsAge));
    let since = life.started.map(|started| resized.map_or(started, |resized| resized.max(started)));
    let since = since.ok_or(SkipReason::AgeUnknown)?;
    let until = since.later(settings.lifetime_threshold);
    // What changes nothing is said first: that the pod will be old enough means nothing then.
    if priority.resource_diff < settings.update_threshold {
        return Err(SkipReason::NearTarget { difference: priority.resource_diff });
    }
    if now < until { Err(SkipReason::TooYoung { until }) } else { Ok(UpdateReason::Drift) }
}
