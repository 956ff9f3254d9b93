//! The startup boost of a container in a new pod: more CPU than recommended, until some time after the pod is ready.

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

#[derive(Clone, Copy, Debug)]
pub struct BoostContext<'a> {
    /// How the VPA sizes pods.
    pub spec: &'a SizingSpec<'a>,
    /// The LimitRange for containers of the namespace.
    pub limit_range: Option<&'a MergedLimitRange>,
    /// `--max-allowed-cpu-boost`; zero means no limit.
    pub max_cpu: Quantity,
    pub rules: SizingRules,
}

impl BoostContext<'_> {
    /// Applies a boost to the new resources of a container. Returns whether it was boosted.
    pub fn apply(
        &self,
        container: &Container,
        boost: &StartupBoost,
        size: &mut SizedContainer,
    ) -> Result<bool, SizingError> {
        let invalid =
            |problem| SizingError::InvalidBoost { container: container.name.clone(), problem };
        let Some(cpu) = &boost.cpu else {
            return match self.rules.compat {
                // Upstream's webhook panics here, and the pod is admitted unchanged.
                Compat::Upstream => Err(invalid("has no cpu")),
                Compat::Plimsoll => Ok(false),
            };
        };
        let recommended = size.requests.cpu().filter(|amount| !amount.is_zero());
        let base = recommended.or(container.spec.requests().cpu()).unwrap_or_default();
        let mut boosted = boosted_cpu(base, cpu).map_err(invalid)?;
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

    /// Returns the limit for a boosted request, if one is written.
    fn limit(&self, container: &Container, boosted: Quantity) -> Option<Quantity> {
        let uses_default = self.rules.fixes.has(Fix::BoostTakesDefaultLimitAlong);
        let none = ResourceList::EMPTY;
        let default =
            self.limit_range.filter(|_| uses_default).map_or(&none, |range| &range.default);
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
            let factor = boost.factor.ok_or("has type Factor but no factor")?;
            if factor < 1 {
                return Err("has a factor below 1");
            }
            base.saturating_mul(i64::from(factor))
        }
        BoostKind::Quantity => {
            let extra = boost.quantity.ok_or("has type Quantity but no quantity")?;
            base.saturating_add(extra.milli_value())
        }
    };
    Ok(Quantity::from_milli(boosted, Format::DecimalSi))
}

/// Caps a boosted request to just below the limit, so that request and limit do not become equal.
fn just_below(boosted: Quantity, limit: Option<Quantity>) -> Quantity {
    let one_milli = Quantity::cpu(MilliCpu(1));
    match limit.filter(|limit| boosted.milli_value() > limit.milli_value()) {
        Some(limit) if limit > one_milli => limit - one_milli,
        Some(limit) => limit,
        None => boosted,
    }
}
