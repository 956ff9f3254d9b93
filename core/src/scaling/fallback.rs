//! The replicas of a workload while its metrics are not available.

use std::time::Duration;

/// Replicas to scale to while metrics are not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    pub replicas: i32,
    /// How long metrics have to be unavailable first.
    pub after: Duration,
}

impl Fallback {
    /// Parses `8 after 20`: replicas, and a number of periods.
    pub fn parse(text: &str, period: Duration) -> Option<Self> {
        let (replicas, periods) = text.split_once(" after ")?;
        let replicas: i32 = replicas.trim().parse().ok().filter(|replicas| *replicas >= 1)?;
        let periods: u32 = periods.trim().parse().ok().filter(|periods| *periods >= 1)?;
        Some(Self { replicas, after: period.checked_mul(periods)? })
    }
}
