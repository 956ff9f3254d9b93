//! The startup boost of a new pod's container: more CPU than is recommended, until some time after it is ready.

use crate::{
    api::{
        ResourceList, ResourceName,
        vpa::{BoostKind, CpuBoost, StartupBoost},
    },
    sizing::{
        Container, LimitPolicy, MergedLimitRange, SizedContainer, SizingError, SizingRules,
        SizingSpec,
        limit_policy::{CurrentResources, proportional_limit},
    },
    types::{
        compat::{Compat, Fix},
        quantity::{Format, Quantity},
        units::MilliCpu,
    },
};

/// What a boost is worked out from.
#[derive(Clone, Copy, Debug)]
pub struct BoostContext<'a> {
    /// What the VPA wants.
    pub spec: &'a SizingSpec<'a>,
    /// What holds for containers of the namespace.
    pub limit_range: Option<&'a MergedLimitRange>,
    /// The operator's limit of a boosted CPU; zero is none.
    pub max_cpu: Quantity,
    /// The rules.
    pub rules: SizingRules,
}

impl BoostContext<'_> {
    /// Gives a container its boost, and answers whether it got one.
    pub fn apply(
        &self,
        container: &Container,
        boost: &StartupBoost,
        size: &mut SizedContainer,
    ) -> Result<bool, SizingError> {
        let bad =
            |problem| SizingError::InvalidBoost { container: container.name.clone(), problem };
        let Some(cpu) = &boost.cpu else {
            return match self.rules.compat {
                // Upstream's webhook crashes here, and the pod is admitted as it is.
                Compat::Upstream => Err(bad("has no cpu")),
                Compat::Plimsoll => Ok(false),
            };
        };
        let recommended = size.requests.cpu().filter(|amount| !amount.is_zero());
        let base = recommended.or(container.spec.requests().cpu()).unwrap_or_default();
        let mut boosted = boosted_cpu(base, cpu).map_err(bad)?;
        if !self.max_cpu.is_zero() && boosted > self.max_cpu {
            boosted = self.max_cpu;
            if self.rules.fixes.has(Fix::BoostNeverLowers) {
                boosted = if base > boosted { base } else { boosted };
            }
        }
        if boosted.is_zero() && self.rules.fixes.has(Fix::BoostOfNothingIsNone) {
            return Ok(false);
        }
        let limits = container.spec.limits();
        if self.spec.limit_policy_for(&container.name) == LimitPolicy::RequestsOnly {
            boosted = just_below(boosted, limits.cpu());
        } else if let Some(limit) = self.limit(container, boosted) {
            size.limits.insert(ResourceName::Cpu, limit);
        }
        size.requests.insert(ResourceName::Cpu, boosted);
        Ok(true)
    }

    /// The limit that goes with a boosted request, if one is written.
    fn limit(&self, container: &Container, boosted: Quantity) -> Option<Quantity> {
        let takes_default = self.rules.fixes.has(Fix::BoostTakesDefaultLimitAlong);
        let none = ResourceList::EMPTY;
        let default =
            self.limit_range.filter(|_| takes_default).map_or(&none, |range| &range.default);
        let original = CurrentResources {
            requests: container.spec.requests(),
            limits: container.spec.limits(),
            defaults: default,
        };
        proportional_limit(&ResourceName::Cpu, &original, Some(boosted)).0
    }
}

fn boosted_cpu(base: Quantity, boost: &CpuBoost) -> Result<Quantity, &'static str> {
    let base = base.milli_value();
    let boosted = match boost.kind {
        BoostKind::Factor => {
            let factor = boost.factor.ok_or("is of type Factor and has no factor")?;
            if factor < 1 {
                return Err("has a factor below 1");
            }
            base.saturating_mul(i64::from(factor))
        }
        BoostKind::Quantity => {
            let more = boost.quantity.ok_or("is of type Quantity and has no quantity")?;
            base.saturating_add(more.milli_value())
        }
    };
    Ok(Quantity::from_milli(boosted, Format::DecimalSi))
}

/// Just below the limit where it would be above it, so that request and limit do not become equal.
fn just_below(boosted: Quantity, limit: Option<Quantity>) -> Quantity {
    let least = Quantity::cpu(MilliCpu(1));
    match limit.filter(|limit| boosted.milli_value() > limit.milli_value()) {
        Some(limit) if limit > least => limit - least,
        Some(limit) => limit,
        None => boosted,
    }
}
