//! Convergence: steps towards one of the watermarks while a metric is between them, and their results.

use std::str::FromStr;

use crate::scaling::Position;

/// The watermark to converge to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvergeTowards {
    /// Remove replicas until the metric is near the high watermark.
    High,
    /// Add replicas until the metric is near the low watermark.
    Low,
}

impl FromStr for ConvergeTowards {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "highwatermark" => Ok(Self::High),
            "lowwatermark" => Ok(Self::Low),
            _ => Err(()),
        }
    }
}

/// The result of converging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convergence {
    /// Not enabled.
    Off,
    /// The metric is not between the watermarks.
    Outside(Position),
    /// A step would go past the watermark.
    WouldOvershoot(ConvergeTowards),
    /// A step is proposed.
    Step(ConvergeTowards),
}
