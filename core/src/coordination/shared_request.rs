//! What an autoscaler of replicas that uses requests means for the sizes of pods.

use std::fmt;

use super::{
    Hold, ObservedReplicas, Resource, ScalePoint, State, TemplateRequests,
    change_timing::Replicas,
    request_range::{Floor, RequestRange},
};

/// An autoscaler of replicas with targets that are relative to requests.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestFollower {
    /// Its name.
    pub name: Box<str>,
    /// The kind of its target.
    pub target_kind: Box<str>,
    /// The name of its target.
    pub target_name: Box<str>,
    /// What its targets are relative to.
    pub requests: Vec<FollowedRequest>,
    /// The replicas of its target.
    pub replicas: ObservedReplicas,
    /// Whether its replicas follow the scale point instead of the requests of the pods.
    pub uses_scale_point: bool,
    /// Whether they do while Plimsoll replaces the HPA controller of the cluster.
    pub uses_scale_point_if_replaced: bool,
}

/// A request that a target is relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedRequest {
    /// The resource.
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
    /// The resource.
    pub resource: Resource,
    /// The container; `None` for all of them.
    pub container: Option<Box<str>>,
    /// The scale point; `None` if neither the pod template nor the state has a request.
    pub scale_point: Option<ScalePoint>,
    /// What it means for the request.
    pub rule: SharedRequestRule,
    /// The replicas of the workload.
    pub replicas: Replicas,
    /// Whether the replicas are at the maximum and the ratio is above tolerance.
    pub lacks_replicas: bool,
}

/// What an autoscaler of replicas means for a request that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedRequestRule {
    /// The replicas would change with the request, so it is not changed.
    Held,
    /// The replicas follow the scale point. The request is at least this many milli-units, summed over the containers.
    AtLeast(i64),
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
        match (range.min, range.floor) {
            (None, _) => Self::Idle,
            (Some(min), Some(Floor::AtMaxReplicas)) => Self::AtMaxReplicas(min),
            (Some(min), _) => Self::AtLeast(min),
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

    /// What it means for the requests of the pods. `template` is that of its target, if it is known. `is_replaced` is whether
    /// Plimsoll replaces the HPA controller of the cluster.
    pub fn shared_requests(
        &self,
        template: Option<&TemplateRequests>,
        is_replaced: bool,
    ) -> impl Iterator<Item = SharedRequest> {
        let uses_scale_point = self.follows_scale_point(is_replaced);
        let scale_point = |followed: &FollowedRequest| {
            // What is stored may be of a time when Plimsoll set the replicas.
            let state = if uses_scale_point { followed.state } else { State::default() };
            let request = template?.request(followed.resource, followed.container.as_deref());
            state.base(followed.percent?, request)
        };
        let scale_points: Vec<_> = self.requests.iter().map(scale_point).collect();
        let ratios = self.requests.iter().zip(&scale_points).map(|(followed, scale_point)| {
            let (usage, scale_point) = followed.usage.zip(*scale_point)?;
            Some(usage as f64 / scale_point.milli as f64)
        });
        // One that is unknown could be the largest.
        let ratio = ratios.reduce(|left, right| Some(left?.max(right?))).flatten();
        let (replicas, lacks_replicas) = self.replicas.replicas(ratio);
        self.requests.iter().zip(scale_points).map(move |(followed, scale_point)| {
            let rule = scale_point
                .filter(|_| uses_scale_point)
                .map(|scale_point| followed.state.range(scale_point).into());
            SharedRequest {
                hpa: self.name.clone(),
                resource: followed.resource,
                container: followed.container.clone(),
                scale_point,
                // Without a scale point, the replicas follow the requests.
                rule: rule.unwrap_or(SharedRequestRule::Held),
                replicas,
                lacks_replicas,
            }
        })
    }
}

impl SharedRequest {
    /// Whether the request of a container is part of it.
    pub fn counts(&self, container: &str) -> bool {
        self.container.as_deref().is_none_or(|name| name == container)
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
        let Self { hpa, resource, rule, .. } = self;
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        coordination::{
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
        let shared = follower.shared_requests(Some(&template), false).next();
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
            let shared = follower.shared_requests(Some(&template), is_replaced).next();
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
        let unknown = unknown.shared_requests(None, false).next().expect("it follows one request");
        assert_eq!((unknown.scale_point, unknown.rule), (None, Held));
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
