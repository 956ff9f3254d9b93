//! The flags and feature gates of kube-controller-manager.

use std::time::Duration;

use super::spec::Behavior;

/// Settings for all HorizontalPodAutoscalers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// `--horizontal-pod-autoscaler-downscale-stabilization`
    pub downscale_stabilization: Duration,
    /// `--horizontal-pod-autoscaler-tolerance`
    pub tolerance: f64,
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`
    pub cpu_initialization_period: Duration,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`
    pub initial_readiness_delay: Duration,
    /// Feature gate `HPAScaleToZero`.
    pub scale_to_zero: bool,
    /// Feature gate `HPAConfigurableTolerance`.
    pub configurable_tolerance: bool,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
}

impl Default for Config {
    /// The defaults of kube-controller-manager 1.36.3.
    fn default() -> Self {
        Self {
            downscale_stabilization: Duration::from_mins(5),
            tolerance: 0.1,
            cpu_initialization_period: Duration::from_mins(5),
            initial_readiness_delay: Duration::from_secs(30),
            scale_to_zero: false,
            configurable_tolerance: true,
            pod_level_resources: true,
        }
    }
}

impl Config {
    /// The tolerances of one object, from its `behavior` or else from the flag.
    pub fn tolerances(&self, behavior: Option<&Behavior>) -> Tolerance {
        let own = behavior.filter(|_| self.configurable_tolerance);
        Tolerance {
            down: own.and_then(|own| own.scale_down.tolerance).unwrap_or(self.tolerance),
            up: own.and_then(|own| own.scale_up.tolerance).unwrap_or(self.tolerance),
        }
    }
}

/// How far a ratio may be from 1 before replicas are changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// For ratios below 1.
    pub down: f64,
    /// For ratios above 1.
    pub up: f64,
}

impl Tolerance {
    /// Whether a ratio is within tolerance, including both ends.
    pub fn contains(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}
