//! The VPA of the simulation: the real recommender with upstream's settings, for CPU alone.

use std::time::Duration;

use super::replica::Replica;
use crate::{
    api::{ResourceName, vpa::ContainerPolicy},
    coordination::decide::Recommended,
    recommender::{History, Settings, VpaSettings, recommend},
    types::{Time, compat::Compat, units::MilliCpu},
};

/// The container of every pod, and the name under which its samples are counted.
const CONTAINER: &str = "app";

/// The recommender of one workload.
#[derive(Clone, Debug)]
pub struct Vertical {
    settings: Settings,
    vpa_settings: VpaSettings,
    history: History,
}

impl Default for Vertical {
    fn default() -> Self {
        let policy = ContainerPolicy {
            container_name: CONTAINER.into(),
            controlled_resources: Some(vec![ResourceName::Cpu]),
            ..ContainerPolicy::default()
        };
        Self {
            settings: Settings::for_compat(Compat::Upstream),
            vpa_settings: VpaSettings { policies: vec![policy], ..VpaSettings::default() },
            history: History::default(),
        }
    }
}

impl Vertical {
    /// Adds a sample of each pod.
    pub fn observe(&mut self, pods: &[Replica], now: Time) {
        let rules = self.vpa_settings.rules(None, &self.settings);
        let container = self.history.container_mut(CONTAINER, now, &rules);
        for (offset, pod) in (0_u64..).zip(pods) {
            let Some(sample) = pod.sample() else { continue };
            // The samples of all pods are one histogram. Under one name they need times of their own.
            let at = now.later(Duration::from_nanos(offset));
            // Rejected only if out of order, which a virtual clock does not produce.
            let _ = container.add_cpu(CONTAINER, at, MilliCpu(sample), &rules);
        }
    }

    /// The recommendation; `None` before the first sample.
    pub fn recommend(&self, now: Time) -> Option<Recommended> {
        let recommendation = recommend(&self.vpa_settings, &self.history, &self.settings, now);
        let container = recommendation.containers.into_iter().next()?;
        Some(Recommended {
            target: container.target.cpu?.milli_value(),
            lower: container.lower.cpu?.milli_value(),
            upper: container.upper.cpu?.milli_value(),
        })
    }
}
