//! Minimum, maximum, and the scale-up limit of objects without `behavior`.

use serde::Serialize;

use super::{scale_rate::RateLimit, stabilization::Direction};

/// Without `behavior`, a pass may always scale up to this number of replicas.
const GROWTH_FLOOR: i32 = 4;
/// Without `behavior`, a pass may multiply the current replicas by this factor.
const GROWTH_FACTOR: f64 = 2.0;

/// The limit that changed a proposed number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// No limit.
    Nothing,
    /// `minReplicas`.
    Min,
    /// `maxReplicas`.
    Max,
    ScaleUpRate,
    ScaleDownRate,
}

impl LimitedBy {
    /// Reason and message of the condition `ScalingLimited`.
    pub fn condition(self) -> (&'static str, &'static str) {
        match self {
            Self::Nothing => {
                ("DesiredWithinRange", "the desired count is within the acceptable range")
            }
            Self::Min => (
                "TooFewReplicas",
                "the desired replica count is less than the minimum replica count",
            ),
            Self::Max => (
                "TooManyReplicas",
                "the desired replica count is more than the maximum replica count",
            ),
            Self::ScaleUpRate => (
                "ScaleUpLimit",
                "the desired replica count is increasing faster than the maximum scale rate",
            ),
            Self::ScaleDownRate => (
                "ScaleDownLimit",
                "the desired replica count is decreasing faster than the maximum scale rate",
            ),
        }
    }
}

/// The result of applying bounds and rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limited {
    /// The replicas before limits.
    pub wanted: i32,
    /// The replicas after limits.
    pub replicas: i32,
    /// The limit that was hit.
    pub by: LimitedBy,
    /// The rate limit in the direction of the change.
    pub rate: Option<RateLimit>,
}

/// Applies bounds and the default rate of objects without `behavior`.
pub fn without_behavior(current: i32, wanted: i32, min: i32, max: i32) -> Limited {
    let doubled = GROWTH_FACTOR * f64::from(current);
    let rate = doubled.max(f64::from(GROWTH_FLOOR)) as i32;
    let (replicas, by) = if wanted < min {
        (min, LimitedBy::Min)
    } else if wanted > rate.min(max) {
        if max > rate { (rate, LimitedBy::ScaleUpRate) } else { (max, LimitedBy::Max) }
    } else {
        (wanted, LimitedBy::Nothing)
    };
    let rate = (wanted > current).then(|| RateLimit {
        direction: Direction::Up,
        replicas: rate,
        policies: Vec::new(),
        select: super::spec::SelectPolicy::Max,
    });
    Limited { wanted, replicas, by, rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors N1 to N9.
    #[test]
    fn growth_without_behavior_is_limited() {
        use LimitedBy::{Max, Min, Nothing, ScaleUpRate};
        for (name, current, wanted, min, max, replicas, by) in [
            ("N1", 5, 7, 3, 8, 7, Nothing),
            ("N2", 3, 1, 2, 8, 2, Min),
            ("N3", 1, 0, 0, 10, 0, Nothing),
            ("N4", 20, 1000, 1, 10, 10, Max),
            ("N5", 3, 1000, 1, 2000, 6, ScaleUpRate),
            ("N6", 1, 1000, 1, 2000, 4, ScaleUpRate),
            ("N7", 2, 4, 1, 4, 4, Nothing),
            ("N8", 0, 9, 0, 20, 4, ScaleUpRate),
            ("N9", 3, 30, 1, 6, 6, Max),
        ] {
            let limited = without_behavior(current, wanted, min, max);
            assert_eq!((limited.replicas, limited.by), (replicas, by), "{name}");
        }
    }
}
