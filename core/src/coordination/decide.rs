//! Applies the rules to one resource of one workload.

use std::time::Duration;

use serde::Serialize;

use super::{
    Measurement, Resource, ScalePoint, State, UsagePerPod,
    change_timing::{self, ChangeReason, Hold, Replicas, RequestChange, Timing},
    request_range::RequestRange,
    retarget,
    update_wave::{RemovalHold, UpdateWave},
};
use crate::types::Time;

/// Who changes the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaWriter {
    /// This program, which computes the ratio itself.
    Plimsoll,
    /// Another controller, which only knows the utilization of requests.
    Other {
        /// Whether its target may be changed together with the requests.
        may_retarget: bool,
    },
}

/// The recommendation for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recommended {
    pub target: i64,
    /// Pods with a lower request should get more.
    pub lower: i64,
    /// Pods with a higher request need less.
    pub upper: i64,
}

/// What is known about one resource of one workload.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    pub resource: Resource,
    /// Who changes the replicas.
    pub writer: ReplicaWriter,
    /// The target utilization in percent, as the user wrote it.
    pub target_percent: i32,
    /// Whether the user asked for the utilization of the current requests.
    pub follows_requests: bool,
    /// The request in the pod template; `None` if a container that counts has none.
    pub template_request: Option<i64>,
    /// The mean actuated request of the pods; `None` if it is unknown.
    pub mean_request: Option<i64>,
    /// The recommendation; `None` if there is none.
    pub recommended: Option<Recommended>,
    /// The request that the last hour at the maximum asks for; `None` if it is unknown.
    pub last_hour_target: Option<i64>,
    /// The usage of the pods; `None` if it is unknown.
    pub usage_per_pod: Option<UsagePerPod>,
    pub replicas: Replicas,
    /// The tolerance for scaling up.
    pub tolerance: f64,
    /// How long a pod counts as starting after it became ready.
    pub readiness: Duration,
    /// The last wave of updates, if any.
    pub wave: Option<UpdateWave>,
    /// When the request was last changed, if it was.
    pub request_changed: Option<Time>,
    /// The difference to the target, as a fraction, for which a request within bounds is changed.
    pub update_threshold: f64,
    /// Whether a request can be raised without a restart.
    pub can_raise_in_place: bool,
    pub now: Time,
}

/// How replicas are proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RatioRule {
    /// The mean usage relative to the scale point, which also stands in for pods without a sample when replicas are removed.
    /// It is what an `AverageValue` target of the same amount does.
    Usage {
        /// The scale point.
        average_milli: i64,
    },
    /// The usage relative to the current requests, as upstream does.
    Utilization {
        /// The target in percent.
        percent: i32,
    },
}

/// Something that the user should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// More replicas are needed than the maximum, so the target or the template's request is too low for it.
    ScalePointTooLowForMaxReplicas { since: Time },
    /// The user asked for the utilization of the current requests, which a VPA changes.
    FollowsRequests,
    /// A container that counts has no request, so there is no scale point.
    NoRequest,
    /// Both autoscalers use memory. Its usage hardly falls when replicas are added.
    MemoryIsShared,
}

/// The decision about one resource of one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Coordination {
    pub resource: Resource,
    /// The scale point; `None` if no request is known.
    pub scale_point: Option<ScalePoint>,
    /// How replicas are proposed.
    pub ratio_rule: RatioRule,
    /// The range of a pod's request.
    pub range: RequestRange,
    /// Whether the workload is idle, so that its request has no floor.
    pub is_idle: bool,
    pub change: RequestChange,
    /// The target in percent that the other controller should have for the current requests; `None` if it is not changed.
    pub target_percent: Option<i32>,
    /// Why replicas must not be removed.
    pub removal_hold: Option<RemovalHold>,
    /// What the user should know.
    pub findings: Vec<Finding>,
    /// What to persist.
    pub state: State,
}

