//! How a VPA sizes the pods of its workload, and the rules that apply.

use std::{collections::BTreeMap, fmt, str::FromStr};

use super::lookup::first_by_key;
use crate::{
    api::{
        annotations::LIMIT_POLICY,
        vpa::{
            ContainerPolicy, ControlledValues, Recommendation, UpdateMode, VerticalPodAutoscaler,
            VerticalPodAutoscalerSpec,
        },
    },
    coordination::SharedRequest,
    types::compat::{Compat, Fixes},
};

/// How a VPA sizes its pods.
#[derive(Clone, Copy, Debug)]
pub struct SizingSpec<'a> {
    pub vpa: &'a str,
    /// `spec` of the VPA.
    pub spec: &'a VerticalPodAutoscalerSpec,
    /// `status.recommendation` of the VPA, if set.
    pub recommendation: Option<&'a Recommendation>,
    /// How limits are set, unless the container policy says `RequestsOnly`.
    pub limit_policy: LimitPolicy,
    /// Containers that are sized although another webhook injected them after ours ran.
    pub managed_sidecars: &'a [Box<str>],
    /// Requests that autoscalers of replicas use too.
    pub shared_requests: &'a [SharedRequest],
}

/// How the limit of a container is set, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LimitPolicy {
    /// `ratio`: the limit keeps its ratio to the request.
    #[default]
    Ratio,
    /// `requestsOnly`: the limit does not change, and caps the request.
    RequestsOnly,
    /// `fixed:FACTOR`: the limit is this many times the request.
    Fixed(LimitFactor),
    /// `max`: the limit is `maxAllowed`; as `ratio` if that is unset.
    Max,
}

/// The ratio of limit to request, in thousandths; at least 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFactor(pub(super) u32);

impl FromStr for LimitPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fixed = |text: &str| {
            let factor: f64 = text.strip_prefix("fixed:")?.parse().ok()?;
            (1.0..=1000.0).contains(&factor).then(|| LimitFactor((factor * 1000.0).round() as u32))
        };
        match text {
            "ratio" => Ok(Self::Ratio),
            "requestsOnly" => Ok(Self::RequestsOnly),
            "max" => Ok(Self::Max),
            other => fixed(other).map(Self::Fixed).ok_or_else(|| {
                format!("invalid limit policy `{other}`; use {}", LIMIT_POLICY.expected)
            }),
        }
    }
}

impl fmt::Display for LimitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ratio => f.pad("ratio"),
            Self::RequestsOnly => f.pad("requestsOnly"),
            Self::Fixed(factor) => write!(f, "fixed:{}", f64::from(factor.0) / 1000.0),
            Self::Max => f.pad("max"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizingRules {
    /// Compatibility mode, for behaviour that no fix covers.
    pub compat: Compat,
    pub fixes: Fixes,
    /// Whether native sidecars are sized too (feature gate `NativeSidecar`).
    pub sidecars: bool,
}

impl SizingRules {
    /// The defaults of a compatibility mode.
    pub fn for_compat(compat: Compat) -> Self {
        Self { compat, fixes: Fixes::for_compat(compat), sidecars: compat == Compat::Plimsoll }
    }
}

impl<'a> SizingSpec<'a> {
    /// Reads the spec and status of a VPA.
    pub fn from_vpa(vpa: &'a VerticalPodAutoscaler) -> Self {
        Self {
            vpa: vpa.metadata.name.as_deref().unwrap_or_default(),
            spec: &vpa.spec,
            recommendation: vpa.status.as_ref().and_then(|status| status.recommendation.as_ref()),
            limit_policy: LimitPolicy::Ratio,
            managed_sidecars: &[],
            shared_requests: &[],
        }
    }

    /// Sets the requests that autoscalers of replicas use too.
    #[must_use]
    pub fn with_shared_requests(self, shared: &'a [SharedRequest]) -> Self {
        Self { shared_requests: shared, ..self }
    }

    pub fn update_mode(&self) -> UpdateMode {
        self.spec.update_mode()
    }

    /// Returns the policy of a container, if there is one.
    pub fn container_policy(&self, container: &str) -> Option<&'a ContainerPolicy> {
        self.spec.container_policy(container)
    }

    pub fn limit_policy_for(&self, container: &str) -> LimitPolicy {
        self.limit_policy_by(self.container_policy(container))
    }

    /// Returns the limit policy under a container policy.
    pub(super) fn limit_policy_by(&self, policy: Option<&ContainerPolicy>) -> LimitPolicy {
        match policy.and_then(|policy| policy.controlled_values) {
            Some(ControlledValues::RequestsOnly) => LimitPolicy::RequestsOnly,
            Some(ControlledValues::RequestsAndLimits) | None => self.limit_policy,
        }
    }
}

/// The container policies of a VPA, indexed by container name.
pub(super) struct ContainerPolicies<'a> {
    by_name: BTreeMap<&'a str, &'a ContainerPolicy>,
    default_policy: Option<&'a ContainerPolicy>,
}

impl<'a> ContainerPolicies<'a> {
    /// Indexes the container policies of a VPA.
    pub fn new(sizing_spec: &SizingSpec<'a>) -> Self {
        let all = sizing_spec.spec.resource_policy.as_ref();
        let all = all.map_or(&[][..], |policy| &policy.container_policies);
        Self {
            by_name: first_by_key(all.iter().map(|policy| (&*policy.container_name, policy))),
            default_policy: all.iter().rfind(|policy| policy.container_name == "*"),
        }
    }

    /// Returns the policy of a container, as [`SizingSpec::container_policy`] does.
    pub fn get(&self, container: &str) -> Option<&'a ContainerPolicy> {
        self.by_name.get(container).copied().or(self.default_policy)
    }
}
