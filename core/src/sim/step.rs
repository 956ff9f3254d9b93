//! What one container did in one virtual minute: the record that everything else is computed from.

use std::sync::Arc;

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::workload::{ContainerResources, ResourceAmounts, ResourceRecommendation};

/// One container of one pod in one minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerMinute {
    /// The end of the minute.
    pub at: Time,
    /// Namespace of the workload.
    pub namespace: Arc<str>,
    /// Name of the workload.
    pub workload: Arc<str>,
    /// Name of the pod.
    pub pod: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// What it would have used if nothing had held it back.
    pub demand: ResourceAmounts,
    /// What it used: CPU up to its limit; memory up to its limit, where it was killed.
    pub usage: ResourceAmounts,
    /// What it was given.
    #[serde(flatten)]
    pub share: ContainerResources,
    /// What the recommender said about it at that time, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<ResourceRecommendation>,
    /// Whether it ran, or waited to be started (again).
    pub running: bool,
    /// Whether its CPU was throttled.
    pub throttled: bool,
    /// Whether it was killed for lack of memory at the end of this minute.
    pub oom_killed: bool,
    /// How often it had been restarted before.
    pub restarts: u32,
}

/// Takes the steps as they happen.
pub trait MinuteSink {
    /// One step; those of a minute come in a fixed order, minutes in order of time.
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
    fn a_step_survives_json() {
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
