//! What an autoscaler of replicas that uses requests means for the sizes of pods.

use std::fmt;

use super::{
    CurrentTarget, Hold, ObjectTargets, ObservedReplicas, Resource, RetargetRefusal, Retargetable,
    ScalePoint, State, TemplateRequests,
    change_timing::Replicas,
    request_range::{Floor, RequestRange},
};
use crate::types::Time;

/// An autoscaler of replicas with targets that are relative to requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFollower {
    pub name: Box<str>,
    pub target_kind: Box<str>,
    pub target_name: Box<str>,
    /// What its targets are relative to.
    pub requests: Vec<FollowedRequest>,
    pub replicas: ObservedReplicas,
    /// Whether its replicas follow the scale point instead of the requests of the pods.
    pub uses_scale_point: bool,
    /// Whether they do while Plimsoll replaces the HPA controller of the cluster.
    pub uses_scale_point_if_replaced: bool,
    /// Its targets, as far as they may change together with the requests.
    pub targets: ObjectTargets,
}

/// What the meaning of an autoscaler for requests depends on, besides its object.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharingContext {
    /// Whether Plimsoll replaces the HPA controller of the cluster.
    pub is_replaced: bool,
    /// `None` if targets do not change together with the requests.
    pub retargeting: Option<Retargeting>,
}

/// Targets change together with the requests that they are relative to.
#[derive(Clone, Copy, Debug)]
pub struct Retargeting {
    pub now: Time,
    /// Whether only those targets count that were changed already: the requests of new pods do not change before.
    pub needs_record: bool,
}

/// A request that a target is relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedRequest {
    pub resource: Resource,
    /// The container; `None` for all of them.
    pub container: Option<Box<str>>,
    /// The target in percent; `None` if it is unknown.
    pub percent: Option<i32>,
    /// The mean usage per pod in milli-units; `None` if it is unknown.
    pub usage: Option<i64>,
    /// What the controller of its replicas has stored about it.
    pub state: State,
}

/// A request of the pods of a VPA that an autoscaler of replicas uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRequest {
    /// The name of the HorizontalPodAutoscaler.
    pub hpa: Box<str>,
    pub resource: Resource,
    /// The container; `None` for all of them.
    pub container: Option<Box<str>>,
    /// The scale point; `None` if neither the pod template nor the state has a request.
    pub scale_point: Option<ScalePoint>,
    /// What it means for the request.
    pub rule: SharedRequestRule,
    pub replicas: Replicas,
    /// Whether the replicas are at the maximum and the ratio is above tolerance.
    pub lacks_replicas: bool,
    /// The target that changes together with the request, or why it does not; `None` if that is not wanted.
    pub target: Option<Result<Retargetable, RetargetRefusal>>,
}

/// What an autoscaler of replicas means for a request that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRequestRule {
    /// The replicas would change with the request, so it is not changed.
    Held,
    /// The replicas follow the scale point. The request is at least this many milli-units, summed over the containers.
    AtLeast(i64),
    /// The target of the autoscaler changes together with the request, which stays within this range, in milli-units summed
    /// over the containers.
    Within { min: i64, max: i64 },
    /// There are as many replicas as allowed, and they are not enough. The request is at least this many milli-units, summed
    /// over the containers.
    AtMaxReplicas(i64),
    /// The replicas follow the scale point, and the workload is idle, so the request has no lower bound.
    Idle,
    /// The request of this pod may be changed, but not now.
    Waits(Hold),
}

impl From<RequestRange> for SharedRequestRule {
    fn from(range: RequestRange) -> Self {
        match (range.min, range.max, range.floor) {
            (None, ..) => Self::Idle,
            (Some(min), _, Some(Floor::AtMaxReplicas)) => Self::AtMaxReplicas(min),
            (Some(min), Some(max), _) => Self::Within { min, max },
            (Some(min), None, _) => Self::AtLeast(min),
        }
    }
}

impl RequestFollower {
    /// Whether it scales an object. API groups are ignored, as for the target of a VPA.
    pub fn scales(&self, kind: &str, name: &str) -> bool {
        *self.target_kind == *kind && *self.target_name == *name
    }

    /// Whether its replicas follow the scale point. `is_replaced` is whether Plimsoll replaces the HPA controller of the cluster.
    pub fn follows_scale_point(&self, is_replaced: bool) -> bool {
        self.uses_scale_point || (is_replaced && self.uses_scale_point_if_replaced)
    }

