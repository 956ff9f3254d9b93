//! What a VPA wants of the pods of its workload, and the rules by which that is done.

use std::{fmt, str::FromStr};

use super::lookup::Lookup;
use crate::{
    api::{
        annotations::LIMIT_POLICY,
        vpa::{
            ContainerPolicy, ControlledValues, Recommendation, UpdateMode, VerticalPodAutoscaler,
            VerticalPodAutoscalerSpec,
        },
    },
    types::compat::{Compat, Fixes},
};

/// What a VPA wants.
#[derive(Clone, Copy, Debug)]
pub struct SizingSpec<'a> {
    /// Name of the VPA.
    pub vpa: &'a str,
    /// What it says.
    pub spec: &'a VerticalPodAutoscalerSpec,
    /// What is recommended for its containers, if anything is.
    pub recommendation: Option<&'a Recommendation>,
    /// What becomes of limits, where the policy of a container does not leave them alone.
    pub limit_policy: LimitPolicy,
    /// Containers that are sized though another webhook put them into the pod after ours had seen it.
    pub managed_sidecars: &'a [Box<str>],
}

/// What becomes of the limit of a container that has one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LimitPolicy {
    /// `ratio`: it stays as many times the request as it was.
    #[default]
    Ratio,
    /// `requestsOnly`: it stays what it is, and no request goes above it.
    RequestsOnly,
    /// `fixed:FACTOR`: it is this many times the request, whatever it was before.
    Fixed(LimitFactor),
    /// `max`: it is what `maxAllowed` says; as `ratio` where that says nothing.
    Max,
}

/// How many times the request a limit is, in thousandths; 1000 at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitFactor(u32);

impl LimitFactor {
    /// In thousandths.
    pub const fn milli(self) -> u32 {
        self.0
    }
}

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
                format!("`{other}` is no limit policy; use {}", LIMIT_POLICY.expected)
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

/// By which rules pods are sized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizingRules {
    /// Whose behaviour is wanted where it is not about numbers.
    pub compat: Compat,
    /// The fixes that are on.
    pub fixes: Fixes,
    /// Whether sidecars among the init containers are sized too (gate `NativeSidecar`).
    pub sidecars: bool,
}

impl SizingRules {
    /// What a mode starts from.
    pub fn for_compat(compat: Compat) -> Self {
        Self { compat, fixes: Fixes::for_compat(compat), sidecars: compat == Compat::Plimsoll }
    }
}

impl<'a> SizingSpec<'a> {
    /// What an object says.
    pub fn from_vpa(vpa: &'a VerticalPodAutoscaler) -> Self {
        Self {
            vpa: vpa.metadata.name.as_deref().unwrap_or_default(),
            spec: &vpa.spec,
            recommendation: vpa.status.as_ref().and_then(|status| status.recommendation.as_ref()),
            limit_policy: LimitPolicy::Ratio,
            managed_sidecars: &[],
        }
    }

    /// With another limit policy.
    #[must_use]
    pub fn with_limit_policy(self, limits: LimitPolicy) -> Self {
        Self { limit_policy: limits, ..self }
    }

    /// With containers that are sized though they were injected late.
    #[must_use]
    pub fn with_managed_sidecars(self, injected: &'a [Box<str>]) -> Self {
        Self { managed_sidecars: injected, ..self }
    }

    /// When pods get what is recommended.
    pub fn update_mode(&self) -> UpdateMode {
        self.spec.update_mode()
    }

    /// What holds for a container, if anything is said of it.
    pub fn container_policy(&self, container: &str) -> Option<&'a ContainerPolicy> {
        self.spec.container_policy(container)
    }

    /// What becomes of the limit of a container.
    pub fn limit_policy_for(&self, container: &str) -> LimitPolicy {
        self.limit_policy_by(self.container_policy(container))
    }

    /// What becomes of the limit of a container that this holds for.
    pub(super) fn limit_policy_by(&self, policy: Option<&ContainerPolicy>) -> LimitPolicy {
        match policy.and_then(|policy| policy.controlled_values) {
            Some(ControlledValues::RequestsOnly) => LimitPolicy::RequestsOnly,
            Some(ControlledValues::RequestsAndLimits) | None => self.limit_policy,
        }
    }
}

/// The container policies of a VPA, for who looks up many containers.
pub(super) struct ContainerPolicies<'a> {
    all: &'a [ContainerPolicy],
    by_name: Lookup<&'a str, &'a ContainerPolicy>,
    default_policy: Option<&'a ContainerPolicy>,
}

impl<'a> ContainerPolicies<'a> {
    /// Those of a plan.
    pub fn new(plan: &SizingSpec<'a>) -> Self {
        let all = plan.spec.resource_policy.as_ref();
        let all = all.map_or(&[][..], |policy| &policy.container_policies);
        let by_name = Lookup::new(all.len(), named_policies(all));
        Self {
            all,
            by_name,
            default_policy: all.iter().rfind(|policy| policy.container_name == "*"),
        }
    }

    /// What holds for a container, as [`Plan::policy`] finds it.
    pub fn get(&self, container: &str) -> Option<&'a ContainerPolicy> {
        self.by_name.get(container, named_policies(self.all)).or(self.default_policy)
    }
}

fn named_policies(all: &[ContainerPolicy]) -> impl Iterator<Item = (&str, &ContainerPolicy)> {
    all.iter().map(|policy| (&*policy.container_name, policy))
}
