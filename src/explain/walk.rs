//! The way from what a histogram reads to a number, once more and step by step, from an explanation alone.

use plimsoll_core::{
    recommender::{
        ResourceExplanation,
        estimate::{Resource, stretch_factor},
        explanation::Step,
    },
    types::quantity::Quantity,
};

/// Which of the three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Below this the pod should be given more.
    Lower,
    /// What to request.
    Target,
    /// Above this the pod could do with less.
    Upper,
}

/// Every station of one number, in millicores or bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Walk {
    /// What was read.
    pub read: i64,
    /// With the margin on top.
    pub with_margin: i64,
    /// Raised for throttling.
    pub raised: i64,
    /// By what confidence moves it.
    pub factor: Option<f64>,
    /// After that.
    pub stretched: i64,
    /// Held to the floor, and the upper bound to its largest multiple of the target.
    pub held: i64,
    /// Rounded.
    pub rounded: Quantity,
    /// Within the policy's limits: the number, unless the pod has no room for it.
    pub limited: Quantity,
}

impl Walk {
    /// Goes the way of one number.
    pub fn of(resource: Resource, chain: &ResourceExplanation, which: Which) -> Self {
        let step = step(chain, which);
        let read = resource.amount(step.largest_replica.unwrap_or(step.read));
        let with_margin = read.saturating_add(resource.scale(read, chain.margin));
        let factor = step.stretch.map(|stretch| stretch_factor(stretch, chain.evidence.confidence));
        let raise =
            chain.throttled.map(|throttled| throttled.factor).filter(|factor| *factor > 1.0);
        let raised = raise.map_or(with_margin, |factor| resource.scale(with_margin, factor));
        let stretched = factor.map_or(raised, |factor| resource.scale(raised, factor));
        let mut held = stretched.max(chain.floor.amount);
        if let (Which::Upper, Some(most)) = (which, chain.upper_bound_factor) {
            let target = Self::of(resource, chain, Which::Target).held;
            held = held.min(resource.scale(target, most.max(1.0)));
        }
        let rounded = resource.quantity(held, &chain.rounding);
        let limited = chain.cap.apply(rounded).0;
        Self { read, with_margin, raised, factor, stretched, held, rounded, limited }
    }
}

/// What an explanation says of one number.
pub const fn step(chain: &ResourceExplanation, which: Which) -> &Step {
    match which {
        Which::Lower => &chain.lower,
        Which::Target => &chain.target,
        Which::Upper => &chain.upper,
    }
}