    /// What it means for the requests of the pods. `template` is that of its target, if it is known.
    pub fn shared_requests(
        &self,
        template: Option<&TemplateRequests>,
        context: SharingContext,
    ) -> impl Iterator<Item = SharedRequest> {
        let uses_scale_point = self.follows_scale_point(context.is_replaced);
        let reviews: Vec<_> =
            self.requests.iter().map(|followed| self.review(followed, template, context)).collect();
        let scale_point = |(followed, review): (&FollowedRequest, &Option<Result<_, _>>)| match (
            review,
            followed.percent,
        ) {
            (Some(Ok(found)), _) => {
                let found: &Retargetable = found;
                Some(found.target.scale_point())
            }
            // What is stored may be of a time when Plimsoll set the replicas.
            (_, Some(percent)) if !uses_scale_point => {
                let original = self.targets.record.original(followed.target(percent));
                followed.scale_point(State::default(), original, template)
            }
            (_, percent) => followed.scale_point(followed.state, percent?, template),
        };
        let scale_points: Vec<_> = self.requests.iter().zip(&reviews).map(scale_point).collect();
        let ratios = self.requests.iter().zip(&scale_points).map(|(followed, scale_point)| {
            let (usage, scale_point) = followed.usage.zip(*scale_point)?;
            Some(usage as f64 / scale_point.milli as f64)
        });
        // One that is unknown could be the largest.
        let ratio = ratios.reduce(|left, right| Some(left?.max(right?))).flatten();
        let (replicas, lacks_replicas) = self.replicas.replicas(ratio);
        let all = self.requests.iter().zip(scale_points).zip(reviews);
        all.map(move |((followed, scale_point), target)| {
            let range = match &target {
                Some(Ok(found)) => Some(found.target.range()),
                _ => scale_point
                    .filter(|_| uses_scale_point)
                    .map(|scale_point| followed.state.range(scale_point)),
            };
            SharedRequest {
                hpa: self.name.clone(),
                resource: followed.resource,
                container: followed.container.clone(),
                scale_point,
                // Without a scale point, the replicas follow the requests.
                rule: range.map_or(SharedRequestRule::Held, Into::into),
                replicas,
                lacks_replicas,
                target,
            }
        })
    }

    /// Whether a target changes together with the request; `None` if that is not wanted, or of no use.
    fn review(
        &self,
        followed: &FollowedRequest,
        template: Option<&TemplateRequests>,
        context: SharingContext,
    ) -> Option<Result<Retargetable, RetargetRefusal>> {
        let Retargeting { now, needs_record } = context.retargeting?;
        let ObjectTargets { record, owner, may_follow } = &self.targets;
        let current = followed.target(followed.percent?);
        let is_builtin = *may_follow && !context.is_replaced && !self.uses_scale_point;
        if !is_builtin || (needs_record && !record.has_written(current)) {
            return None;
        }
        let request = template.and_then(|template| {
            template.request(followed.resource, followed.container.as_deref())
        });
        let owner = owner.as_ref().map(|(kind, name)| (&**kind, &**name));
        Some(record.review(current, request, owner, now))
    }
}

impl FollowedRequest {
    fn scale_point(
        &self,
        state: State,
        percent: i32,
        template: Option<&TemplateRequests>,
    ) -> Option<ScalePoint> {
        state.base(percent, template?.request(self.resource, self.container.as_deref()))
    }

    fn target(&self, percent: i32) -> CurrentTarget<'_> {
        CurrentTarget { resource: self.resource, container: self.container.as_deref(), percent }
    }
}

impl SharedRequest {
    /// Whether the request of a container is part of it.
    pub fn counts(&self, container: &str) -> bool {
        self.container.as_deref().is_none_or(|name| name == container)
    }

    /// Does not change the request together with the target, if pods have a container that the target counts and the template
    /// does not have: the scale point would be too low. `names` are those of the containers of the pods.
    pub fn hold_if_others_count<'a>(
        &mut self,
        template: &TemplateRequests,
        mut names: impl Iterator<Item = &'a str>,
    ) {
        let is_retargeted = matches!(self.target, Some(Ok(_)));
        if is_retargeted && names.any(|name| self.counts(name) && !template.has_container(name)) {
            self.target = Some(Err(RetargetRefusal::OtherContainers));
            self.rule = SharedRequestRule::Held;
        }
    }

    /// Whether the request is not changed.
    pub fn is_held(&self) -> bool {
        matches!(self.rule, SharedRequestRule::Held | SharedRequestRule::Waits(_))
    }

    /// The target that ends the conflict, as a patch of a metric; `None` if the scale point is unknown.
    pub fn average_value(&self) -> Option<String> {
        self.scale_point.map(|scale_point| self.resource.quantity(scale_point.milli).to_string())
    }
}

