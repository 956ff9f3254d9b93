//! The record of one container in one virtual minute: the output of the simulation.

use std::sync::Arc;

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::workload::{ContainerResources, ResourceAmounts, ResourceRecommendation};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerMinute {
    pub at: Time,
    pub namespace: Arc<str>,
    pub workload: Arc<str>,
    pub pod: Arc<str>,
    pub container: Arc<str>,
    /// What it would have used without limits.
    pub demand: ResourceAmounts,
    /// Its usage: CPU and memory up to their limits; it is OOM killed at the memory limit.
    pub usage: ResourceAmounts,
    /// Its requests and limits.
    #[serde(flatten)]
    pub share: ContainerResources,
    /// The recommendation at that time, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<ResourceRecommendation>,
    /// Whether it ran, rather than waiting for a (re)start.
    pub running: bool,
    /// Whether its CPU was throttled.
    pub throttled: bool,
    /// Whether it was OOM killed at the end of this minute.
    pub oom_killed: bool,
    /// Number of restarts before this minute.
    pub restarts: u32,
}

/// Receives the steps as they happen.
pub trait MinuteSink {
    /// Records a step. Steps of a minute come in a fixed order, minutes in order of time.
    fn record(&mut self, step: &ContainerMinute);
}

impl<F: FnMut(&ContainerMinute)> MinuteSink for F {
    fn record(&mut self, step: &ContainerMinute) {
        self(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sim::workload::{OptionalAmounts, ResourceLimits},
        types::units::{Bytes, MilliCpu},
    };

    #[test]
    fn a_step_survives_json_serialization() {
        let amount = ResourceAmounts { cpu: MilliCpu(250), memory: Bytes(1 << 20) };
        let step = ContainerMinute {
            at: Time::from_secs(60),
            namespace: "shop".into(),
            workload: "web".into(),
            pod: "web-1".into(),
            container: "web".into(),
            demand: amount,
            usage: amount,
            share: ContainerResources {
                request: amount,
                limit: ResourceLimits { cpu: None, memory: Some(Bytes(5)) },
            },
            advice: Some(ResourceRecommendation {
                target: amount.into(),
                lower: OptionalAmounts { cpu: None, memory: Some(Bytes(7)) },
                upper: amount.into(),
            }),
            running: true,
            throttled: false,
            oom_killed: true,
            restarts: 3,
        };
        let json = serde_json::to_string(&step).expect("serialises");
        assert_eq!(serde_json::from_str::<ContainerMinute>(&json).expect("parses"), step);
        assert!(
            json.contains(r#""request":{"cpuMillicores":250,"memoryBytes":1048576}"#),
            "{json}"
        );
    }
}