/// Decides how both autoscalers share a resource.
pub fn coordinate(observed: &Observed, state: &State) -> Coordination {
    let Observed { resource, replicas, mean_request, now, .. } = *observed;
    let template = observed.template_request;
    let state = state.with_first_requests(template, mean_request);
    let by_request = RatioRule::Utilization { percent: observed.target_percent };
    let mut decision = Coordination {
        resource,
        scale_point: None,
        ratio_rule: by_request,
        range: RequestRange::default().of_resource(resource, mean_request),
        is_idle: false,
        change: RequestChange::NotNeeded,
        target_percent: None,
        removal_hold: observed.wave.and_then(|wave| wave.holds_removal(observed.readiness, now)),
        findings: Vec::new(),
        state,
    };
    if resource == Resource::Memory {
        decision.findings.push(Finding::MemoryIsShared);
    }
    let Some(base) = state.base(observed.target_percent, template) else {
        decision.findings.push(Finding::NoRequest);
        decision.change = held_for_other(observed, decision.range);
        return decision;
    };
    let measured = Measurement {
        usage: observed.usage_per_pod,
        mean_request,
        replicas: replicas.current,
        min: replicas.min,
        max: replicas.max,
        tolerance: observed.tolerance,
        now,
    };
    let state = state.after(base, &measured);
    let scale_point = state.scale_point(base, mean_request);
    decision.state = state;
    decision.scale_point = Some(scale_point);
    decision.is_idle = state.is_idle();
    if let Some(since) = state.is_too_low_since(now) {
        decision.findings.push(Finding::ScalePointTooLowForMaxReplicas { since });
    }
    decision.range = match observed.writer {
        ReplicaWriter::Plimsoll if observed.follows_requests => {
            decision.findings.push(Finding::FollowsRequests);
            RequestRange::for_utilization(scale_point)
        }
        ReplicaWriter::Plimsoll => {
            decision.ratio_rule = RatioRule::Usage { average_milli: scale_point.milli };
            state.range(base)
        }
        // The floor is the highest target, so it is kept for idle workloads too.
        ReplicaWriter::Other { .. } => RequestRange::for_utilization(scale_point),
    }
    .of_resource(resource, mean_request);
    if observed.writer == (ReplicaWriter::Other { may_retarget: true }) {
        let target = mean_request.map(|mean| retarget::target_percent(scale_point, mean));
        decision.target_percent = target;
        decision.ratio_rule =
            RatioRule::Utilization { percent: target.unwrap_or(observed.target_percent) };
    }
    decision.change = request_change(observed, &mut decision, base);
    decision
}

fn request_change(
    observed: &Observed,
    decision: &mut Coordination,
    base: ScalePoint,
) -> RequestChange {
    let is_fixed = matches!(observed.writer, ReplicaWriter::Other { may_retarget: false });
    if is_fixed || (observed.follows_requests && observed.writer == ReplicaWriter::Plimsoll) {
        return held_for_other(observed, decision.range);
    }
    let Some(current) = observed.mean_request else { return RequestChange::NotNeeded };
    let timing = Timing {
        replicas: observed.replicas,
        lacks_replicas: decision.state.lacks_replicas_since.is_some(),
        can_raise_in_place: observed.can_raise_in_place,
        changed: observed.request_changed,
        now: observed.now,
    };
    let peak = observed.last_hour_target;
    if let Some(to) = decision.state.needed_request(decision.range, peak, observed.now) {
        let target = observed.recommended.map_or(0, |recommended| recommended.target);
        let larger = decision.range.clamp(target.max(to));
        let reason = ChangeReason::AtMaxReplicas;
        let change = (to > current).then(|| timing.change(current, larger, reason));
        if !matches!(change, Some(RequestChange::Held { .. })) {
            decision.state.raise(base, to, observed.now);
        }
        if let Some(change) = change {
            return change;
        }
    }
    let Some(recommended) = observed.recommended else { return RequestChange::NotNeeded };
    change_timing::wanted_change(current, recommended, decision.range, observed.update_threshold)
        .map_or(RequestChange::NotNeeded, |(to, reason)| timing.change(current, to, reason))
}

/// A change that would move the replicas of a controller that follows the requests.
fn held_for_other(observed: &Observed, range: RequestRange) -> RequestChange {
    let wanted = observed.mean_request.zip(observed.recommended);
    let wanted = wanted.and_then(|(current, recommended)| {
        change_timing::wanted_change(current, recommended, range, observed.update_threshold)
    });
    wanted.map_or(RequestChange::NotNeeded, |(to, reason)| RequestChange::Held {
        to,
        reason,
        by: Hold::HpaSameResource,
    })
}
