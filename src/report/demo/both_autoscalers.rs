//! A service with a HorizontalPodAutoscaler and a VerticalPodAutoscaler on CPU, in the closed loop of the simulator: with the
//! VPA on memory alone, with both as upstream has them, and with the rules by which Plimsoll lets them share CPU.

use plimsoll_core::sim::autoscaling::{Mode, Outcome, Scenario, run};
use serde::{Deserialize, Serialize};

use super::scenario_run::{DemoError, ProgressObserver};

/// Simulated days: two weeks, because replicas drift slowly. The first two days are not counted.
const DAYS: u64 = 14;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMeans {
    pub replicas: f64,
    /// CPU requests of all replicas, in cores.
    pub requested_cores: f64,
}

/// The same service three times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BothAutoscalers {
    pub days: u64,
    /// The VPA changes memory only.
    pub memory_only: ServiceMeans,
    /// Both use CPU, and do not know of each other.
    pub upstream: ServiceMeans,
    /// Both use CPU; replicas follow the usage per pod, and requests have a floor.
    pub coordinated: ServiceMeans,
}

pub fn simulate(seed: u64, observer: &dyn ProgressObserver) -> Result<BothAutoscalers, DemoError> {
    let means = |mode| {
        if observer.is_cancelled() {
            return Err(DemoError::Interrupted);
        }
        let Outcome { mean_replicas: replicas, requested_cores, .. } =
            run(&Scenario { mode, days: DAYS, ..Scenario::daily(seed) });
        Ok(ServiceMeans { replicas, requested_cores })
    };
    Ok(BothAutoscalers {
        days: DAYS,
        memory_only: means(Mode::MemoryOnly)?,
        upstream: means(Mode::Unaware)?,
        coordinated: means(Mode::Coordinated)?,
    })
}

impl BothAutoscalers {
    pub fn summary(&self) -> String {
        let Self { days, memory_only, upstream, coordinated } = self;
        let means = |means: &ServiceMeans| {
            format!("{:.0} replicas with {:.1} cores", means.replicas, means.requested_cores)
        };
        format!(
            "A service whose replicas an HPA sets by CPU utilization has {} requested on average ({days} days). A VPA that \
             changes CPU too makes that {} by upstream's rules, and {} by Plimsoll's.",
            means(memory_only),
            means(upstream),
            means(coordinated)
        )
    }
}