/// Why the request is not what the recommendation says, and what to do about it.
impl fmt::Display for SharedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hpa, resource, rule, target, .. } = self;
        write!(
            f,
            "HorizontalPodAutoscaler {hpa} scales by the utilization of {resource} requests"
        )?;
        match (rule, self.average_value()) {
            (SharedRequestRule::Held, Some(average)) => write!(
                f,
                ", so they are not changed; with averageValue: {average} in place of its averageUtilization they can be"
            ),
            (SharedRequestRule::Held, None) => write!(
                f,
                ", so they are not changed; with an averageValue in place of its averageUtilization they can be"
            ),
            (SharedRequestRule::AtLeast(milli), _) => {
                write!(f, ", so they are at least {} per pod", resource.quantity(*milli))
            }
            (SharedRequestRule::Within { min, max }, _) => write!(
                f,
                ", which changes together with them, so they are between {} and {} per pod",
                resource.quantity(*min),
                resource.quantity(*max)
            ),
            (SharedRequestRule::Waits(hold), _) => {
                let hpa = format!("HorizontalPodAutoscaler {hpa}");
                write!(f, ", and a change of them waits: {}", hold.cause(&hpa))
            }
            (SharedRequestRule::AtMaxReplicas(milli), _) => write!(
                f,
                ", and its maxReplicas are not enough, so they are at least {} per pod",
                resource.quantity(*milli)
            ),
            (SharedRequestRule::Idle, _) => {
                write!(f, ", and the workload is idle, so they have no lower bound")
            }
        }?;
        match target {
            Some(Err(refusal)) if *rule == SharedRequestRule::Held => {
                write!(f, "; its averageUtilization does not change with them: {refusal}")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        coordination::{
            RecordedTarget, ReplicaStatus, TargetRecord,
            at_max::Raised,
            idle::{IDLE_AFTER, IdleSpan},
            template_requests::ContainerRequests,
        },
        types::Time,
    };

    fn follower(percent: Option<i32>, uses_scale_point: bool) -> RequestFollower {
        RequestFollower {
            name: "web".into(),
            target_kind: "Deployment".into(),
            target_name: "web".into(),
            requests: vec![FollowedRequest {
                resource: Resource::Cpu,
                container: None,
                percent,
                usage: None,
                state: State::default(),
            }],
            replicas: ObservedReplicas::default(),
            uses_scale_point,
            uses_scale_point_if_replaced: true,
            targets: ObjectTargets { may_follow: true, ..ObjectTargets::default() },
        }
    }

    fn with_state(state: State) -> RequestFollower {
        let mut follower = follower(Some(60), true);
        follower.requests[0].state = state;
        follower
    }

    fn shared(follower: &RequestFollower, cpu: Option<i64>) -> SharedRequest {
        let container = ContainerRequests { name: "app".into(), cpu, memory: None };
        let template: TemplateRequests = [container].into_iter().collect();
        let context = SharingContext::default();
        let shared = follower.shared_requests(Some(&template), context).next();
        shared.expect("it follows one request")
    }

    #[test]
    fn a_request_is_changed_only_if_replicas_follow_a_known_scale_point() {
        use SharedRequestRule::{AtLeast, Held};
        for (percent, uses_scale_point, template, expected) in [
            (Some(60), false, Some(500), (Some(300), Held)),
            (Some(60), true, Some(500), (Some(300), AtLeast(316))),
            (Some(60), true, None, (None, Held)),
            (None, true, Some(500), (None, Held)),
            (Some(60), false, None, (None, Held)),
        ] {
            let shared = shared(&follower(percent, uses_scale_point), template);
            let point = shared.scale_point.map(|point| point.milli);
            assert_eq!(
                (point, shared.rule),
                expected,
                "{percent:?} {uses_scale_point} {template:?}"
            );
        }
    }

    #[test]
    fn while_the_hpa_controller_is_replaced_replicas_follow_the_scale_point() {
        let container = ContainerRequests { name: "app".into(), cpu: Some(500), memory: None };
        let template: TemplateRequests = [container].into_iter().collect();
        let rule = |follower: &RequestFollower, is_replaced| {
            let context = SharingContext { is_replaced, ..SharingContext::default() };
            let shared = follower.shared_requests(Some(&template), context).next();
            shared.expect("it follows one request").rule
        };
        let any = follower(Some(60), false);
        assert_eq!(rule(&any, true), SharedRequestRule::AtLeast(316));
        assert_eq!(rule(&any, false), SharedRequestRule::Held);
        let by_requests = RequestFollower { uses_scale_point_if_replaced: false, ..any };
        assert_eq!(rule(&by_requests, true), SharedRequestRule::Held);
    }

    #[test]
    fn the_stored_state_gives_a_scale_point_ends_the_floor_or_raises_it() {
        use SharedRequestRule::{AtLeast, AtMaxReplicas, Held, Idle};
        let now = Time::from_secs(1_000_000);
        let first_requests = State { first_requests: Some(400), ..State::default() };
        let idle = |since| {
            let idle = Some(IdleSpan { since, last: now });
            State { idle, ..State::default() }
        };
        let (since, base) = (now, 300);
        let raised = Raised { request: 460, base, since, needed: now };
        let raised = |base| State { raised: Some(Raised { base, ..raised }), ..State::default() };
        for (state, template, expected) in [
            (State::default(), None, Held),
            (first_requests, None, AtLeast(253)),
            (first_requests, Some(500), AtLeast(316)),
            (idle(now.earlier(IDLE_AFTER)), Some(500), Idle),
            (idle(now), Some(500), AtLeast(316)),
            (raised(300), Some(500), AtMaxReplicas(460)),
            // A user has edited the template since.
            (raised(300), Some(1000), AtLeast(632)),
            // A raise needs a scale point.
            (raised(300), None, Held),
        ] {
            let rule = shared(&with_state(state), template).rule;
            assert_eq!(rule, expected, "{state:?} {template:?}");
            let others = RequestFollower { uses_scale_point: false, ..with_state(state) };
            assert_eq!(shared(&others, template).rule, Held, "{state:?}");
        }
        // The template is not known, and could have a request.
        let unknown = with_state(first_requests);
        let unknown = unknown.shared_requests(None, SharingContext::default()).next();
        let unknown = unknown.expect("it follows one request");
        assert_eq!((unknown.scale_point, unknown.rule), (None, Held));
    }

    const NOW: Time = Time::from_secs(1_800_000_000);

    /// What a follower means while its target may change together with the request.
    fn retargeted(
        follower: &RequestFollower,
        cpu: Option<i64>,
        needs_record: bool,
    ) -> SharedRequest {
        let container = ContainerRequests { name: "app".into(), cpu, memory: None };
        let template: TemplateRequests = [container].into_iter().collect();
        let retargeting = Some(Retargeting { now: NOW, needs_record });
        let context = SharingContext { is_replaced: false, retargeting };
        let shared = follower.shared_requests(Some(&template), context).next();
        shared.expect("it follows one request")
    }

    /// The target of the user is 60 % of 500m in the template.
    fn with_written(percent: i32, written: i32) -> RequestFollower {
        let mut follower = follower(Some(percent), false);
        let target = RecordedTarget {
            resource: Resource::Cpu,
            container: None,
            scale_point: 300,
            template: 500,
            original: 60,
            written,
        };
        follower.targets.record = TargetRecord { metrics: vec![target], resets: Vec::new() };
        follower
    }

    #[test]
    fn a_target_that_changes_with_the_request_gives_it_a_range_around_the_scale_point() {
        use SharedRequestRule::{AtLeast, Held, Within};
        let within = Within { min: 316, max: 600 };
        let unwritten = follower(Some(60), false);
        let mut by_requests = unwritten.clone();
        by_requests.targets.may_follow = false;
        let mut owned = unwritten.clone();
        owned.targets.owner = Some(("ScaledObject".into(), "web".into()));
        let other_template = Within { min: 632, max: 1200 };
        for (follower, template, expected, if_recorded) in [
            (&unwritten, Some(500), within, Held),
            (&unwritten, None, Held, Held),
            (&by_requests, Some(500), Held, Held),
            (&owned, Some(500), Held, Held),
            (&follower(Some(60), true), Some(500), AtLeast(316), AtLeast(316)),
            (&follower(None, false), Some(500), Held, Held),
            // 75 % of requests of 400m.
            (&with_written(75, 75), Some(500), within, within),
            (&with_written(75, 75), None, within, within),
            (&with_written(75, 75), Some(1000), other_template, other_template),
            // The user has written another target, or the same again.
            (&with_written(80, 75), Some(500), Within { min: 422, max: 800 }, Held),
            (&with_written(60, 75), Some(500), within, Held),
        ] {
            for (needs_record, expected) in [(false, expected), (true, if_recorded)] {
                let shared = retargeted(follower, template, needs_record);
                let case = format!("{template:?} {needs_record} {follower:?}");
                assert_eq!(shared.rule, expected, "{case}");
            }
        }
        let text = retargeted(&unwritten, Some(500), false).to_string();
        assert!(text.ends_with("so they are between 316m and 600m per pod"), "{text}");
        let text = retargeted(&owned, Some(500), false).to_string();
        let reason =
            "does not change with them: ScaledObject web owns the object and writes its spec";
        assert!(text.contains("so they are not changed") && text.ends_with(reason), "{text}");
    }

    #[test]
    fn without_the_rule_or_while_the_hpa_controller_is_replaced_no_target_changes() {
        let container = ContainerRequests { name: "app".into(), cpu: Some(500), memory: None };
        let template: TemplateRequests = [container].into_iter().collect();
        let retargeting = Some(Retargeting { now: NOW, needs_record: false });
        for (context, expected) in [
            (SharingContext::default(), SharedRequestRule::Held),
            (SharingContext { is_replaced: true, retargeting }, SharedRequestRule::AtLeast(316)),
        ] {
            let follower = follower(Some(60), false);
            let shared = follower.shared_requests(Some(&template), context).next();
            let shared = shared.expect("it follows one request");
            assert_eq!((shared.rule, shared.target), (expected, None));
        }
    }

    #[test]
    fn a_written_target_changes_neither_the_scale_point_nor_what_the_metrics_ask_for() {
        let status = ReplicaStatus { current: 2, desired: 2, other_ratio: None };
        let replicas = ObservedReplicas {
            min: 1,
            max: 10,
            tolerance_up: Some(0.1),
            tolerance_down: Some(0.1),
            status: Some(status),
            ..ObservedReplicas::default()
        };
        for percent in [60, 75] {
            let mut follower = RequestFollower { replicas, ..with_written(percent, 75) };
            follower.requests[0].usage = Some(300);
            for shared in [shared(&follower, Some(500)), retargeted(&follower, Some(500), false)] {
                assert_eq!(shared.scale_point.map(|point| point.milli), Some(300), "{percent}");
                assert_eq!(shared.replicas.proposed, Some(2), "{percent}");
            }
        }
    }

    #[test]
    fn a_target_that_counts_containers_outside_the_template_does_not_change() {
        let container = ContainerRequests { name: "app".into(), cpu: Some(500), memory: None };
        let template: TemplateRequests = [container].into_iter().collect();
        let retargeting = Some(Retargeting { now: Time::from_secs(0), needs_record: false });
        let context = SharingContext { retargeting, ..SharingContext::default() };
        let mut follower = follower(Some(60), false);
        follower.targets.may_follow = true;
        for (names, is_held) in [(&["app"][..], false), (&["app", "proxy"], true), (&[], false)] {
            let shared = follower.shared_requests(Some(&template), context).next();
            let mut shared = shared.expect("it follows one request");
            shared.hold_if_others_count(&template, names.iter().copied());
            assert_eq!(shared.is_held(), is_held, "{names:?}");
            let text = shared.to_string();
            assert_eq!(text.contains("not in the pod template"), is_held, "{text}");
        }
    }

    #[test]
    fn the_text_says_how_to_end_the_conflict() {
        let held = |template| shared(&follower(Some(60), false), template).to_string();
        assert_eq!(
            held(Some(500)),
            "HorizontalPodAutoscaler web scales by the utilization of cpu requests, so they are not changed; \
             with averageValue: 300m in place of its averageUtilization they can be"
        );
        assert!(held(None).contains("with an averageValue in place"));
        let floor = shared(&follower(Some(60), true), Some(500)).to_string();
        assert!(floor.ends_with("so they are at least 316m per pod"), "{floor}");
        let text = |rule| SharedRequest { rule, ..shared(&follower(Some(60), true), None) };
        let raised = text(SharedRequestRule::AtMaxReplicas(460)).to_string();
        assert!(raised.ends_with("not enough, so they are at least 460m per pod"), "{raised}");
        let idle = text(SharedRequestRule::Idle).to_string();
        assert!(idle.ends_with("idle, so they have no lower bound"), "{idle}");
    }
}
