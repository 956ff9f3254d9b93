//! The state of both resources of one container, and its stored form.

use crate::{history::EncodedPlan, types::Time};

use super::{
    cpu_plan::CpuPlan,
    encoding::{self, InvalidPlanState},
    peak_window::PeakWindow,
    settings::{CpuPlanSettings, PeakWindowSettings},
};

/// What the planned requests of one container are based on.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanState {
    pub cpu: CpuPlan,
    pub memory: PeakWindow,
}

impl PlanState {
    /// Creates a state without samples. Days are counted from `start`.
    pub fn new(start: Time) -> Self {
        Self { cpu: CpuPlan::new(start), memory: PeakWindow::new(start) }
    }

    /// Returns the stored form, which keeps every bit.
    pub fn encode(&self) -> EncodedPlan {
        EncodedPlan::from_bytes(encoding::encode(self))
    }

    /// Restores a stored form.
    pub fn decode(encoded: &EncodedPlan) -> Result<Self, InvalidPlanState> {
        encoding::decode(encoded.bytes())
    }

    /// Adds the samples of another state of the same container.
    pub fn merge(&mut self, other: Self, cpu: &CpuPlanSettings, memory: &PeakWindowSettings) {
        self.cpu.merge(other.cpu, cpu);
        self.memory.merge(other.memory, memory);
    }
}
