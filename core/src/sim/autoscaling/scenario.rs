//! What is simulated.

use std::time::Duration;

use super::load::{Load, LoadCurve};
use crate::sim::noise::Noise;

/// How the two autoscalers share CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The VPA only changes memory, so the CPU request stays.
    MemoryOnly,
    /// Both act without knowing of each other, by upstream's rules.
    Unaware,
    /// The rules of [`crate::coordination`], with replicas that follow usage.
    Coordinated,
    /// The rules of [`crate::coordination`], with a target that follows the requests.
    Retargeted,
}

/// One workload with its autoscalers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// Seeds everything random.
    pub seed: u64,
    /// Length of the run in days.
    pub days: u64,
    pub curve: LoadCurve,
    /// The CPU request in the pod template, in millicores.
    pub template_request: i64,
    /// The target utilization in percent.
    pub target_percent: i32,
    pub min_replicas: i32,
    pub max_replicas: i32,
    /// The stabilization window for scaling down.
    pub down_window: Duration,
    /// How many steps a pod takes to become ready: this many, or up to twice as many.
    pub startup_steps: u64,
    /// CPU usage of a starting pod, in millicores.
    pub startup_usage: f64,
    /// How the two autoscalers share CPU.
    pub mode: Mode,
    /// Whether pods are resized in place instead of being replaced.
    pub in_place: bool,
    /// Whether requests and the scale point are raised at the maximum of replicas.
    pub raises_at_max: bool,
    /// Whether the recommendation alternates between two values that are far apart, so that every change that may be made is
    /// made.
    pub alternates: bool,
}

impl Scenario {
    /// A daily load of 1.4 to 9 cores, pods of 500m with a target of 60 %, 2 to 40 replicas.
    pub fn daily(seed: u64) -> Self {
        Self {
            seed,
            days: 28,
            curve: LoadCurve::Daily { night: 1400.0, peak: 9000.0, weekend: 0.8 },
            template_request: 500,
            target_percent: 60,
            min_replicas: 2,
            max_replicas: 40,
            down_window: Duration::from_mins(5),
            startup_steps: 2,
            startup_usage: 200.0,
            mode: Mode::Coordinated,
            in_place: false,
            raises_at_max: true,
            alternates: false,
        }
    }

    pub fn load(&self) -> Load {
        Load { curve: self.curve, noise: self.noise() }
    }

    pub fn noise(&self) -> Noise {
        Noise::new(self.seed)
    }
}
