//! Applies the rules to one resource of one workload.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Resource, ScalePoint,
    at_max::{self, AT_MAX_FOR, Load, Raised},
    change_timing::{self, ChangeReason, Hold, Replicas, RequestChange, Timing},
    idle::IdleSpan,
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
    /// The target request.
    pub target: i64,
    /// Pods with a lower request should get more.
    pub lower: i64,
    /// Pods with a higher request need less.
    pub upper: i64,
}

/// What is known about one resource of one workload.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// The resource.
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
    /// The 95th percentile of the usage in the last hour, with the safety margin; `None` if it is unknown.
    pub last_hour_target: Option<i64>,
    /// The mean usage of the pods that count; `None` if it is unknown.
    pub usage_per_pod: Option<i64>,
    /// The replicas.
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
    /// The current time.
    pub now: Time,
}

/// What has to be persisted between decisions. Persist it before acting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct State {
    /// The first requests that were observed, if the template has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_requests: Option<i64>,
    /// Since when more replicas are needed than the maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks_replicas_since: Option<Time>,
    /// The raised scale point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raised: Option<Raised>,
    /// Since when the workload is idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleSpan>,
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
    ScalePointTooLowForMaxReplicas {
        /// Since when.
        since: Time,
    },
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
    /// The resource.
    pub resource: Resource,
    /// The scale point; `None` if no request is known.
    pub scale_point: Option<ScalePoint>,
    /// How replicas are proposed.
    pub ratio_rule: RatioRule,
    /// The range of a pod's request.
    pub range: RequestRange,
    /// Whether the workload is idle, so that its request has no floor.
    pub is_idle: bool,
    /// The change of the request.
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
    let Observed { resource, replicas, now, .. } = *observed;
    let mut state = *state;
    if observed.template_request.is_none() && state.first_requests.is_none() {
        state.first_requests = observed.mean_request;
    }
    let by_request = RatioRule::Utilization { percent: observed.target_percent };
    let mut decision = Coordination {
        resource,
        scale_point: None,
        ratio_rule: by_request,
        range: RequestRange::default().of_resource(resource, observed.mean_request),
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
    let base = ScalePoint::of(
        observed.target_percent,
        observed.template_request,
        decision.state.first_requests,
    );
    let Some(base) = base else {
        decision.findings.push(Finding::NoRequest);
        decision.change = held_for_other(observed, decision.range);
        return decision;
    };
    let load = Load {
        usage_per_pod: observed.usage_per_pod,
        replicas: replicas.current,
        max: replicas.max,
        tolerance: observed.tolerance,
    };
    state = decision.state;
    state.raised = load.keep(state.raised, base, now);
    let scale_point = state.raised.map_or(base, |raised| base.raised_to(raised.milli));
    state.idle = IdleSpan::next(
        state.idle,
        observed.usage_per_pod,
        replicas.current <= replicas.min,
        scale_point,
        now,
    );
    let lacks_replicas = load.lacks_replicas(scale_point);
    state.lacks_replicas_since = lacks_replicas.then(|| state.lacks_replicas_since.unwrap_or(now));
    decision.state = state;
    decision.scale_point = Some(scale_point);
    decision.is_idle = state.idle.is_some_and(IdleSpan::is_idle);
    let lasting = state.lacks_replicas_since.filter(|since| since.later(AT_MAX_FOR) <= now);
    if let Some(since) = lasting.or(state.raised.map(|raised| raised.since)) {
        decision.findings.push(Finding::ScalePointTooLowForMaxReplicas { since });
    }
    decision.range = match observed.writer {
        ReplicaWriter::Plimsoll if observed.follows_requests => {
            decision.findings.push(Finding::FollowsRequests);
            RequestRange::for_utilization(scale_point)
        }
        ReplicaWriter::Plimsoll => {
            decision.ratio_rule = RatioRule::Usage { average_milli: scale_point.milli };
            RequestRange::for_usage(scale_point, decision.is_idle)
        }
        // The floor is the highest target, so it is kept for idle workloads too.
        ReplicaWriter::Other { .. } => RequestRange::for_utilization(scale_point),
    }
    .of_resource(resource, observed.mean_request);
    if observed.writer == (ReplicaWriter::Other { may_retarget: true }) {
        let target = observed.mean_request.map(|mean| retarget::target_percent(scale_point, mean));
        decision.target_percent = target;
        decision.ratio_rule =
            RatioRule::Utilization { percent: target.unwrap_or(observed.target_percent) };
    }
    decision.change = request_change(observed, &mut decision, lacks_replicas, lasting);
    decision
}

fn request_change(
    observed: &Observed,
    decision: &mut Coordination,
    lacks_replicas: bool,
    lasting: Option<Time>,
) -> RequestChange {
    let is_fixed = matches!(observed.writer, ReplicaWriter::Other { may_retarget: false });
    if is_fixed || (observed.follows_requests && observed.writer == ReplicaWriter::Plimsoll) {
        return held_for_other(observed, decision.range);
    }
    let Some(current) = observed.mean_request else { return RequestChange::NotNeeded };
    let timing = Timing {
        replicas: observed.replicas,
        lacks_replicas,
        can_raise_in_place: observed.can_raise_in_place,
        changed: observed.request_changed,
        now: observed.now,
    };
    let target = observed.recommended.map_or(0, |recommended| recommended.target);
    let larger = observed.last_hour_target.map(|peak| decision.range.clamp(peak.max(target)));
    if let (Some(_), Some(to)) = (lasting, larger.filter(|to| *to > current)) {
        let change = timing.change(current, to, ChangeReason::AtMaxReplicas);
        if let (RequestChange::Due { .. }, Some(base)) = (change, base_of(decision)) {
            let state = &mut decision.state;
            state.raised = at_max::raise(state.raised, base, to, observed.now);
            // The next raise has to be needed for as long again.
            state.lacks_replicas_since = Some(observed.now);
        }
        return change;
    }
    let Some(recommended) = observed.recommended else { return RequestChange::NotNeeded };
    change_timing::wanted_change(current, recommended, decision.range, observed.update_threshold)
        .map_or(RequestChange::NotNeeded, |(to, reason)| timing.change(current, to, reason))
}

/// The scale point that is not raised.
fn base_of(decision: &Coordination) -> Option<ScalePoint> {
    let scale_point = decision.scale_point?;
    let base = decision.state.raised.map_or(scale_point.milli, |raised| raised.base);
    Some(ScalePoint { milli: base, ..scale_point })
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
